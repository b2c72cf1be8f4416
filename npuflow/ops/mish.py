"""x * tanh(log(1 + exp(x)))."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from npuflow.ir.op import OPS
from npuflow.ops._table import Real, TableOp


@OPS.entry
@dataclass(frozen=True)
class Mish(TableOp):
    onnx: ClassVar[str] = "Mish"

    def f(self, x: Real) -> Real:
        return x * np.tanh(np.logaddexp(0.0, x))
