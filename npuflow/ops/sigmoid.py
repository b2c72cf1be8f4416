"""1 / (1 + exp(-x))."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from npuflow.ir.op import OPS
from npuflow.ops._table import Real, TableOp


@OPS.entry
@dataclass(frozen=True)
class Sigmoid(TableOp):
    onnx: ClassVar[str] = "Sigmoid"
    bounded: ClassVar[tuple[float, float] | None] = (0.0, 1.0)
    answers: ClassVar[Literal["", "argmax", "threshold"]] = "threshold"
    domain_lo: ClassVar[float] = -8.0
    domain_hi: ClassVar[float] = 8.0

    def f(self, x: Real) -> Real:
        return 1.0 / (1.0 + np.exp(-x))
