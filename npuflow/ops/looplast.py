"""Takes the carried value for the next step; its result is that of the last step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from npuflow.ir.op import OPS, LoopBorder
from npuflow.ops._loop import BorderOp


@OPS.entry
@dataclass(frozen=True)
class LoopLast(BorderOp):
    border_of_loop: ClassVar[LoopBorder] = "last"
