"""Squeeze is read as Reshape."""

from __future__ import annotations

from dataclasses import dataclass

from npuflow.ir.op import OPS, Imported, No, OnnxCall, Op
from npuflow.ops._reshaping import integers, static_input


@OPS.entry
@dataclass(frozen=True)
class Squeeze(Op):
    @classmethod
    def from_onnx(cls, call: OnnxCall) -> Imported | No:
        x, axes = static_input(call), integers(call, "axes")
        if isinstance(x, No):
            return x
        if isinstance(axes, No):
            return axes
        if axes is None:
            axes = tuple(i for i, d in enumerate(x.shape) if d == 1)
        drop = {a % max(len(x.shape), 1) for a in axes}
        return Imported(OPS["reshape"](tuple(d for i, d in enumerate(x.shape) if i not in drop)), (0,))
