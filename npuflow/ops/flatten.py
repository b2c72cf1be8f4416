"""Flatten (to two dimensions) is read as Reshape."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from npuflow.ir.op import OPS, Imported, No, OnnxCall, Op
from npuflow.ops._reshaping import static_input


@OPS.entry
@dataclass(frozen=True)
class Flatten(Op):
    @classmethod
    def from_onnx(cls, call: OnnxCall) -> Imported | No:
        x = static_input(call)
        if isinstance(x, No):
            return x
        axis = int(call.attributes.get("axis", 1))
        axis = axis + len(x.shape) if axis < 0 else axis
        shape: tuple[int, ...] = (prod(x.shape[:axis]), prod(x.shape[axis:]))
        return Imported(OPS["reshape"](shape), (0,))
