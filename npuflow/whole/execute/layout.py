"""How a tensor of many samples lies in memory: sample after sample, dimensions in any order."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import numpy as np

from npuflow.hw.elements import ELEMENTS
from npuflow.ir.lowering import Buffer
from npuflow.ir.types import Array


@dataclass(frozen=True)
class TensorLayout:
    """The shape of one sample, and its dimensions in memory from the outermost to the innermost."""

    shape: tuple[int, ...]
    order: tuple[int, ...]

    @property
    def size(self) -> int:
        return prod(self.shape)

    @property
    def strides(self) -> tuple[int, ...]:
        """In elements, by dimension of the tensor."""
        steps, step = [0] * len(self.shape), 1
        for d in reversed(self.order):
            steps[d], step = step, step * self.shape[d]
        return tuple(steps)


def plain(shape: tuple[int, ...]) -> TensorLayout:
    """C order."""
    return TensorLayout(shape, tuple(range(len(shape))))


def channels_last(shape: tuple[int, ...]) -> TensorLayout:
    """Channels (dimension 1) innermost: all channels of a place lie side by side."""
    return TensorLayout(shape, (0, *range(2, len(shape)), 1))


@dataclass(frozen=True)
class BatchTensor:
    """A value of all samples of a batch: `flat` has them one after the other, `address` names it in commands;
    of a constant there is one for all samples."""

    address: int
    dtype: str
    layout: TensorLayout
    flat: Array
    constant: bool = False

    @property
    def sample(self) -> int:
        """Elements from one sample to the next."""
        return 0 if self.constant else self.layout.size

    @property
    def buffer(self) -> Buffer:
        """The whole tensor of one sample, as `lower` sees it."""
        size = ELEMENTS[self.dtype].bytes
        strides = tuple(step * size for step in self.layout.strides)
        return Buffer(self.address, self.dtype, tuple((0, n) for n in self.layout.shape), strides)

    @property
    def logical(self) -> Array:
        """[samples, *shape] (of a constant one sample), a view."""
        layout = self.layout
        stored = self.flat.reshape(-1, *(layout.shape[d] for d in layout.order))
        back = np.argsort(layout.order) if layout.order else ()
        return stored.transpose(0, *(1 + int(d) for d in back))
