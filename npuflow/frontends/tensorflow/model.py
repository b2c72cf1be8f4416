"""A TensorFlow model that is open: its inputs, and the function that it is."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class TensorflowModel:
    """A model as a function of tensors: `specs` by the names of its inputs, with free sizes as None; `call`
    takes tensors in their order and gives tensors by name. `layers`: names of Keras layers; `notes`: what had
    to be assumed."""

    specs: Mapping[str, Any]
    call: Callable[..., Mapping[str, Any]]
    layers: frozenset[str] = frozenset()
    notes: tuple[str, ...] = ()
