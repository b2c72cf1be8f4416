"""a + b with broadcasting."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from npuflow.ir.op import OPS
from npuflow.ops._elementwise import SumOp


@OPS.entry
@dataclass(frozen=True)
class Add(SumOp):
    onnx: ClassVar[str] = "Add"

    @property
    def lane(self) -> str:
        return "add"
