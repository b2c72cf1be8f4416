"""What an operator at the border of a loop says: see `ir/loops.py`."""

from __future__ import annotations

from typing import Protocol, cast

from npuflow.ir.op import LoopBorder, Node

ENTERS = ("carry", "slice", "capture")
LEAVES = ("last", "stack")
DOMAIN = "npuflow.loop"                   # of the borders in ONNX


class SaysBorder(Protocol):
    """What the operators at a loop's border say: see `ops/_loop.py`."""

    @property
    def loop(self) -> str: ...
    @property
    def steps(self) -> int: ...
    @property
    def index(self) -> int: ...
    @property
    def reverse(self) -> bool: ...


def border(node: Node) -> tuple[LoopBorder, SaysBorder]:
    """Which border of a loop a node is, if any, and what it says."""
    return node.op.border_of_loop, cast(SaysBorder, node.op)


def carries(node: Node) -> tuple[str, int]:
    """Of a border where a value is carried: its loop, and which of the loop's values."""
    own = border(node)[1]
    return own.loop, own.index
