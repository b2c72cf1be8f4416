"""Largest of any number of operands, with broadcasting."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from npuflow.ir.op import OPS
from npuflow.ops._elementwise import ExtremumOp


@OPS.entry
@dataclass(frozen=True)
class Max(ExtremumOp):
    onnx: ClassVar[str] = "Max"

    @property
    def lane(self) -> str:
        return "max"
