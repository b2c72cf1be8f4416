"""-x."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from npuflow.ir.op import OPS
from npuflow.ops._table import Real, TableOp


@OPS.entry
@dataclass(frozen=True)
class Neg(TableOp):
    onnx: ClassVar[str] = "Neg"
    keeps_whole: ClassVar[bool] = True

    @property
    def lane(self) -> str:
        return "neg"

    def f(self, x: Real) -> Real:
        return -x
