"""Upsample (opset 7 to 9) is read as Resize."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from npuflow.ir.op import OPS, Imported, No, OnnxCall, Op


@OPS.entry
@dataclass(frozen=True)
class Upsample(Op):
    @classmethod
    def from_onnx(cls, call: OnnxCall) -> Imported | No:
        x, scales = call.types[0], call.attributes.get("scales")
        if scales is None and len(call.consts) > 1 and call.consts[1] is not None:
            scales = np.asarray(call.consts[1]).reshape(-1).tolist()
        if x is None or not x.is_static or scales is None:
            return No("the scales are not a constant or the input's shape is not static")
        mode = call.attributes.get("mode", "nearest")
        if mode not in ("nearest", "linear", "bilinear"):
            return No(f"mode {mode}")
        kept = tuple(float(np.float32(s)) for s in scales)
        sizes = tuple(
            int(np.floor(np.float32(d) * np.float32(s))) for d, s in zip(x.shape, kept, strict=True)
        )
        method = "nearest" if mode == "nearest" else "linear"
        return Imported(OPS["resize"](sizes, kept, method, "asymmetric", "floor"), (0,))
