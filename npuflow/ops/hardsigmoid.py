"""max(0, min(1, alpha * x + beta))."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from npuflow.ir.op import OPS, OpContext
from npuflow.ir.types import Span
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

    def whole_result(self, site: OpContext, spans: Sequence[Span | None], output: int) -> Span | None:
        whole = float(self.alpha).is_integer() and float(self.beta).is_integer()
        return self.whole_ends(spans[0]) if spans[0] is not None and whole else None

    def bounds(self) -> tuple[float, float]:
        return 0.0, 1.0
