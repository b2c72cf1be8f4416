"""Gemma: Llama's decoder with GELU, an embedding times the root of its width, and scales of norms less 1."""

from __future__ import annotations

from collections.abc import Mapping
from math import sqrt
from typing import ClassVar

from npuflow.checkpoints import Checkpoint
from npuflow.frontends.checkpoint.families import FAMILIES
from npuflow.frontends.checkpoint.families._decoder import Decoder
from npuflow.frontends.checkpoint.families._plain import decoder
from npuflow.frontends.checkpoint.families._roles import FOLDER, GGUF


@FAMILIES.entry
class Gemma:
    """Folders store scales of norms less 1; GGUF files store them whole."""

    models: ClassVar[tuple[str, ...]] = ("gemma",)
    architectures: ClassVar[tuple[str, ...]] = ("gemma",)
    folder: ClassVar[Mapping[str, str]] = FOLDER
    gguf: ClassVar[Mapping[str, str]] = GGUF

    def decoder(self, checkpoint: Checkpoint, context: int) -> Decoder:
        return decoder(
            checkpoint, context, activation="gelu_tanh", shift=float(checkpoint.form == "folder"),
            embedding_scale=sqrt(checkpoint.config.whole("hidden_size")),
        )
