"""Unsqueeze is read as Reshape."""

from __future__ import annotations

from dataclasses import dataclass

from npuflow.ir.op import OPS, Imported, No, OnnxCall, Op
from npuflow.ops._reshaping import integers, static_input


@OPS.entry
@dataclass(frozen=True)
class Unsqueeze(Op):
    @classmethod
    def from_onnx(cls, call: OnnxCall) -> Imported | No:
        x, axes = static_input(call), integers(call, "axes")
        if isinstance(x, No):
            return x
        if axes is None or isinstance(axes, No):
            return axes or No("the axes are not stated")
        rank = len(x.shape) + len(axes)
        added, rest = {a % rank for a in axes}, iter(x.shape)
        return Imported(OPS["reshape"](tuple(1 if i in added else next(rest) for i in range(rank))), (0,))
