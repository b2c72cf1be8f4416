"""Gives a loop's carried value at the step; its operand is the value at the first step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from npuflow.ir.op import OPS, LoopBorder, OpContext
from npuflow.ir.types import Span, WholeNumbers
from npuflow.ops._loop import BorderOp


@OPS.entry
@dataclass(frozen=True)
class LoopCarry(BorderOp):
    border_of_loop: ClassVar[LoopBorder] = "carry"

    def whole_result(self, site: OpContext, spans: Sequence[Span | None], output: int) -> Span | None:
        """What later steps have is not known from the first one: it is stated, or not whole."""
        return (self.whole[0], self.whole[1]) if self.whole else None

    def whole_numbers(self, site: OpContext) -> Mapping[str, WholeNumbers]:
        """More than truth values are their own codes, whoever reads them: a rounded one would be another."""
        if self.whole in ((), (0, 1)):
            return {}
        ends = (site.inputs[0], site.outputs[0])
        below = max(self.whole[1] + 1, -self.whole[0])
        return {value.id: WholeNumbers(below) for value in ends if value is not None}
