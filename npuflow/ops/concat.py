"""Tensors one behind the other along an axis, on one common scale."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from npuflow.hw.target import Target
from npuflow.ir.moves import Move, dense, merged
from npuflow.ir.op import OPS, Imported, No, OnnxCall, Sample, Site, Yes, need
from npuflow.ir.types import Array, TensorType
from npuflow.ops._movement import MoveOp


@OPS.entry
@dataclass(frozen=True)
class Concat(MoveOp):
    axis: int = 1
    onnx: ClassVar[str] = "Concat"

    @classmethod
    def from_onnx(cls, call: OnnxCall) -> Imported | No:
        first = call.types[0]
        if first is None:
            return No("the input's rank is unknown")
        return Imported(
            cls(int(call.attributes.get("axis", 1)) % len(first.shape)), tuple(range(len(call.types)))
        )

    def infer(self, *types: TensorType | None) -> tuple[TensorType, ...]:
        known = [t for t in types if t is not None]
        total = sum(t.shape[self.axis] for t in known)
        shape = known[0].shape
        return (TensorType((*shape[: self.axis], total, *shape[self.axis + 1 :]), known[0].dtype),)

    def reference(self, *inputs: Array | None) -> tuple[Array, ...]:
        return (np.concatenate([x for x in inputs if x is not None], self.axis),)

    def accepts(self, site: Site, target: Target) -> Yes | No:
        moves = self.moves(site)
        if any(len(m.dims) > 6 for m in moves):
            return No("a copy over more than 6 dimensions")
        return need(site.outputs[0].type.dtype == "float32", f"dtype {site.outputs[0].type.dtype}")

    def moves(self, site: Site) -> tuple[Move, ...]:
        out = dense(site.out_shape)
        at, moves = 0, []
        for index in range(len(site.inputs)):
            shape = site.shape(index)
            if all(shape):
                moves.append(merged(Move(index, shape, dense(shape), out, 0, at * out[self.axis])))
            at += shape[self.axis]
        return tuple(moves)

    @classmethod
    def samples(cls, rng: np.random.Generator) -> Iterable[Sample]:
        for axis, shapes in (
            (1, ((1, 2, 4, 5), (1, 3, 4, 5))),
            (3, ((1, 2, 3, 4), (1, 2, 3, 1), (1, 2, 3, 5))),
        ):
            yield Sample(cls(axis), tuple(rng.normal(size=s).astype(np.float32) for s in shapes))
