"""x * max(0, min(1, x / 6 + 1/2)) (Howard et al. 2019)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from npuflow.ir.op import OPS
from npuflow.ops._table import Real, TableOp


@OPS.entry
@dataclass(frozen=True)
class HardSwish(TableOp):
    onnx: ClassVar[str] = "HardSwish"

    def f(self, x: Real) -> Real:
        return x * np.clip(x / 6.0 + 0.5, 0.0, 1.0)
