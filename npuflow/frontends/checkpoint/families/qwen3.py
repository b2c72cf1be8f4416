"""Qwen3: Llama's decoder with norms of every head's queries and keys."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from npuflow.checkpoints import Checkpoint
from npuflow.frontends.checkpoint.families import FAMILIES
from npuflow.frontends.checkpoint.families._decoder import Decoder
from npuflow.frontends.checkpoint.families._plain import decoder
from npuflow.frontends.checkpoint.families._roles import FOLDER, GGUF, GGUF_HEAD_NORMS, HEAD_NORMS
from npuflow.frontends.checkpoint.families._windows import switched


@FAMILIES.entry
class Qwen3:
    models: ClassVar[tuple[str, ...]] = ("qwen3",)
    architectures: ClassVar[tuple[str, ...]] = ("qwen3",)
    folder: ClassVar[Mapping[str, str]] = {**FOLDER, **HEAD_NORMS}
    gguf: ClassVar[Mapping[str, str]] = {**GGUF, **GGUF_HEAD_NORMS}

    def decoder(self, checkpoint: Checkpoint, context: int) -> Decoder:
        return decoder(checkpoint, context, windows=switched(checkpoint.config))
