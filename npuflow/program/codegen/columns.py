"""Columns of a convolution's tile: every tap of the window as a channel, gathered from the
input's box by the vector unit."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import groupby
from math import prod
from typing import Any, cast

from npuflow.ir.lowering import Buffer
from npuflow.ir.space import Interval

Fields = dict[str, object]
ON_COLUMNS = ("CONV", "FCONV")            # commands whose input may be columns
Run = tuple[int, int, int, int]           # first tap, taps, and the outputs [a, b) that all of them reach
ONE = {"kernel": (1, 1), "stride": (1, 1), "dilation": (1, 1), "origin": (0, 0), "insert": (1, 1)}


def gather(conv: Mapping[str, Any], columns: Buffer) -> Iterator[tuple[str, Fields]]:
    """FILL of what lies in the padding, and COPY of the rest, in runs of taps that reach the same outputs."""
    item, (batch, channels) = columns.strides[-1], conv["x_dims"][:2]
    high, wide = conv["out_height"], conv["out_width"]
    tall, broad = conv["kernel"]
    plane = item * high * wide                             # bytes of one channel and tap
    near = channels * tall * broad * plane, tall * broad * plane, broad * plane, plane, item * wide, item
    rows, cols = _runs(conv, 0, high), _runs(conv, 1, wide)
    for (a, b), (c, d) in _around(high, wide, _common(rows), _common(cols)):
        yield (
            "FILL",
            {
                "y": columns.address + a * near[4] + c * near[5],
                "y_type": conv["x_type"] if "x_zero" in conv else f"int{8 * item}",
                "value": conv.get("x_zero", 0),                # the bits of +0
                "y_strides": (near[0], near[3], near[4], near[5]),
                "dims": (batch, channels * tall * broad, b - a, d - c),
            },
        )
    (n, ch, h, w), stride, dilation, origin = (conv[f] for f in ("x_strides", "stride", "dilation", "origin"))
    for i, down, a, b in rows:
        for j, along, c, d in cols:
            if a >= b or c >= d:
                continue
            row, col = (
                a * stride[0] + i * dilation[0] + origin[0],
                c * stride[1] + j * dilation[1] + origin[1],
            )
            yield (
                "COPY",
                {
                    "x": conv["x"] + row * h + col * w,
                    "y": columns.address + i * near[2] + j * near[3] + a * near[4] + c * near[5],
                    "element": item,
                    "dims": (batch, channels, down, along, b - a, d - c),
                    "x_strides": (n, ch, dilation[0] * h, dilation[1] * w, stride[0] * h, stride[1] * w),
                    "y_strides": near,
                },
            )


def on_columns(conv: Mapping[str, object], columns: Buffer) -> Fields:
    """The command over columns: a kernel of one point, channels and taps as channels; the weights lie as
    they did. Sums of floats keep their order, in which `taps` channels are one."""
    taps = {"taps": prod(cast(tuple[int, ...], conv["kernel"]))} if "taps" in conv else {}
    return {**conv, **columns.image("x"), **ONE, **taps}


def _runs(conv: Mapping[str, Any], d: int, size: int) -> list[Run]:
    """Consecutive taps of a dimension that reach the same outputs inside the input's box."""
    taps, stride, dilation, origin = (int(conv[n][d]) for n in ("kernel", "stride", "dilation", "origin"))
    extent = int(conv["x_dims"][2 + d])

    def reach(tap: int) -> Interval:
        low = tap * dilation + origin
        first = min(size, max(0, -(low // stride)))
        return first, max(first, min(size, (extent - 1 - low) // stride + 1))

    found = []
    for (a, b), members in groupby(range(taps), reach):
        run = list(members)
        found.append((run[0], len(run), a, b))
    return found


def _common(runs: list[Run]) -> Interval:
    return max(r[2] for r in runs), min(r[3] for r in runs)


def _around(high: int, wide: int, rows: Interval, cols: Interval) -> Iterator[tuple[Interval, Interval]]:
    """Rectangles of the outputs outside the part that every tap reaches."""
    (a, b), (c, d) = rows, cols
    if a >= b or c >= d:
        yield (0, high), (0, wide)
        return
    for down, along in (((0, a), (0, wide)), ((b, high), (0, wide)), ((a, b), (0, c)), ((a, b), (d, wide))):
        if down[0] < down[1] and along[0] < along[1]:
            yield down, along
