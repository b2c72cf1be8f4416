"""x to a constant power."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from npuflow.ir.op import OPS, Algebra, Imported, No, OnnxCall, OpContext
from npuflow.ops._table import Real, TableOp


@OPS.entry
@dataclass(frozen=True)
class Pow(TableOp):
    exponent: float = 2.0
    onnx: ClassVar[str] = "Pow"
    algebra: ClassVar[Algebra] = "power"
    sensitive: ClassVar[bool] = True

    @property
    def lane(self) -> str:
        return "square" if self.exponent == 2.0 else ""

    def f(self, x: Real) -> Real:
        return np.power(x, self.exponent)

    @classmethod
    def from_onnx(cls, call: OnnxCall) -> Imported | No:
        exponent = call.consts[1]
        if exponent is None or exponent.size != 1:
            return No("the exponent is not one constant number")
        x = call.types[0]
        if x is None or x.dtype != "float32":
            return No("not float32")
        if len(exponent.shape) > len(x.shape):
            return No("the exponent broadcasts the base to a higher rank")
        return Imported(cls(float(exponent.reshape(-1)[0])), (0,))

    def to_onnx(self, site: OpContext) -> OnnxCall:
        return OnnxCall("Pow", inputs=(0, np.array(self.exponent, site.outputs[0].type.dtype)))
