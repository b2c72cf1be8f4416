"""max(x, 0)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from npuflow.ir.forms import FORMS
from npuflow.ir.op import OPS, Algebra
from npuflow.ops._table import Real, TableOp


@OPS.entry
@dataclass(frozen=True)
class Relu(TableOp):
    onnx: ClassVar[str] = "Relu"
    algebra: ClassVar[Algebra] = "clamp"
    keeps_whole: ClassVar[bool] = True

    def forms(self) -> Mapping[str, Any]:
        return {"float": FORMS["float_clamp"]}

    def f(self, x: Real) -> Real:
        return np.maximum(x, 0.0)

    def smooth(self, x: Real) -> Real:
        return x

    def bounds(self) -> tuple[float, float]:
        return 0.0, np.inf
