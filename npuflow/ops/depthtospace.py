"""Channels rearranged into blocks of pixels (sub-pixel convolution, Shi et al. 2016)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from npuflow.ir.op import OPS, OpSample
from npuflow.ops._draw import draw
from npuflow.ops._movement import BlockOp


@OPS.entry
@dataclass(frozen=True)
class DepthToSpace(BlockOp):
    """`mode` DCR: depth is (block row, block column, channel); CRD: (channel, block row, block column)."""

    mode: str = "DCR"
    onnx: ClassVar[str] = "DepthToSpace"

    def view(self, shape: Sequence[int]) -> tuple[tuple[int, ...], tuple[int, ...]]:
        n, c, h, w = shape
        b = self.blocksize
        if self.mode == "DCR":
            return (n, b, b, c // (b * b), h, w), (0, 3, 4, 1, 5, 2)
        return (n, c // (b * b), b, b, h, w), (0, 1, 4, 2, 5, 3)

    def result(self, shape: Sequence[int]) -> tuple[int, ...]:
        n, c, h, w = shape
        b = self.blocksize
        return (n, c // (b * b), h * b, w * b)

    @classmethod
    def samples(cls, rng: np.random.Generator) -> Iterable[OpSample]:
        for mode in ("DCR", "CRD"):
            yield OpSample(cls(2, mode), (draw(rng, 1, 12, 3, 2),))
