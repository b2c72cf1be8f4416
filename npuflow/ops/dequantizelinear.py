"""The boundary from codes to float values: float32(scale * (q - zero point))."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from npuflow.hw.numerics import along, dequantize
from npuflow.hw.target import Numerics
from npuflow.ir.draw import draw
from npuflow.ir.graph import Site
from npuflow.ir.op import OPS, Imported, No, OnnxCall, Op, Sample
from npuflow.ir.types import Array, IntArray, TensorType


@OPS.entry
@dataclass(frozen=True)
class DequantizeLinear(Op):
    """Made by the quantiser alone: the QuantType of its input says everything. It runs beside the NPU."""

    onnx: ClassVar[str] = "DequantizeLinear"

    @classmethod
    def from_onnx(cls, call: OnnxCall) -> Imported | No:
        return No("a quantisation step of the source model: it stays as it is")

    def to_onnx(self, site: Site) -> OnnxCall:
        q = site.quant(0)
        scale, zero = np.array(q.scale, np.float32), np.array(q.zero_point).astype(q.dtype)
        if q.axis is None:
            return OnnxCall(self.onnx, {}, inputs=(0, scale.reshape(()), zero.reshape(())))
        return OnnxCall(self.onnx, {"axis": q.axis}, inputs=(0, scale, zero))

    def infer(self, *types: TensorType | None) -> tuple[TensorType, ...]:
        assert types[0] is not None
        return (types[0],)

    def reference(self, *inputs: Array | None) -> tuple[Array, ...]:
        """In real numbers the boundary changes nothing."""
        assert inputs[0] is not None
        return (inputs[0],)

    def prepare(self, site: Site, numerics: Numerics) -> dict[str, int | Array]:
        return {}

    def integer(self, site: Site, inputs: Sequence[IntArray | None], numerics: Numerics) -> tuple[Array, ...]:
        """Codes in, floats out: the one operator whose result is no integer."""
        x, q = inputs[0], site.quant(0)
        assert x is not None
        return (dequantize(x, along(q.scale, q.axis, x.ndim), along(q.zero_point, q.axis, x.ndim)),)

    @classmethod
    def samples(cls, rng: np.random.Generator) -> Iterable[Sample]:
        yield Sample(cls(), (draw(rng, 2, 3, 4),))
