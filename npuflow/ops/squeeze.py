"""Squeeze is read as Reshape."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from npuflow.ir.op import OPS, Imported, No, OnnxCall, Op


@OPS.entry
@dataclass(frozen=True)
class Squeeze(Op):
    @classmethod
    def from_onnx(cls, call: OnnxCall) -> Imported | No:
        x = call.types[0]
        if x is None or not x.is_static:
            return No("the input's shape is not static")
        axes = call.attributes.get("axes")
        if axes is None and len(call.types) > 1 and call.types[1] is not None:
            if call.consts[1] is None:
                return No("the axes are not a constant")
            axes = np.asarray(call.consts[1]).reshape(-1).tolist()
        if axes is None:
            axes = [i for i, d in enumerate(x.shape) if d == 1]
        drop = {int(a) % max(len(x.shape), 1) for a in axes}
        shape = tuple(d for i, d in enumerate(x.shape) if i not in drop)
        return Imported(OPS["reshape"](shape), (0,))
