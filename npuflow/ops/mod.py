"""What whole multiples of a constant leave of x, with the sign of x (fmod)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from npuflow.ir.op import OPS, Imported, No, OnnxCall, OpContext
from npuflow.ops._table import Real, TableOp


@OPS.entry
@dataclass(frozen=True)
class Mod(TableOp):
    divisor: float = 1.0
    onnx: ClassVar[str] = "Mod"

    def f(self, x: Real) -> Real:
        return np.fmod(x, self.divisor)

    @classmethod
    def from_onnx(cls, call: OnnxCall) -> Imported | No:
        divisor, x = call.consts[1], call.types[0]
        if divisor is None or divisor.size != 1:
            return No("the divisor is not one constant number")
        if x is None or x.dtype != "float32":
            return No("not float32")
        if not call.attributes.get("fmod", 0):
            return No("fmod 0, with the sign of the divisor")
        number = float(divisor.reshape(-1)[0])
        if not number or not np.isfinite(number):
            return No("a divisor that is 0 or infinite")
        if len(divisor.shape) > len(x.shape):
            return No("the divisor broadcasts the operand to a higher rank")
        return Imported(cls(number), (0,))

    def to_onnx(self, site: OpContext) -> OnnxCall:
        by = np.array(self.divisor, site.outputs[0].type.dtype)
        return OnnxCall("Mod", {"fmod": 1}, inputs=(0, by))
