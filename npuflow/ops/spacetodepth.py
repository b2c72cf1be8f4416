"""Blocks of pixels rearranged into channels (Focus layers)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from npuflow.ir.graph import Site
from npuflow.ir.movement import MoveOp, dense, merged
from npuflow.ir.op import OPS, Move, Sample
from npuflow.ir.types import Array, TensorType


@OPS.entry
@dataclass(frozen=True)
class SpaceToDepth(MoveOp):
    """Depth of the result is (block row, block column, channel)."""

    blocksize: int = 2
    onnx: ClassVar[str] = "SpaceToDepth"

    def _view(self, shape: tuple[int, ...]) -> tuple[tuple[int, ...], tuple[int, ...]]:
        n, c, h, w = shape
        b = self.blocksize
        return (n, c, h // b, b, w // b, b), (0, 3, 5, 1, 2, 4)

    def infer(self, *types: TensorType | None) -> tuple[TensorType, ...]:
        assert types[0] is not None
        n, c, h, w = types[0].shape
        b = self.blocksize
        return (TensorType((n, c * b * b, h // b, w // b), types[0].dtype),)

    def reference(self, *inputs: Array | None) -> tuple[Array, ...]:
        x = inputs[0]
        assert x is not None
        view, perm = self._view(x.shape)
        (out,) = self.infer(TensorType(x.shape))
        return (np.ascontiguousarray(x.reshape(view).transpose(perm)).reshape(out.shape),)

    def moves(self, site: Site) -> tuple[Move, ...]:
        view, perm = self._view(site.shape(0))
        source, dims = dense(view), tuple(view[p] for p in perm)
        return (merged(Move(0, dims, tuple(source[p] for p in perm), dense(dims))),)

    @classmethod
    def samples(cls, rng: np.random.Generator) -> Iterable[Sample]:
        yield Sample(cls(2), (rng.normal(size=(1, 3, 4, 6)).astype(np.float32),))
