"""Sliding windows: padding rules, output sizes, taps, and the operand maps that
convolution and pooling share."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
import numpy.typing as npt

from npuflow.ir.op import Buffer, No, Yes, need
from npuflow.ir.space import DimMap
from npuflow.ir.types import UNKNOWN, Array


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


def padded(x: Array, spec: Sequence[Window], fill: float | int) -> Array:
    """x with its trailing spatial dimensions padded (or cut) to what the windows reach."""
    lead = x.ndim - len(spec)
    widths, cut = [(0, 0)] * lead, [slice(None)] * lead
    for w in spec:
        reach = (w.out - 1) * w.stride + w.span
        widths.append((w.before, max(reach - w.size - w.before, 0)))
        cut.append(slice(0, reach))
    return np.pad(x, widths, constant_values=fill)[tuple(cut)]


def taps(x: Array, spec: Sequence[Window], fill: float | int = 0) -> Iterator[tuple[tuple[int, ...], Array]]:
    """For each kernel position, the view of the padded x that it multiplies: shape [..., *out]."""
    whole = padded(x, spec, fill)
    for tap in product(*(range(w.kernel) for w in spec)):
        starts = [i * w.dilation for i, w in zip(tap, spec, strict=True)]
        cut: tuple[Any, ...] = tuple(
            slice(a, a + (w.out - 1) * w.stride + 1, w.stride) for a, w in zip(starts, spec, strict=True)
        )
        yield tap, whole[(Ellipsis, *cut)]


def convolve(x: Array, weight: Array, spec: Sequence[Window], group: int) -> Array:
    """sum over taps and channels of x * weight, in the dtype of the operands: [N, C, ...]
    by [O, C / group, *kernel]."""
    n, out_channels, per_group = x.shape[0], weight.shape[0], weight.shape[1]
    out = tuple(w.out for w in spec)
    acc = np.zeros((n, group, out_channels // group, int(np.prod(out))), np.result_type(x, weight))
    for tap, view in taps(x, spec):
        image = np.ascontiguousarray(view).reshape(n, group, per_group, -1)
        at: tuple[Any, ...] = tap
        kernel = np.ascontiguousarray(weight[(Ellipsis, *at)]).reshape(
            group, out_channels // group, per_group
        )
        acc += kernel * image if per_group == 1 else np.matmul(kernel, image)
    return acc.reshape(n, out_channels, *out)


def window_columns(x: Array, spec: Sequence[Window], group: int, at: npt.NDArray[np.int64]) -> Array:
    """[groups, places, channels of a group * taps]: what the kernels of each group multiply
    at flat places of the output."""
    batch, *places = np.unravel_index(at, (x.shape[0], *(w.out for w in spec)))
    found = []
    for tap in product(*(range(w.kernel) for w in spec)):
        rows = [p * w.stride + i * w.dilation - w.before for p, i, w in zip(places, tap, spec, strict=True)]
        outside = np.logical_or.reduce([(r < 0) | (r >= w.size) for r, w in zip(rows, spec, strict=True)])
        inside: tuple[Any, ...] = tuple(np.clip(r, 0, w.size - 1) for r, w in zip(rows, spec, strict=True))
        terms = x[(batch, slice(None), *inside)]
        if outside.any():
            terms[outside] = 0
        found.append(terms)
    whole = np.stack(found, axis=-1) if len(found) > 1 else found[0]
    return np.ascontiguousarray(whole.reshape(len(at), group, -1).swapaxes(0, 1))


def exact(*arrays: npt.NDArray[np.integer], terms: int) -> tuple[Array, ...]:
    """The integer arrays in a dtype in which a sum of `terms` of their products is
    exact: float64 (fast) or int64."""
    peak = terms
    for a in arrays:
        peak *= max(abs(int(a.max(initial=0))), abs(int(a.min(initial=0))), 1)
    dtype = np.float64 if peak < 2**53 else np.int64
    return tuple(a.astype(dtype) for a in arrays)


def spatial_names(rank: int) -> tuple[str, ...]:
    return ("ow",) if rank == 1 else ("oh", "ow")


def pair(values: Sequence[int], fill: int) -> tuple[int, ...]:
    """A per-dimension setting of a 1-D or 2-D window as the two that commands take."""
    return (fill,) * (2 - len(values)) + tuple(values)


def image(buffer: Buffer, name: str) -> dict[str, object]:
    """A [n, c, w] or [n, c, h, w] buffer as a 4-dimensional operand with its extents
    (a 1-D image has one row)."""
    strides, dims = buffer.strides, buffer.extent
    if len(strides) == 3:
        strides, dims = (*strides[:2], 0, strides[2]), (*dims[:2], 1, dims[2])
    return {
        name: buffer.address,
        f"{name}_type": buffer.dtype,
        f"{name}_strides": strides,
        f"{name}_dims": dims,
    }


def out_hw(buffer: Buffer) -> tuple[int, int]:
    extent = buffer.extent
    return (extent[2] if len(extent) == 4 else 1), extent[-1]


def within(what: str, values: Sequence[int], limit: int) -> Yes | No:
    """Whether every value respects a target's limit (0: none)."""
    return need(not limit or max(values, default=0) <= limit, f"{what} {max(values, default=0)} > {limit}")
