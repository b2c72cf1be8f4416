"""min(max(x, lo), hi) on its own; fused into a producer where there is one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf
from typing import Any, ClassVar

import numpy as np

from npuflow.ir.forms import FORMS
from npuflow.ir.op import OPS, Algebra, Imported, No, OnnxCall, OpContext
from npuflow.ops._table import Real, TableOp


@OPS.entry
@dataclass(frozen=True)
class Clip(TableOp):
    min: float = -inf
    max: float = inf
    onnx: ClassVar[str] = "Clip"
    algebra: ClassVar[Algebra] = "clamp"
    keeps_whole: ClassVar[bool] = True

    def forms(self) -> Mapping[str, Any]:
        return {"float": FORMS["float_clamp"]}

    def f(self, x: Real) -> Real:
        return np.minimum(np.maximum(x, self.min), self.max)

    def smooth(self, x: Real) -> Real:
        return x

    def bounds(self) -> tuple[float, float]:
        return self.min, self.max

    @classmethod
    def from_onnx(cls, call: OnnxCall) -> Imported | No:
        bounds = []
        for index, name, default in ((1, "min", -inf), (2, "max", inf)):
            if name in call.attributes:
                bounds.append(float(call.attributes[name]))
            elif index < len(call.types) and call.types[index] is not None:
                const = call.consts[index]
                if const is None:
                    return No(f"{name} is not a constant")
                bounds.append(float(np.asarray(const).reshape(-1)[0]))
            else:
                bounds.append(default)
        return Imported(cls(*bounds), (0,))

    def to_onnx(self, site: OpContext) -> OnnxCall:
        dtype = site.outputs[0].type.dtype
        lo, hi = (None if abs(v) == inf else np.array(v, dtype) for v in (self.min, self.max))
        return OnnxCall("Clip", inputs=(0, lo, hi))
