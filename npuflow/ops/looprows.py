"""Puts what some steps of a loop made in their places of the tensor that all steps make.

It stands in plans of loops alone, whose other steps put theirs.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from npuflow.ir.loops import stacked
from npuflow.ir.moves import Move, dense, merged
from npuflow.ir.op import OPS, OpContext
from npuflow.ir.types import Array, TensorType
from npuflow.ops._movement import DataLayoutOp


@OPS.entry
@dataclass(frozen=True)
class LoopRows(DataLayoutOp):
    """`parts`: by operand, which of so many `steps` parts of the result it is; `lacking`: how many rows fewer
    the last of these has."""

    parts: tuple[int, ...] = ()
    steps: int = 1
    lacking: int = field(default=0, kw_only=True, repr=False)

    def infer(self, *types: TensorType | None) -> tuple[TensorType, ...]:
        assert types[0] is not None
        return (stacked(types[0], self.steps, self.lacking),)

    def reference(self, *inputs: Array | None) -> tuple[Array, ...]:
        raise NotImplementedError("the other steps are not there")

    def moves(self, site: OpContext) -> tuple[Move, ...]:
        found, rows = [], site.shape(0)
        size = dense((1, *rows))[0] if rows else 1
        for index, place in enumerate(self.parts):
            shape = site.shape(index)
            one = Move(index, shape, dense(shape), dense(shape), 0, place * size)
            found.append(merged(one))
        return tuple(found)
