"""Bases of what the quantiser alone makes: boundaries between float values and codes, and
codes put into other types."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from npuflow.hw.target import Numerics
from npuflow.ir.op import Imported, No, OnnxCall, Op, OpContext, OpSample
from npuflow.ir.types import Array, QuantType, TensorType
from npuflow.ops._draw import draw


@dataclass(frozen=True)
class UnchangedOp(Op):
    """Made by the quantiser alone: the QuantTypes of its input and output say everything, in
    real numbers nothing changes."""

    @classmethod
    def from_onnx(cls, call: OnnxCall) -> Imported | No:
        return No("only the quantiser inserts it")

    def infer(self, *types: TensorType | None) -> tuple[TensorType, ...]:
        assert types[0] is not None
        return (types[0],)

    def reference(self, *inputs: Array | None) -> tuple[Array, ...]:
        assert inputs[0] is not None
        return (inputs[0],)

    @classmethod
    def samples(cls, rng: np.random.Generator) -> Iterable[OpSample]:
        yield OpSample(cls(), (draw(rng, 2, 3, 4),))


@dataclass(frozen=True)
class BoundaryOp(UnchangedOp):
    """Between float values and codes: it runs beside the NPU."""

    def quant_type(self, site: OpContext) -> QuantType:
        raise NotImplementedError

    @classmethod
    def from_onnx(cls, call: OnnxCall) -> Imported | No:
        return No("a quantisation step of the source model: it stays as it is")

    def to_onnx(self, site: OpContext) -> OnnxCall:
        q = self.quant_type(site)
        scale, zero = np.array(q.scale, np.float32), np.array(q.zero_point).astype(q.dtype)
        if q.axis is None:
            return OnnxCall(self.onnx, {}, inputs=(0, scale.reshape(()), zero.reshape(())))
        return OnnxCall(self.onnx, {"axis": q.axis}, inputs=(0, scale, zero))

    def prepare(self, site: OpContext, numerics: Numerics) -> dict[str, int | Array]:
        return {}
