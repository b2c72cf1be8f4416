"""Constant indices picked along an axis."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import prod
from typing import ClassVar

import numpy as np

from npuflow.ir.lowering import Emitter, TileView
from npuflow.ir.moves import Move, merged
from npuflow.ir.op import OPS, Imported, No, OnnxCall, OpContext, OpSample
from npuflow.ir.space import DimMap, IterationDomain
from npuflow.ir.types import Array, TensorType
from npuflow.ops._movement import DataLayoutOp, copy_space, emit_copy
from npuflow.ops._reshaping import static_input

MOST = 256                                # indices; each may become a copy of its own


@dataclass(frozen=True)
class IndexRun:
    """Consecutive indices as rows of equal steps: `start + row * across + column * step`."""

    at: int                               # the first of them
    start: int
    rows: int
    across: int
    columns: int
    step: int


def runs(indices: Sequence[int]) -> list[IndexRun]:
    """The indices in order, as few runs as a greedy search finds."""
    found, at = [], 0
    while at < len(indices):
        step = indices[at + 1] - indices[at] if at + 1 < len(indices) else 0
        columns = 1
        while at + columns < len(indices) and indices[at + columns] == indices[at] + columns * step:
            columns += 1
        row = indices[at : at + columns]
        across = indices[at + columns] - indices[at] if at + columns < len(indices) else 0
        rows = 1
        while list(indices[at + rows * columns : at + (rows + 1) * columns]) == [
            i + rows * across for i in row
        ]:
            rows += 1
        found.append(IndexRun(at, indices[at], rows, across, columns, step))
        at += rows * columns
    return found


@OPS.entry
@dataclass(frozen=True)
class Gather(DataLayoutOp):
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

    def to_onnx(self, site: OpContext) -> OnnxCall:
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

    def moves(self, site: OpContext) -> tuple[Move, ...]:
        shape = site.shape(0)
        outer, inner = prod(shape[: self.axis]), prod(shape[self.axis + 1 :])
        src, dst = shape[self.axis] * inner, max(len(self.indices), 1) * inner
        return tuple(
            merged(Move(
                0,
                (outer, r.rows, r.columns, inner),
                (src, r.across * inner, r.step * inner, 1),
                (dst, r.columns * inner, inner, 1),
                r.start * inner,
                r.at * inner,
            ))
            for r in runs(self.indices)
        )

    def local_space(self, site: OpContext) -> IterationDomain | None:
        """Where one command picks all: the axis is never split, a tile has all of it."""
        found, rank = runs(self.indices), len(site.shape(0))
        if len(found) != 1 or len(self.index_shape) != 1 or rank > 5:
            return None
        if min(found[0].across, found[0].step) < 0:
            return None
        maps = [DimMap() if d == self.axis else DimMap(f"d{d}") for d in range(rank)]
        return copy_space(site, maps, {self.axis: site.out_shape[self.axis]})

    def lower(self, site: OpContext, tile: TileView, em: Emitter) -> None:
        x, y, axis = tile.input(0), tile.outputs[0], self.axis
        (run,) = runs(self.indices)
        across, along = x.strides[axis], y.strides[axis]
        emit_copy(
            em,
            y,
            x.address + run.start * across,
            (*y.extent[:axis], run.rows, run.columns, *y.extent[axis + 1 :]),
            (*x.strides[:axis], run.across * across, run.step * across, *x.strides[axis + 1 :]),
            (*y.strides[:axis], run.columns * along, along, *y.strides[axis + 1 :]),
        )

    @classmethod
    def samples(cls, rng: np.random.Generator) -> Iterable[OpSample]:
        yield OpSample(cls((2, 0, 0), (3,), 1), (rng.normal(size=(2, 4, 3)).astype(np.float32),))
        yield OpSample(cls((1,), (), 0), (rng.normal(size=(2, 4, 3)).astype(np.float32),))
        shuffle = tuple(np.arange(6).reshape(2, 3).T.reshape(-1).tolist())
        yield OpSample(cls(shuffle, (6,), 1), (rng.normal(size=(2, 6, 3, 2)).astype(np.float32),))
