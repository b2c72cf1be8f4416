"""Unsqueeze is read as Reshape."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from npuflow.ir.op import OPS, Imported, No, OnnxCall, Op


@OPS.entry
@dataclass(frozen=True)
class Unsqueeze(Op):
    @classmethod
    def from_onnx(cls, call: OnnxCall) -> Imported | No:
        x = call.types[0]
        if x is None or not x.is_static:
            return No("the input's shape is not static")
        axes = call.attributes.get("axes")
        if axes is None:
            if len(call.consts) < 2 or call.consts[1] is None:
                return No("the axes are not a constant")
            axes = np.asarray(call.consts[1]).reshape(-1).tolist()
        rank = len(x.shape) + len(axes)
        added = {int(a) % rank for a in axes}
        rest = iter(x.shape)
        shape = tuple(1 if i in added else next(rest) for i in range(rank))
        return Imported(OPS["reshape"](shape), (0,))
