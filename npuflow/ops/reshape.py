"""The same elements in the same order under another shape; also Flatten, Squeeze and
Unsqueeze once shapes are static."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import ClassVar

import numpy as np

from npuflow.ir.lowering import Emitter, TileView
from npuflow.ir.moves import Move
from npuflow.ir.op import OPS, Algebra, Imported, No, OnnxCall, OpContext, OpSample
from npuflow.ir.space import DimMap, IterationDomain
from npuflow.ir.types import Array, TensorType
from npuflow.ops._movement import MAX_DIMS, DataLayoutOp, copy_space, emit_copy
from npuflow.ops._reshaping import integers, matched, static_input


@OPS.entry
@dataclass(frozen=True)
class Reshape(DataLayoutOp):
    shape: tuple[int, ...] = ()           # fully resolved
    onnx: ClassVar[str] = "Reshape"
    algebra: ClassVar[Algebra] = "view"

    @classmethod
    def from_onnx(cls, call: OnnxCall) -> Imported | No:
        x, wanted = static_input(call), integers(call, "shape")
        if wanted is None or isinstance(wanted, No):
            return wanted or No("the shape is not stated")
        if isinstance(x, No):
            return x
        keep_zero = bool(call.attributes.get("allowzero", 0))
        dims = [x.shape[i] if d == 0 and not keep_zero else int(d) for i, d in enumerate(wanted)]
        if -1 in dims:
            rest = int(np.prod([d for d in dims if d != -1], dtype=np.int64))
            if rest == 0 or x.size % rest:
                return No(f"{x.shape} does not reshape to {tuple(wanted)}")
            dims[dims.index(-1)] = x.size // rest
        if int(np.prod(dims, dtype=np.int64)) != x.size:
            return No(f"{x.shape} does not reshape to {tuple(wanted)}")
        return Imported(cls(tuple(dims)), (0,))

    def to_onnx(self, site: OpContext) -> OnnxCall:
        return OnnxCall("Reshape", {"allowzero": 1}, inputs=(0, np.array(self.shape, np.int64)))

    def with_results(self, types: Sequence[TensorType]) -> Reshape:
        return replace(self, shape=types[0].shape)

    def infer(self, *types: TensorType | None) -> tuple[TensorType, ...]:
        assert types[0] is not None
        return (TensorType(self.shape, types[0].dtype),)

    def reference(self, *inputs: Array | None) -> tuple[Array, ...]:
        assert inputs[0] is not None
        return (inputs[0].reshape(self.shape),)

    def moves(self, site: OpContext) -> tuple[Move, ...]:
        return ()

    def local_space(self, site: OpContext) -> IterationDomain | None:
        """Dimensions of the output that lie in the same dimension of the input, behind the first of them, are
        never split; one that several dimensions of the input make is split where the first of these is."""
        x, y = site.shape(0), site.out_shape
        blocks = matched(x, y)
        if sum(b.rank for b in blocks) > MAX_DIMS:
            return None
        maps, multiples = [DimMap()] * len(x), dict[int, int]()
        for block in blocks:
            first, *rest = block.y
            wide, narrow = (prod(shape[d] for d in dims[1:]) for shape, dims in ((x, block.x), (y, block.y)))
            if len(block.x) == 1:
                maps[block.x[0]] = DimMap(f"d{first}", narrow, 1, 0, narrow - 1)
            elif not rest:
                maps[block.x[0]], multiples[first] = DimMap(f"d{first}", 1, wide), wide
            else:
                multiples[first] = y[first]
            multiples |= {d: y[d] for d in rest}
        return copy_space(site, maps, multiples)

    def lower(self, site: OpContext, tile: TileView, em: Emitter) -> None:
        x, y = tile.input(0), tile.outputs[0]
        runs = [run for b in matched(site.shape(0), site.out_shape) for run in b.runs(x, y)]
        dims, steps, to = zip(*runs, strict=True) if runs else ((1,), (0,), (0,))
        emit_copy(em, y, x.address, dims, steps, to)

    @classmethod
    def samples(cls, rng: np.random.Generator) -> Iterable[OpSample]:
        yield OpSample(cls((4, 15)), (rng.normal(size=(1, 4, 3, 5)).astype(np.float32),))
        yield OpSample(cls((4, 3, 2, 5)), (rng.normal(size=(1, 4, 30)).astype(np.float32),))
        yield OpSample(cls((6, 10)), (rng.normal(size=(4, 15)).astype(np.float32),))
        yield OpSample(cls((1, 1, 6, 1)), (rng.normal(size=(6,)).astype(np.float32),))
