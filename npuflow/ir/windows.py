"""Sliding windows: padding rules, output sizes, taps, and the operand maps that
convolution and pooling share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol, cast

import numpy as np
import numpy.typing as npt

from npuflow.ir.space import DimMap
from npuflow.ir.types import UNKNOWN


class Taps(NamedTuple):
    """Where the columns of an input lie in it: `first` [places, taps], flat, of the first channel (-1:
    padding); from channel to channel it is `step` further. The terms of a column are the `channels` of its
    group, each with all taps."""

    first: npt.NDArray[np.int64]
    step: int
    channels: int


@dataclass(frozen=True)
class Window:
    """One spatial dimension: input size, kernel, stride, dilation, pads before and after, output size."""

    size: int
    kernel: int
    stride: int
    dilation: int
    before: int
    after: int
    out: int

    @property
    def span(self) -> int:
        """Distance from the first to the last tap, plus one."""
        return (self.kernel - 1) * self.dilation + 1

    @property
    def map(self) -> tuple[int, int, int]:
        """num, lo, hi of the DimMap from an output index to the input rows it touches."""
        return self.stride, -self.before, (self.kernel - 1) * self.dilation - self.before

    def dim_map(self, axis: str) -> DimMap:
        num, lo, hi = self.map
        return DimMap(axis, num, 1, lo, hi)


class WindowedOp(Protocol):
    """A layer with windows."""

    def windows(self, spatial: Sequence[int]) -> tuple[Window, ...]: ...


def window_along(op: object, shape: Sequence[int], axis: int) -> Window:
    """The windows of a convolution or a pool along a dimension of what it reads, which has a shape."""
    return cast(WindowedOp, op).windows(shape[2:])[axis - 2]


def tap_places(spec: Sequence[Window], places: Sequence[Sequence[int]]) -> tuple[tuple[int, ...], ...]:
    """Per dimension and tap, at how many of the output's places the tap lies inside the input."""
    return tuple(
        tuple(
            sum(0 <= o * w.stride - w.before + t * w.dilation < w.size for o in own) for t in range(w.kernel)
        )
        for w, own in zip(spec, places, strict=True)
    )


def windows(
    spatial: Sequence[int],
    kernel: Sequence[int],
    strides: Sequence[int] = (),
    dilations: Sequence[int] = (),
    pads: Sequence[int] = (),
    auto_pad: str = "NOTSET",
    ceil_mode: bool = False,
) -> tuple[Window, ...]:
    """Windows per spatial dimension by ONNX's rules; unknown sizes stay unknown."""
    rank = len(spatial)
    strides, dilations, pads = strides or (1,) * rank, dilations or (1,) * rank, pads or (0,) * (2 * rank)
    found = []
    for i, (size, k, s, d) in enumerate(zip(spatial, kernel, strides, dilations, strict=True)):
        before, after = (0, 0) if auto_pad == "VALID" else (pads[i], pads[i + rank])
        if size == UNKNOWN:
            found.append(Window(size, k, s, d, before, after, UNKNOWN))
            continue
        span = (k - 1) * d + 1
        if auto_pad.startswith("SAME"):
            out = -(-size // s)
            total = max((out - 1) * s + span - size, 0)
            before = total // 2 if auto_pad == "SAME_UPPER" else total - total // 2
            after = total - before
        else:
            room = size + before + after - span
            out = (-(-room // s) if ceil_mode else room // s) + 1
            if ceil_mode and (out - 1) * s >= size + before:
                out -= 1                 # a window that would start in the trailing padding does not exist
        found.append(Window(size, k, s, d, before, after, max(out, 0)))
    return tuple(found)
