"""A strided part of a tensor."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from npuflow.ir.lowering import Emitter, TileView
from npuflow.ir.moves import Move
from npuflow.ir.op import OPS, Imported, No, OnnxCall, OpContext, OpSample
from npuflow.ir.space import DimMap, IterationDomain
from npuflow.ir.types import Array, TensorType
from npuflow.ops._movement import DataLayoutOp, copy_space, emit_copy, pieces_to_moves
from npuflow.ops._reshaping import static_input


@OPS.entry
@dataclass(frozen=True)
class Slice(DataLayoutOp):
    starts: tuple[int, ...] = ()
    ends: tuple[int, ...] = ()
    axes: tuple[int, ...] = ()
    steps: tuple[int, ...] = ()
    onnx: ClassVar[str] = "Slice"

    @classmethod
    def from_onnx(cls, call: OnnxCall) -> Imported | No:
        x = static_input(call)
        if isinstance(x, No):
            return x
        found: list[list[int] | None] = []
        for index, name in enumerate(("starts", "ends", "axes", "steps"), 1):
            given: Any = call.attributes.get(name)
            if given is None and index < len(call.types) and call.types[index] is not None:
                if call.consts[index] is None:
                    return No(f"{name} is not a constant")
                given = np.asarray(call.consts[index]).reshape(-1).tolist()
            found.append(None if given is None else [int(v) for v in given])
        starts, ends, axes, steps = found
        if starts is None or ends is None:
            return No("starts or ends is missing")
        axes = list(range(len(starts))) if axes is None else [a % len(x.shape) for a in axes]
        return Imported(cls(tuple(starts), tuple(ends), tuple(axes), tuple(steps or [1] * len(starts))), (0,))

    def to_onnx(self, site: OpContext) -> OnnxCall:
        rows: Sequence[tuple[int, ...]] = (self.starts, self.ends, self.axes, self.steps)
        return OnnxCall("Slice", inputs=(0, *(np.array(r, np.int64) for r in rows)))

    def _ranges(self, shape: tuple[int, ...]) -> list[range]:
        ranges = [range(d) for d in shape]
        for start, end, axis, step in zip(self.starts, self.ends, self.axes, self.steps, strict=True):
            size = shape[axis]
            if step < 0:                  # an end before the first element has no index of its own
                stop = None if end < -size else end
            else:
                stop = max(end, -size)
            ranges[axis] = range(size)[slice(max(start, -size), stop, step)] if size else range(0)
        return ranges

    def infer(self, *types: TensorType | None) -> tuple[TensorType, ...]:
        assert types[0] is not None
        return (TensorType(tuple(len(r) for r in self._ranges(types[0].shape)), types[0].dtype),)

    def reference(self, *inputs: Array | None) -> tuple[Array, ...]:
        x = inputs[0]
        assert x is not None
        for axis, r in enumerate(self._ranges(x.shape)):
            x = np.take(x, np.arange(r.start, r.stop, r.step), axis)
        return (np.ascontiguousarray(x),)

    def moves(self, site: OpContext) -> tuple[Move, ...]:
        shape = site.shape(0)
        pieces = [[(len(r), r.start, r.step, 0)] for r in self._ranges(shape)]
        return tuple(pieces_to_moves(pieces, shape, site.out_shape))

    def local_space(self, site: OpContext) -> IterationDomain | None:
        ranges = self._ranges(site.shape(0))
        if any(r.step < 0 for r in ranges):
            return None
        return copy_space(site, [DimMap(f"d{d}", r.step, 1, r.start, r.start) for d, r in enumerate(ranges)])

    def lower(self, site: OpContext, tile: TileView, em: Emitter) -> None:
        x, y = tile.input(0), tile.outputs[0]
        steps = [s * r.step for s, r in zip(x.strides, self._ranges(site.shape(0)), strict=True)]
        emit_copy(em, y, x.address, y.extent, steps, y.strides)

    @classmethod
    def samples(cls, rng: np.random.Generator) -> Iterable[OpSample]:
        x = rng.normal(size=(1, 4, 8, 6)).astype(np.float32)
        yield OpSample(cls((0, 1), (9, 100), (2, 3), (2, 2)), (x,))
        yield OpSample(cls((-1,), (-1000,), (1,), (-1,)), (x,))
