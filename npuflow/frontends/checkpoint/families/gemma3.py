"""Gemma 3, its text models: norms of queries and keys, a rotation for layers with a window, and another."""

from __future__ import annotations

from collections.abc import Mapping
from math import sqrt
from typing import ClassVar

from npuflow.checkpoints import Checkpoint
from npuflow.checkpoints.config import CheckpointConfig
from npuflow.frontends.checkpoint.families import FAMILIES
from npuflow.frontends.checkpoint.families._decoder import Decoder
from npuflow.frontends.checkpoint.families._plain import decoder
from npuflow.frontends.checkpoint.families._roles import (
    END_NORMS,
    FOLDER,
    GGUF,
    GGUF_END_NORMS,
    GGUF_HEAD_NORMS,
    HEAD_NORMS,
)
from npuflow.frontends.checkpoint.families._rope import Rope, plain, scaled, stated
from npuflow.frontends.checkpoint.families._windows import KINDS, windows

LARGEST = 62                              # layers of Gemma 3 27B, whose queries have a scale of their own
LOCAL, GLOBAL = 10_000.0, 1_000_000.0     # bases of the rotations


@FAMILIES.entry
class Gemma3:
    """Folders store scales of norms less 1; GGUF files store them whole, and no scale of queries."""

    models: ClassVar[tuple[str, ...]] = ("gemma3_text",)
    architectures: ClassVar[tuple[str, ...]] = ("gemma3",)
    folder: ClassVar[Mapping[str, str]] = {**FOLDER, **END_NORMS, **HEAD_NORMS}
    gguf: ClassVar[Mapping[str, str]] = {**GGUF, **GGUF_END_NORMS, **GGUF_HEAD_NORMS}

    def decoder(self, checkpoint: Checkpoint, context: int) -> Decoder:
        config, whole = checkpoint.config, checkpoint.form == "folder"
        if config.truth("use_bidirectional_attention", False):
            config.wrong("use_bidirectional_attention", True, "tokens attend to those before them alone")
        width, heads = config.whole("hidden_size"), config.whole("num_attention_heads")
        size = config.whole("head_dim", 256 if whole else width // heads)
        pattern = config.whole("sliding_window_pattern", 6)
        own = windows(config, lambda layer: (layer + 1) % pattern > 0)
        local, far = ropes(config, size, context)
        usual = 256.0 if whole else width / heads if config.whole("num_hidden_layers") == LARGEST else size
        return decoder(
            checkpoint, context, activation="gelu_tanh", shift=float(whole), embedding_scale=sqrt(width),
            head_size=size, windows=own, ropes=tuple(local if window else far for window in own),
            scale=config.real("query_pre_attn_scalar", usual) ** -0.5,
            cap=config.real("attn_logit_softcapping", 0.0),
            final_cap=config.real("final_logit_softcapping", 0.0),
        )


def ropes(config: CheckpointConfig, size: int, context: int) -> tuple[Rope, Rope]:
    """Of layers with a window, and of those without: by kind, or as earlier configurations state them."""
    parameters = config.table("rope_parameters")
    if KINDS[0] in parameters:
        far, near = (parameters.table(kind) for kind in KINDS)
        local = plain(size, near.real("rope_theta", LOCAL))
        return local, scaled(far, config, plain(size, far.real("rope_theta", GLOBAL)), context)
    local = plain(size, config.real("rope_local_base_freq", LOCAL))
    return local, stated(config, size, config.real("rope_theta", GLOBAL), context)
