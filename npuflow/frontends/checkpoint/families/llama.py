"""Llama and what is built like it: SmolLM2, TinyLlama, Llama 2 and 3; in GGUF files Mistral, too."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import ClassVar

from npuflow.checkpoints import Checkpoint
from npuflow.frontends.checkpoint.families import FAMILIES
from npuflow.frontends.checkpoint.families._decoder import Decoder
from npuflow.frontends.checkpoint.families._plain import decoder
from npuflow.frontends.checkpoint.families._roles import FOLDER, GGUF


@FAMILIES.entry
class Llama:
    """GGUF files of this family store the rows of queries and keys as pairs of a rotation."""

    models: ClassVar[tuple[str, ...]] = ("llama",)
    architectures: ClassVar[tuple[str, ...]] = ("llama",)
    folder: ClassVar[Mapping[str, str]] = FOLDER
    gguf: ClassVar[Mapping[str, str]] = GGUF

    def decoder(self, checkpoint: Checkpoint, context: int) -> Decoder:
        made = decoder(checkpoint, context)
        window = checkpoint.config.whole("sliding_window", 0, least=0)
        return replace(made, paired=checkpoint.form == "gguf", windows=(window,) * made.layers)
