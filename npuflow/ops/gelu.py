"""x * P(X <= x) for a standard normal X (Hendrycks and Gimpel 2016), exact or by the tanh formula."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from npuflow.ir.op import OPS
from npuflow.ops._table import Real, TableOp


@OPS.entry
@dataclass(frozen=True)
class Gelu(TableOp):
    approximate: str = "none"
    onnx: ClassVar[str] = "Gelu"

    def f(self, x: Real) -> Real:
        if self.approximate == "tanh":
            return 0.5 * x * (1.0 + np.tanh(np.sqrt(2.0 / np.pi) * (x + 0.044715 * x**3)))
        from scipy.special import erf

        return 0.5 * x * (1.0 + np.asarray(erf(x / np.sqrt(2.0))))
