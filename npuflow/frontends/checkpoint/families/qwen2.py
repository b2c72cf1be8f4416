"""Qwen2 and Qwen2.5: Llama's decoder with biases of queries, keys and values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from npuflow.checkpoints import Checkpoint
from npuflow.frontends.checkpoint.families import FAMILIES
from npuflow.frontends.checkpoint.families._decoder import Decoder
from npuflow.frontends.checkpoint.families._plain import decoder
from npuflow.frontends.checkpoint.families._roles import FOLDER, GGUF
from npuflow.frontends.checkpoint.families._windows import switched


@FAMILIES.entry
class Qwen2:
    models: ClassVar[tuple[str, ...]] = ("qwen2",)
    architectures: ClassVar[tuple[str, ...]] = ("qwen2",)
    folder: ClassVar[Mapping[str, str]] = FOLDER
    gguf: ClassVar[Mapping[str, str]] = GGUF

    def decoder(self, checkpoint: Checkpoint, context: int) -> Decoder:
        return decoder(checkpoint, context, windows=switched(checkpoint.config))
