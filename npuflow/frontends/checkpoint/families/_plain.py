"""The decoder that Llama made common, from a configuration; families state what they do otherwise."""

from __future__ import annotations

from typing import Any

from npuflow.base.errors import ModelError
from npuflow.checkpoints import Checkpoint
from npuflow.checkpoints.config import CheckpointConfig
from npuflow.frontends.checkpoint.families._decoder import Activation, Decoder
from npuflow.frontends.checkpoint.families._roles import FOLDER, GGUF
from npuflow.frontends.checkpoint.families._rope import Rope, stated
from npuflow.ir.types import Array

ACTIVATIONS: dict[str, Activation] = {
    "silu": "silu", "swish": "silu", "gelu": "gelu", "relu": "relu", "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh", "gelu_fast": "gelu_tanh",
}
MOST_LAYERS, MOST_WIDTH, MOST_TOKENS = 1_000, 1 << 20, 1 << 24


def decoder(checkpoint: Checkpoint, context: int, **changes: Any) -> Decoder:
    """Root mean square norms, gated SiLU, rotation of whole heads; `changes`: fields of `Decoder`."""
    config = checkpoint.config
    if config.whole("num_local_experts", 0, least=0) > 1:
        raise ModelError(
            "the checkpoint has several experts a layer", because="a family with experts is not read",
            hint="take a model without experts", code="NF-MODEL-453",
        ).at(file=config.file)
    layers = config.whole("num_hidden_layers", most=MOST_LAYERS)
    width = config.whole("hidden_size", most=MOST_WIDTH)
    heads = config.whole("num_attention_heads", most=MOST_WIDTH)
    shared = config.whole("num_key_value_heads", heads, most=MOST_WIDTH)
    size = config.whole("head_dim", max(width // heads, 1), most=MOST_WIDTH)
    if heads % shared:
        config.wrong("num_key_value_heads", shared, f"{heads} heads of queries cannot share so many of keys")
    common: dict[str, Any] = {
        "layers": layers, "width": width, "heads": heads, "key_heads": shared, "head_size": size,
        "feed_forward": config.whole("intermediate_size", most=MOST_WIDTH),
        "tokens": tokens(checkpoint),
        "longest": config.whole("max_position_embeddings"),
        "activation": activation(config, "hidden_act"),
        "windows": (0,) * layers,
        "tied": tied(checkpoint),
    }
    if "ropes" not in changes:
        common["ropes"] = (rope(checkpoint, size, context),) * layers
    if "epsilon" not in changes:
        common["epsilon"] = config.real("rms_norm_eps")
    return Decoder(**{**common, **changes})


def tokens(checkpoint: Checkpoint) -> int:
    """How many there are: as stated, or as many rows as the embedding has."""
    if "vocab_size" in checkpoint.config:
        return checkpoint.config.whole("vocab_size", most=MOST_TOKENS)
    found = checkpoint.tensors.get(GGUF["embedding"])
    return found.shape[0] if found is not None else 1


def tied(checkpoint: Checkpoint) -> bool:
    """Whether the embedding is the output's matrix, too: there is no other, and none is stated."""
    heads = {FOLDER["head"], GGUF["head"]}
    stated_apart = checkpoint.config.values.get("tie_word_embeddings") is False
    return not heads & checkpoint.tensors.keys() and not stated_apart


def activation(config: CheckpointConfig, key: str) -> Activation:
    name = config.text(key, "silu")
    if name not in ACTIVATIONS:
        config.wrong(key, name, f"activations are {', '.join(ACTIVATIONS)}")
    return ACTIVATIONS[name]


def base(config: CheckpointConfig, default: float = 10_000.0) -> float:
    """The base of rotary frequencies, where config.json has it today, and where it had it."""
    found = config.table("rope_parameters").real("rope_theta", config.real("rope_theta", default))
    if found <= 1:
        config.wrong("rope_theta", found, "it has to be more than 1")
    return found


def rotated(config: CheckpointConfig, size: int) -> int:
    """How many features of a head are rotated."""
    share = config.table("rope_parameters").real(
        "partial_rotary_factor", config.real("partial_rotary_factor", 1.0)
    )
    found = config.whole("rotated", int(size * share), most=size)
    if found % 2:
        config.wrong("rotated", found, "features of a head are rotated in pairs")
    return found


def rope(checkpoint: Checkpoint, size: int, context: int) -> Rope:
    """Rotary positions of all layers. GGUF keeps those of Llama 3 and LongRoPE as tensors of factors."""
    config = checkpoint.config
    part = rotated(config, size)
    return stated(config, part, base(config), context, _factors(checkpoint, part, context))


def _factors(checkpoint: Checkpoint, part: int, context: int) -> Array | None:
    first = checkpoint.config.whole(
        "original_max_position_embeddings", checkpoint.config.values.get("max_position_embeddings", 1)
    )
    for name in ("rope_freqs.weight", f"rope_factors_{'short' if context <= first else 'long'}.weight"):
        found = checkpoint.tensors.get(name)
        if found is None:
            continue
        numbers = found.floats()
        if numbers.shape != (part // 2,) or not (numbers > 0).all():
            raise ModelError(
                f'"{name}" of the checkpoint has the shape {list(numbers.shape)}',
                because=f"{part // 2} factors above 0 are needed", code="NF-MODEL-461",
            ).at(file=str(checkpoint.path))
        return numbers
    return None
