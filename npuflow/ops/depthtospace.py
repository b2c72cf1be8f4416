"""Channels rearranged into blocks of pixels (sub-pixel convolution, Shi et al. 2016)."""

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
class DepthToSpace(MoveOp):
    """`mode` DCR: depth is (block row, block column, channel); CRD: (channel, block row, block column)."""

    blocksize: int = 2
    mode: str = "DCR"
    onnx: ClassVar[str] = "DepthToSpace"

    def _view(self, shape: tuple[int, ...]) -> tuple[tuple[int, ...], tuple[int, ...]]:
        n, c, h, w = shape
        b = self.blocksize
        if self.mode == "DCR":
            return (n, b, b, c // (b * b), h, w), (0, 3, 4, 1, 5, 2)
        return (n, c // (b * b), b, b, h, w), (0, 1, 4, 2, 5, 3)

    def infer(self, *types: TensorType | None) -> tuple[TensorType, ...]:
        assert types[0] is not None
        n, c, h, w = types[0].shape
        b = self.blocksize
        return (TensorType((n, c // (b * b), h * b, w * b), types[0].dtype),)

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
        for mode in ("DCR", "CRD"):
            yield Sample(cls(2, mode), (rng.normal(size=(1, 12, 3, 2)).astype(np.float32),))
