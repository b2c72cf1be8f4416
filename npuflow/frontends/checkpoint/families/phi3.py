"""Phi-3 and Phi-4-mini: Llama's decoder with fused matrices, a window, partial rotation and LongRoPE."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import ClassVar

from npuflow.checkpoints import Checkpoint
from npuflow.frontends.checkpoint.families import FAMILIES
from npuflow.frontends.checkpoint.families._decoder import Decoder
from npuflow.frontends.checkpoint.families._plain import decoder
from npuflow.frontends.checkpoint.families._roles import FOLDER, GGUF
from npuflow.frontends.checkpoint.families._rope import Rope, long_scale
from npuflow.frontends.checkpoint.families._windows import windows

APART = ("query", "key", "value", "gate", "up")


def fused(names: Mapping[str, str], attention: str, feed: str) -> dict[str, str]:
    """Queries, keys and values in one matrix, gate and input of the feed-forward in another."""
    kept = {role: name for role, name in names.items() if role not in APART}
    return {**kept, "attention": attention, "gate_up": feed}


@FAMILIES.entry
class Phi3:
    models: ClassVar[tuple[str, ...]] = ("phi3",)
    architectures: ClassVar[tuple[str, ...]] = ("phi3",)
    folder: ClassVar[Mapping[str, str]] = fused(
        FOLDER, "model.layers.{}.self_attn.qkv_proj.weight", "model.layers.{}.mlp.gate_up_proj.weight"
    )
    gguf: ClassVar[Mapping[str, str]] = fused(GGUF, "blk.{}.attn_qkv.weight", "blk.{}.ffn_up.weight")

    def decoder(self, checkpoint: Checkpoint, context: int) -> Decoder:
        config = checkpoint.config
        made = decoder(checkpoint, context, windows=windows(config))
        if not any(name.startswith("rope_factors_") for name in checkpoint.tensors):
            return made
        longest = made.longest            # GGUF states factors as tensors, and seldom what they scale with
        first = config.whole("original_max_position_embeddings", longest)
        scale = long_scale(config.table("rope_scaling"), longest, first)
        stretched = tuple(Rope(rope.frequencies, scale) for rope in made.ropes if rope is not None)
        return replace(made, ropes=stretched)
