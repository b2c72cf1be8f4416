"""x / (1 + exp(-alpha * x)): SiLU at alpha 1 (Elfwing et al. 2017), Swish in general."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from npuflow.ir.op import OPS
from npuflow.ops._table import Real, TableOp


@OPS.entry
@dataclass(frozen=True)
class Silu(TableOp):
    """ONNX has it spelled out (Sigmoid, Mul) up to opset 23; onnxruntime's own name for it is QuickGelu."""

    alpha: float = 1.0
    onnx: ClassVar[str] = "QuickGelu"
    domain: ClassVar[str] = "com.microsoft"
    domain_lo: ClassVar[float] = -8.0
    domain_hi: ClassVar[float] = 8.0

    def f(self, x: Real) -> Real:
        return x / (1.0 + np.exp(-self.alpha * x))
