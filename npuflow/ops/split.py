"""A tensor cut into parts along an axis."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from npuflow.ir.moves import Move, dense, merged
from npuflow.ir.op import OPS, Imported, No, OnnxCall, OpContext, OpSample
from npuflow.ir.types import Array, TensorType
from npuflow.ops._movement import DataLayoutOp
from npuflow.ops._reshaping import static_input


@OPS.entry
@dataclass(frozen=True)
class Split(DataLayoutOp):
    sizes: tuple[int, ...] = ()
    axis: int = 0
    onnx: ClassVar[str] = "Split"

    @classmethod
    def from_onnx(cls, call: OnnxCall) -> Imported | No:
        x = static_input(call)
        if isinstance(x, No):
            return x
        axis = int(call.attributes.get("axis", 0)) % len(x.shape)
        sizes = call.attributes.get("split")
        if sizes is None and len(call.types) > 1 and call.types[1] is not None:
            if call.consts[1] is None:
                return No("the sizes are not a constant")
            sizes = np.asarray(call.consts[1]).reshape(-1).tolist()
        if sizes is None:
            parts = int(call.attributes.get("num_outputs", call.attributes.get("#outputs", 0)))
            if parts <= 0:
                return No("the number of parts is unknown")
            each = -(-x.shape[axis] // parts)
            sizes = [min(each, max(0, x.shape[axis] - i * each)) for i in range(parts)]
        if sum(sizes) != x.shape[axis]:
            return No(f"parts {list(sizes)} do not add up to {x.shape[axis]}")
        return Imported(cls(tuple(int(s) for s in sizes), axis), (0,))

    def to_onnx(self, site: OpContext) -> OnnxCall:
        return OnnxCall("Split", {"axis": self.axis}, inputs=(0, np.array(self.sizes, np.int64)))

    def infer(self, *types: TensorType | None) -> tuple[TensorType, ...]:
        x = types[0]
        assert x is not None
        return tuple(
            TensorType((*x.shape[: self.axis], s, *x.shape[self.axis + 1 :]), x.dtype) for s in self.sizes
        )

    def reference(self, *inputs: Array | None) -> tuple[Array, ...]:
        assert inputs[0] is not None
        return tuple(np.split(inputs[0], np.cumsum(self.sizes)[:-1].tolist(), self.axis))

    def moves(self, site: OpContext) -> tuple[Move, ...]:
        source = dense(site.shape(0))
        at, found = 0, []
        for index, (size, out) in enumerate(zip(self.sizes, site.outputs, strict=False)):
            if out.type.size:
                move = Move(0, out.type.shape, source, dense(out.type.shape), at * source[self.axis], 0)
                found.append(replace(merged(move), output=index))
            at += size
        return tuple(found)

    @classmethod
    def samples(cls, rng: np.random.Generator) -> Iterable[OpSample]:
        yield OpSample(cls((2, 1, 3), 1), (rng.normal(size=(1, 6, 3, 2)).astype(np.float32),))
