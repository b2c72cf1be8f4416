"""1 / x."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from npuflow.ir.op import OPS
from npuflow.ops._table import Real, TableOp


@OPS.entry
@dataclass(frozen=True)
class Reciprocal(TableOp):
    onnx: ClassVar[str] = "Reciprocal"
    sensitive: ClassVar[bool] = True
    domain_lo: ClassVar[float] = 0.5
    domain_hi: ClassVar[float] = 4.0

    @property
    def lane(self) -> str:
        return "reciprocal"

    def f(self, x: Real) -> Real:
        return 1.0 / x
