"""a + b with broadcasting."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from npuflow.ir.elementwise import SumOp
from npuflow.ir.op import OPS


@OPS.entry
@dataclass(frozen=True)
class Add(SumOp):
    onnx: ClassVar[str] = "Add"
