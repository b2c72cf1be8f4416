"""Constant indices picked along an axis."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import prod
from typing import ClassVar

import numpy as np

from npuflow.ir.moves import Move, dense, merged
from npuflow.ir.op import OPS, Imported, No, OnnxCall, OpSample, Site
from npuflow.ir.types import Array, TensorType
from npuflow.ops._movement import MoveOp
from npuflow.ops._reshaping import static_input

MOST = 256                                # indices; each may become a copy of its own


@OPS.entry
@dataclass(frozen=True)
class Gather(MoveOp):
    indices: tuple[int, ...] = ()
    index_shape: tuple[int, ...] = ()
    axis: int = 0
    onnx: ClassVar[str] = "Gather"

    @classmethod
    def from_onnx(cls, call: OnnxCall) -> Imported | No:
        x, indices = static_input(call), call.consts[1]
        if isinstance(x, No):
            return x
        if indices is None:
            return No("the indices are not a constant")
        if indices.size > MOST or call.consts[0] is not None:
            return No(f"{indices.size} indices (at most {MOST}) into an activation")
        axis = int(call.attributes.get("axis", 0)) % len(x.shape)
        flat = tuple(int(i) % x.shape[axis] for i in indices.reshape(-1))
        return Imported(cls(flat, tuple(indices.shape), axis), (0,))

    def to_onnx(self, site: Site) -> OnnxCall:
        return OnnxCall(
            "Gather",
            {"axis": self.axis},
            inputs=(0, np.array(self.indices, np.int64).reshape(self.index_shape)),
        )

    def infer(self, *types: TensorType | None) -> tuple[TensorType, ...]:
        x = types[0]
        assert x is not None
        return (TensorType((*x.shape[: self.axis], *self.index_shape, *x.shape[self.axis + 1 :]), x.dtype),)

    def reference(self, *inputs: Array | None) -> tuple[Array, ...]:
        assert inputs[0] is not None
        return (np.take(inputs[0], np.array(self.indices, np.int64).reshape(self.index_shape), self.axis),)

    def moves(self, site: Site) -> tuple[Move, ...]:
        shape = site.shape(0)
        outer, inner = prod(shape[: self.axis]), prod(shape[self.axis + 1 :])
        src, dst = dense((outer, shape[self.axis], inner)), dense((outer, max(len(self.indices), 1), inner))
        return tuple(
            merged(Move(0, (outer, 1, inner), src, dst, i * inner, at * inner))
            for at, i in enumerate(self.indices)
        )

    @classmethod
    def samples(cls, rng: np.random.Generator) -> Iterable[OpSample]:
        yield OpSample(cls((2, 0, 0), (3,), 1), (rng.normal(size=(2, 4, 3)).astype(np.float32),))
        yield OpSample(cls((1,), (), 0), (rng.normal(size=(2, 4, 3)).astype(np.float32),))
