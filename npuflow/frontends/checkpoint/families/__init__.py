"""Families of language models, one a file: what a checkpoint of the family says of its network."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Protocol

from npuflow.base.registry import Registry
from npuflow.checkpoints import Checkpoint
from npuflow.frontends.checkpoint.families._decoder import Decoder

FAMILIES = Registry("families", "npuflow.frontends.checkpoint.families")


class Family(Protocol):
    """A family of decoders. `models`: what config.json calls it (model_type); `architectures`: what GGUF
    does. `folder`, `gguf`: names of tensors by role (see `_roles.py`), `{}` standing for the layer's
    number."""

    models: ClassVar[tuple[str, ...]]
    architectures: ClassVar[tuple[str, ...]]
    folder: ClassVar[Mapping[str, str]]
    gguf: ClassVar[Mapping[str, str]]

    def decoder(self, checkpoint: Checkpoint, context: int) -> Decoder:
        """The network that the checkpoint describes, for a cache of so many tokens."""
