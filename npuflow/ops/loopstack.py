"""Joins what the steps of a loop made, along the first dimension."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from npuflow.ir.loops import stacked
from npuflow.ir.op import OPS, LoopBorder
from npuflow.ir.types import TensorType
from npuflow.ops._loop import BorderOp


@OPS.entry
@dataclass(frozen=True)
class LoopStack(BorderOp):
    border_of_loop: ClassVar[LoopBorder] = "stack"

    def infer(self, *types: TensorType | None) -> tuple[TensorType, ...]:
        assert types[0] is not None
        return (stacked(types[0], self.steps, self.lacking),)
