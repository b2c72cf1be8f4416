"""-1, 0 or 1."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from npuflow.ir.op import OPS
from npuflow.ops._table import Real, TableOp


@OPS.entry
@dataclass(frozen=True)
class Sign(TableOp):
    onnx: ClassVar[str] = "Sign"

    def f(self, x: Real) -> Real:
        return np.sign(x)
