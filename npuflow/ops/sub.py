"""a - b with broadcasting."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from npuflow.ir.op import OPS, Algebra
from npuflow.ops._elementwise import SumOp


@OPS.entry
@dataclass(frozen=True)
class Sub(SumOp):
    onnx: ClassVar[str] = "Sub"
    algebra: ClassVar[Algebra] = "difference"
    sign: ClassVar[int] = -1

    @property
    def lane(self) -> str:
        return "sub"
