"""Tensors one behind the other along an axis, on one common scale."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from math import prod
from typing import ClassVar

import numpy as np

from npuflow.hw.target import Target
from npuflow.ir.lowering import Emitter, TileView
from npuflow.ir.moves import Move, dense, merged
from npuflow.ir.op import OPS, Algebra, Imported, No, OnnxCall, OpContext, OpSample, Yes, need
from npuflow.ir.space import Axis, DimMap, IterationDomain, Operand
from npuflow.ir.types import Array, TensorType
from npuflow.ops._movement import DataLayoutOp, emit_copy


@OPS.entry
@dataclass(frozen=True)
class Concat(DataLayoutOp):
    axis: int = 1
    onnx: ClassVar[str] = "Concat"
    algebra: ClassVar[Algebra] = "join"

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

    def accepts(self, site: OpContext, target: Target) -> Yes | No:
        moves = self.moves(site)
        if any(len(m.dims) > 6 for m in moves):
            return No("a copy over more than 6 dimensions")
        return need(site.outputs[0].type.dtype == "float32", f"dtype {site.outputs[0].type.dtype}")

    def moves(self, site: OpContext) -> tuple[Move, ...]:
        out = dense(site.out_shape)
        at, moves = 0, []
        for index in range(len(site.inputs)):
            shape = site.shape(index)
            if all(shape):
                moves.append(merged(Move(index, shape, dense(shape), out, 0, at * out[self.axis])))
            at += shape[self.axis]
        return tuple(moves)

    def local_space(self, site: OpContext) -> IterationDomain | None:
        """The joined axis is never split: a tile has its part of every input."""
        shapes = [site.shape(k) for k in range(len(site.inputs))]
        if any(c is not None for c in site.consts) or not all(map(prod, shapes)) or len(shapes[0]) > 6:
            return None
        out, names = site.out_shape, [f"d{d}" for d in range(len(site.out_shape))]
        axes = [Axis(n, size, multiple=size if d == self.axis else 1)
                for d, (n, size) in enumerate(zip(names, out, strict=True))]
        maps = tuple(DimMap(n) for n in names)
        theirs = tuple(DimMap() if d == self.axis else m for d, m in enumerate(maps))
        inputs = tuple(Operand(f"x{k}", shape, theirs) for k, shape in enumerate(shapes))
        return IterationDomain(tuple(axes), inputs, (Operand("y", out, maps),), ops=1, copies=True)

    def lower(self, site: OpContext, tile: TileView, em: Emitter) -> None:
        y, at = tile.outputs[0], 0
        for k, x in enumerate(tile.inputs):
            if x is not None:                     # others are made where they belong
                part = replace(y, address=y.address + at * y.strides[self.axis])
                emit_copy(em, part, x.address, x.extent, x.strides, y.strides)
            at += site.shape(k)[self.axis]

    @classmethod
    def samples(cls, rng: np.random.Generator) -> Iterable[OpSample]:
        for axis, shapes in (
            (1, ((1, 2, 4, 5), (1, 3, 4, 5))),
            (3, ((1, 2, 3, 4), (1, 2, 3, 1), (1, 2, 3, 5))),
        ):
            yield OpSample(cls(axis), tuple(rng.normal(size=s).astype(np.float32) for s in shapes))
