"""GPT-2: learned positions, norms by mean and variance, biases, a feed-forward without a gate."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, ClassVar

from npuflow.checkpoints import Checkpoint
from npuflow.checkpoints.config import CheckpointConfig
from npuflow.frontends.checkpoint.families import FAMILIES
from npuflow.frontends.checkpoint.families._decoder import Decoder
from npuflow.frontends.checkpoint.families._plain import activation, tokens
from npuflow.frontends.checkpoint.families._roles import GGUF

FOLDER: Mapping[str, str] = MappingProxyType({
    "embedding": "transformer.wte.weight",
    "positions": "transformer.wpe.weight",
    "norm": "transformer.ln_f.weight",
    "head": "lm_head.weight",
    "attention_norm": "transformer.h.{}.ln_1.weight",
    "attention": "transformer.h.{}.attn.c_attn.weight",
    "out": "transformer.h.{}.attn.c_proj.weight",
    "feed_norm": "transformer.h.{}.ln_2.weight",
    "up": "transformer.h.{}.mlp.c_fc.weight",
    "down": "transformer.h.{}.mlp.c_proj.weight",
})
OWN = ("query", "key", "value", "gate")
NAMES = {
    "num_hidden_layers": "n_layer", "hidden_size": "n_embd", "num_attention_heads": "n_head",
    "intermediate_size": "n_inner", "max_position_embeddings": "n_positions",
}
"""What GPT-2's config.json calls these numbers."""


@FAMILIES.entry
class Gpt2:
    """Folders store matrices as [inputs, outputs]; GGUF files turn them."""

    models: ClassVar[tuple[str, ...]] = ("gpt2",)
    architectures: ClassVar[tuple[str, ...]] = ("gpt2",)
    folder: ClassVar[Mapping[str, str]] = FOLDER
    gguf: ClassVar[Mapping[str, str]] = {
        **{role: name for role, name in GGUF.items() if role not in OWN},
        "positions": "position_embd.weight", "attention": "blk.{}.attn_qkv.weight",
    }

    def decoder(self, checkpoint: Checkpoint, context: int) -> Decoder:
        config, folder = checkpoint.config, checkpoint.form == "folder"
        if folder:
            values: dict[str, Any] = {new: config.values.get(old) for new, old in NAMES.items()}
            config = CheckpointConfig({**config.values, **values}, config.file, NAMES)
        if config.truth("scale_attn_by_inverse_layer_idx", False):
            config.wrong("scale_attn_by_inverse_layer_idx", True, "scores have one scale in all layers")
        layers, width = config.whole("num_hidden_layers", most=1_000), config.whole("hidden_size")
        heads = config.whole("num_attention_heads", most=width)
        names = self.folder if folder else self.gguf
        return Decoder(
            layers=layers, width=width, heads=heads, key_heads=heads, head_size=width // heads,
            feed_forward=config.whole("intermediate_size", 4 * width), tokens=tokens(checkpoint),
            longest=config.whole("max_position_embeddings"),
            epsilon=config.real("layer_norm_epsilon", 1e-5), ropes=(None,) * layers, windows=(0,) * layers,
            activation=activation(config, "activation_function") if folder else "gelu_tanh",
            scale=0.0 if config.truth("scale_attn_weights", True) else 1.0,
            norm="layer", gated=False, tied=names["head"] not in checkpoint.tensors, turned=folder,
        )
