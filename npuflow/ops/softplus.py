"""log(1 + exp(x))."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from npuflow.ir.op import OPS
from npuflow.ops._table import Real, TableOp


@OPS.entry
@dataclass(frozen=True)
class Softplus(TableOp):
    onnx: ClassVar[str] = "Softplus"

    def f(self, x: Real) -> Real:
        return np.logaddexp(0.0, x)
