"""a + b with broadcasting."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from npuflow.ir.op import OPS, Algebra
from npuflow.ops._elementwise import SumOp


@OPS.entry
@dataclass(frozen=True)
class Add(SumOp):
    onnx: ClassVar[str] = "Add"
    algebra: ClassVar[Algebra] = "sum"

    @property
    def lane(self) -> str:
        return "add"
