"""max(0, min(1, alpha * x + beta))."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from npuflow.ir.op import OPS
from npuflow.ops._table import Real, TableOp


@OPS.entry
@dataclass(frozen=True)
class HardSigmoid(TableOp):
    alpha: float = 0.2
    beta: float = 0.5
    onnx: ClassVar[str] = "HardSigmoid"
    bounded: ClassVar[tuple[float, float] | None] = (0.0, 1.0)
    answers: ClassVar[Literal["", "argmax", "threshold"]] = "threshold"

    def f(self, x: Real) -> Real:
        return np.clip(self.smooth(x), 0.0, 1.0)

    def smooth(self, x: Real) -> Real:
        return self.alpha * x + self.beta

    def bounds(self) -> tuple[float, float]:
        return 0.0, 1.0
