"""Dimensions in another order."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from npuflow.ir.lowering import Emitter, TileView
from npuflow.ir.moves import Move, dense, merged
from npuflow.ir.op import OPS, Imported, No, OnnxCall, OpContext, OpSample
from npuflow.ir.space import DimMap, IterationDomain
from npuflow.ir.types import Array, TensorType
from npuflow.ops._movement import DataLayoutOp, copy_space, emit_copy


@OPS.entry
@dataclass(frozen=True)
class Transpose(DataLayoutOp):
    perm: tuple[int, ...] = ()
    onnx: ClassVar[str] = "Transpose"

    @classmethod
    def from_onnx(cls, call: OnnxCall) -> Imported | No:
        x = call.types[0]
        if x is None:
            return No("the input's rank is unknown")
        rank = len(x.shape)
        perm = tuple(call.attributes.get("perm", range(rank - 1, -1, -1)))
        return Imported(cls(tuple(int(p) % rank for p in perm) if rank else ()), (0,))

    def infer(self, *types: TensorType | None) -> tuple[TensorType, ...]:
        assert types[0] is not None
        return (TensorType(tuple(types[0].shape[p] for p in self.perm), types[0].dtype),)

    def reference(self, *inputs: Array | None) -> tuple[Array, ...]:
        assert inputs[0] is not None
        return (np.transpose(inputs[0], self.perm),)

    def moves(self, site: OpContext) -> tuple[Move, ...]:
        source = dense(site.shape(0))
        out = site.out_shape
        return (merged(Move(0, out, tuple(source[p] for p in self.perm), dense(out))),)

    def local_space(self, site: OpContext) -> IterationDomain | None:
        maps = [DimMap(f"d{self.perm.index(d)}") for d in range(len(self.perm))]
        return copy_space(site, maps)

    def lower(self, site: OpContext, tile: TileView, em: Emitter) -> None:
        x, y = tile.input(0), tile.outputs[0]
        emit_copy(em, y, x.address, y.extent, [x.strides[p] for p in self.perm], y.strides)

    @classmethod
    def samples(cls, rng: np.random.Generator) -> Iterable[OpSample]:
        yield OpSample(cls((0, 2, 3, 1)), (rng.normal(size=(1, 3, 4, 5)).astype(np.float32),))
        yield OpSample(cls((1, 0)), (rng.normal(size=(7, 2)).astype(np.float32),))
