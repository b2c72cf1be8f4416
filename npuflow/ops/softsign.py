"""x / (1 + |x|)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from npuflow.ir.op import OPS
from npuflow.ops._table import Real, TableOp


@OPS.entry
@dataclass(frozen=True)
class Softsign(TableOp):
    onnx: ClassVar[str] = "Softsign"
    bounded: ClassVar[tuple[float, float] | None] = (-1.0, 1.0)

    def f(self, x: Real) -> Real:
        return x / (1.0 + np.abs(x))
