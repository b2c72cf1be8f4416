"""Detection heads, one kind a file: outputs of a detector become boxes and scores.

Noun: `Head`.
Public: `Head`, `HeadTask`, `Decoded`.
Does not know: targets, quantisation.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

from npuflow.base.registry import Registry
from npuflow.base.tables import EntryConfig
from npuflow.ir.types import Array

HEADS = Registry("heads", "npuflow.heads")
Shapes = Sequence[tuple[int, ...]]


@dataclass(frozen=True)
class HeadTask:
    """The outputs that hold the heads, in order; height and width of the network's input; how many classes
    there are (0: as many as the heads have)."""

    heads: tuple[str, ...]
    size: tuple[int, int]
    classes: int = 0


@dataclass(frozen=True)
class Decoded:
    """Values of the network: corners x1, y1, x2, y2 in pixels of the input [1, boxes, 4], and scores from 0
    to 1 [1, classes, boxes]."""

    boxes: str
    scores: str


class HeadNet(Protocol):
    """The network that nodes are appended to, in ONNX's vocabulary."""

    def shape(self, value: str) -> tuple[int, ...]: ...

    def constant(self, array: Array) -> str:
        """A constant of real numbers (float32)."""

    def op(self, kind: str, *inputs: str | Sequence[int], **attributes: Any) -> str:
        """An operator of one result. An input that is a sequence of whole numbers becomes a constant."""

    def on_host(self, kind: str, *inputs: str | Sequence[int], **attributes: Any) -> str:
        """The same, left to the host."""


class Head(EntryConfig):
    """The outputs of one family of detectors. Its fields are its options in the recipe."""

    suppresses: ClassVar[bool] = True     # overlapping boxes are suppressed; False: the heads have peaks
    every_class: ClassVar[bool] = False   # a box counts for every class, not only for its best

    def misfit(self, shapes: Shapes, size: tuple[int, int], classes: int) -> str:
        """Why outputs of these shapes are no such heads of a network with an input of this size; "" if they
        may be."""
        raise NotImplementedError

    def decode(self, net: HeadNet, task: HeadTask) -> Decoded:
        """Append what makes boxes and scores of heads that fit."""
        raise NotImplementedError

    def chosen(self, shapes: Shapes, size: tuple[int, int], classes: int) -> Head:
        """The kind of head that decodes: itself."""
        return self
