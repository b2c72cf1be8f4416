"""Gives each step of a loop its part of a tensor, along the first dimension."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from npuflow.ir.op import OPS, LoopBorder
from npuflow.ir.types import TensorType
from npuflow.ops._loop import BorderOp, part_of


@OPS.entry
@dataclass(frozen=True)
class LoopSlice(BorderOp):
    border_of_loop: ClassVar[LoopBorder] = "slice"

    def infer(self, *types: TensorType | None) -> tuple[TensorType, ...]:
        return (part_of(types[0], self.steps, self.axis, (self.lacking, sum(self.halo))),)
