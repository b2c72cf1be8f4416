"""Mistral: Llama's decoder; of early versions a token attends to a window of those before it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from npuflow.checkpoints import Checkpoint
from npuflow.frontends.checkpoint.families import FAMILIES
from npuflow.frontends.checkpoint.families._decoder import Decoder
from npuflow.frontends.checkpoint.families._plain import decoder
from npuflow.frontends.checkpoint.families._roles import FOLDER, GGUF
from npuflow.frontends.checkpoint.families._windows import windows


@FAMILIES.entry
class Mistral:
    models: ClassVar[tuple[str, ...]] = ("mistral",)
    architectures: ClassVar[tuple[str, ...]] = ("mistral",)
    folder: ClassVar[Mapping[str, str]] = FOLDER
    gguf: ClassVar[Mapping[str, str]] = GGUF

    def decoder(self, checkpoint: Checkpoint, context: int) -> Decoder:
        return decoder(
            checkpoint, context, windows=windows(checkpoint.config), paired=checkpoint.form == "gguf"
        )
