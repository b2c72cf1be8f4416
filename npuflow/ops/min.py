"""Smallest of any number of operands, with broadcasting."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from npuflow.ir.op import OPS
from npuflow.ops._elementwise import ExtremumOp
from npuflow.ops._float_elementwise import Arithmetic


@OPS.entry
@dataclass(frozen=True)
class Min(Arithmetic, ExtremumOp):
    onnx: ClassVar[str] = "Min"
    arithmetic: ClassVar[str] = "min"
    maximum: ClassVar[bool] = False
