"""ONNX Swish (opset 24) is read as Silu."""

from __future__ import annotations

from dataclasses import dataclass

from npuflow.ir.op import OPS, Imported, No, OnnxCall, Op


@OPS.entry
@dataclass(frozen=True)
class Swish(Op):
    @classmethod
    def from_onnx(cls, call: OnnxCall) -> Imported | No:
        return Imported(OPS["silu"](alpha=float(call.attributes.get("alpha", 1.0))), (0,))
