"""Largest of any number of operands, with broadcasting."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from npuflow.ir.op import OPS
from npuflow.ops._elementwise import ExtremumOp
from npuflow.ops._float_elementwise import Arithmetic


@OPS.entry
@dataclass(frozen=True)
class Max(Arithmetic, ExtremumOp):
    onnx: ClassVar[str] = "Max"
    arithmetic: ClassVar[str] = "max"
