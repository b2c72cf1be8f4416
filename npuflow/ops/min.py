"""Smallest of any number of operands, with broadcasting."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from npuflow.ir.op import OPS
from npuflow.ops._elementwise import ExtremumOp


@OPS.entry
@dataclass(frozen=True)
class Min(ExtremumOp):
    onnx: ClassVar[str] = "Min"
    maximum: ClassVar[bool] = False

    @property
    def lane(self) -> str:
        return "min"
