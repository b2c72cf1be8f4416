"""Broadcast to a larger shape by repetition."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from npuflow.ir.moves import Move, dense, merged
from npuflow.ir.op import OPS, Imported, No, OnnxCall, OpContext, OpSample
from npuflow.ir.types import Array, TensorType
from npuflow.ops._movement import DataLayoutOp


@OPS.entry
@dataclass(frozen=True)
class Expand(DataLayoutOp):
    shape: tuple[int, ...] = ()           # of the result
    onnx: ClassVar[str] = "Expand"

    @classmethod
    def from_onnx(cls, call: OnnxCall) -> Imported | No:
        x, wanted = call.types[0], call.consts[1]
        if wanted is None or x is None or not x.is_static:
            return No("the shape is not a constant or the input's is not static")
        shape = np.broadcast_shapes(x.shape, tuple(int(d) for d in np.asarray(wanted).reshape(-1)))
        return Imported(cls(tuple(int(d) for d in shape)), (0,))

    def to_onnx(self, site: OpContext) -> OnnxCall:
        return OnnxCall("Expand", inputs=(0, np.array(self.shape, np.int64)))

    def with_results(self, types: Sequence[TensorType]) -> Expand:
        return replace(self, shape=types[0].shape)

    def infer(self, *types: TensorType | None) -> tuple[TensorType, ...]:
        assert types[0] is not None
        return (TensorType(self.shape, types[0].dtype),)

    def reference(self, *inputs: Array | None) -> tuple[Array, ...]:
        assert inputs[0] is not None
        return (np.ascontiguousarray(np.broadcast_to(inputs[0], self.shape)),)

    def moves(self, site: OpContext) -> tuple[Move, ...]:
        shape = (1,) * (len(self.shape) - len(site.shape(0))) + site.shape(0)
        steps = dense(shape)
        strides = tuple(0 if s == 1 else step for s, step in zip(shape, steps, strict=True))
        return (merged(Move(0, self.shape, strides, dense(self.shape))),)

    @classmethod
    def samples(cls, rng: np.random.Generator) -> Iterable[OpSample]:
        yield OpSample(cls((2, 3, 4)), (rng.normal(size=(3, 1)).astype(np.float32),))
