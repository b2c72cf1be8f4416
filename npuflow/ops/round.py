"""Nearest integer, halves to even."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from npuflow.ir.op import OPS
from npuflow.ops._table import Real, TableOp


@OPS.entry
@dataclass(frozen=True)
class Round(TableOp):
    onnx: ClassVar[str] = "Round"
    keeps_whole: ClassVar[bool] = True

    @property
    def lane(self) -> str:
        return "round"

    def f(self, x: Real) -> Real:
        return np.rint(x)
