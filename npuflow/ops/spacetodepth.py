"""Blocks of pixels rearranged into channels (Focus layers)."""

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
class SpaceToDepth(BlockOp):
    """Depth of the result is (block row, block column, channel)."""

    onnx: ClassVar[str] = "SpaceToDepth"

    def view(self, shape: Sequence[int]) -> tuple[tuple[int, ...], tuple[int, ...]]:
        n, c, h, w = shape
        b = self.blocksize
        return (n, c, h // b, b, w // b, b), (0, 3, 5, 1, 2, 4)

    def result(self, shape: Sequence[int]) -> tuple[int, ...]:
        n, c, h, w = shape
        b = self.blocksize
        return (n, c * b * b, h // b, w // b)

    @classmethod
    def samples(cls, rng: np.random.Generator) -> Iterable[OpSample]:
        yield OpSample(cls(2), (draw(rng, 1, 3, 4, 6),))
