"""Natural logarithm."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from npuflow.ir.op import OPS
from npuflow.ops._table import Real, TableOp


@OPS.entry
@dataclass(frozen=True)
class Log(TableOp):
    onnx: ClassVar[str] = "Log"
    sensitive: ClassVar[bool] = True
    domain_lo: ClassVar[float] = 0.5
    domain_hi: ClassVar[float] = 8.0

    def f(self, x: Real) -> Real:
        return np.log(x)
