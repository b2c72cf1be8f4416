"""What convolution and pooling share: padded inputs, taps, columns, and how images are read by commands."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from npuflow.ir.lowering import Buffer
from npuflow.ir.op import No, Yes, need
from npuflow.ir.types import Array
from npuflow.ir.windows import Window


def padded(x: Array, spec: Sequence[Window], fill: float | int) -> Array:
    """x with its trailing spatial dimensions padded (or cut) to what the windows reach."""
    lead = x.ndim - len(spec)
    widths, cut = [(0, 0)] * lead, [slice(None)] * lead
    for w in spec:
        reach = (w.out - 1) * w.stride + w.span
        widths.append((w.before, max(reach - w.size - w.before, 0)))
        cut.append(slice(0, reach))
    return np.pad(x, widths, constant_values=fill)[tuple(cut)]


def framed(pads: Sequence[int], axis: int, before: int, behind: int) -> tuple[int, ...] | None:
    """The pads of a window, all before and then all behind, with others along a dimension of its input; None
    of a dimension that it does not slide along."""
    place, rank, found = axis - 2, len(pads) // 2, list(pads)
    if not 0 <= place < rank:
        return None
    found[place], found[place + rank] = before, behind
    return tuple(found)


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


def window_columns(
    shape: Sequence[int], spec: Sequence[Window], at: npt.NDArray[np.int64]
) -> tuple[npt.NDArray[np.int64], int]:
    """Flat indices [places, taps] in the first channel of what a kernel multiplies at flat places of the
    output, -1 in the padding, and the elements of a channel."""
    batch, *places = np.unravel_index(at, (shape[0], *(w.out for w in spec)))
    step = plane = prod(w.size for w in spec)
    flat, outside = (batch * (shape[1] * plane))[:, None], np.zeros((len(at), 1), bool)
    for place, w in zip(places, spec, strict=True):
        step //= w.size
        rows = (place * w.stride - w.before)[:, None] + np.arange(w.kernel) * w.dilation   # [places, kernel]
        flat = (flat[:, :, None] + rows[:, None] * step).reshape(len(at), -1)
        outside = (outside[:, :, None] | ((rows < 0) | (rows >= w.size))[:, None]).reshape(len(at), -1)
    flat[outside] = -1
    return flat, plane


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


def out_hw(buffer: Buffer) -> tuple[int, int]:
    extent = buffer.extent
    return (extent[2] if len(extent) == 4 else 1), extent[-1]


def within(what: str, values: Sequence[int], limit: int) -> Yes | No:
    """Whether every value respects a target's limit (0: none)."""
    return need(not limit or max(values, default=0) <= limit, f"{what} {max(values, default=0)} > {limit}")


def window_measures(
    kernel: Sequence[int],
    strides: Sequence[int],
    dilations: Sequence[int],
    pads: Sequence[int],
    shape: Sequence[int],
    groups: int = 1,
) -> dict[str, int]:
    """What a target's limits may say of windows over an image of this shape."""
    rank = len(kernel)
    strides, dilations, pads = strides or (1,) * rank, dilations or (1,) * rank, pads or (0,) * (2 * rank)
    wide = rank > 1
    return {
        "kernel_h": kernel[0], "kernel_w": kernel[1] if wide else 1,
        "stride_h": strides[0], "stride_w": strides[1] if wide else 1,
        "dilation_h": dilations[0], "dilation_w": dilations[1] if wide else 1,
        "pad_top": pads[0], "pad_left": pads[1] if wide else 0,
        "pad_bottom": pads[rank], "pad_right": pads[rank + 1] if wide else 0,
        "groups": groups, "depthwise": int(groups > 1 and shape[1] == groups),
    }
