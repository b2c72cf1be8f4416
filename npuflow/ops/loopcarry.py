"""Gives a loop's carried value at the step; its operand is the value at the first step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from npuflow.ir.op import OPS, LoopBorder, OpContext
from npuflow.ir.types import Span
from npuflow.ops._loop import BorderOp


@OPS.entry
@dataclass(frozen=True)
class LoopCarry(BorderOp):
    """`whole`: the least and the most that steps carry where all of it is whole numbers, as truth values are;
    else empty."""

    whole: tuple[int, ...] = ()
    border_of_loop: ClassVar[LoopBorder] = "carry"

    def whole_result(self, site: OpContext, spans: Sequence[Span | None], output: int) -> Span | None:
        """What later steps have is not known from the first one: it is stated, or not whole."""
        return (self.whole[0], self.whole[1]) if self.whole else None
