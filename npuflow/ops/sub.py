"""a - b with broadcasting."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from npuflow.ir.op import OPS
from npuflow.ops._elementwise import SumOp
from npuflow.ops._float_elementwise import Arithmetic


@OPS.entry
@dataclass(frozen=True)
class Sub(Arithmetic, SumOp):
    onnx: ClassVar[str] = "Sub"
    arithmetic: ClassVar[str] = "sub"
    sign: ClassVar[int] = -1
