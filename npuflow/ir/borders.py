"""What an operator at the border of a loop says: see `ir/loops.py`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, cast

from npuflow.ir.op import LoopBorder, Node, Op

ENTERS = ("carry", "slice", "capture")
LEAVES = ("last", "stack")
DOMAIN = "npuflow.loop"                   # of the borders in ONNX


@dataclass(frozen=True)
class LoopBorderOp(Op):
    """What the operators at a loop's border say. `loop`: its name; `index`: of a carried value; `reverse`:
    the first step has the last part; `goes_on`: the value is 1 where a loop whose end depends on data has not
    ended after all of its steps; `whole`: of a value that enters, the least and the most where all that steps
    carry are whole numbers, as truth values are; `chunk`: of a loop over chunks of a free length, the steps
    of that length which one of its own has, 0 of all others; `axis`, `halo`: along which dimension a chunk is
    cut out, and how many parts before and behind it come with it, where there are any; `lacking`: how many
    parts fewer the last chunk has; `beyond`: how many steps behind the last one of a run others read;
    `in_row`: parts along `axis` lie one behind the other, as those along the first dimension do."""

    loop: str = ""
    steps: int = 1
    index: int = 0
    reverse: bool = False
    goes_on: bool = False
    whole: tuple[int, ...] = ()
    chunk: int = field(default=0, kw_only=True, repr=False)
    axis: int = field(default=0, kw_only=True, repr=False)
    halo: tuple[int, int] = field(default=(0, 0), kw_only=True, repr=False)
    lacking: int = field(default=0, kw_only=True, repr=False)
    beyond: int = field(default=0, kw_only=True, repr=False)
    in_row: bool = field(default=False, kw_only=True, repr=False)
    domain: ClassVar[str] = DOMAIN
    border_of_loop: ClassVar[LoopBorder]


def border(node: Node) -> tuple[LoopBorder, LoopBorderOp]:
    """Which border of a loop a node is, if any, and what it says."""
    return node.op.border_of_loop, cast(LoopBorderOp, node.op)


def is_cut(node: Node) -> bool:
    """Whether the part of a tensor that enters a step lies there in pieces."""
    side, own = border(node)
    return side == "slice" and own.axis > 0 and not own.in_row


def carries(node: Node) -> tuple[str, int]:
    """Of a border where a value is carried: its loop, and which of the loop's values."""
    own = border(node)[1]
    return own.loop, own.index
