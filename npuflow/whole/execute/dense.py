"""Convolutions on bytes, channels innermost, and products with constant matrices, from codes to codes in one
pass."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from math import prod

import numpy as np

from npuflow.base.compiled import compiled
from npuflow.hw.command import Command
from npuflow.ir.types import Array
from npuflow.kernels.opcode import Step
from npuflow.kernels.operands import FlatOperand
from npuflow.whole.execute import tables
from npuflow.whole.execute.bench import TensorBench
from npuflow.whole.execute.dot import (
    LANES,
    available,
    eight_one,
    eight_three,
    eight_two,
    one_four,
    one_one,
    one_three,
    one_two,
    six_four,
)
from npuflow.whole.execute.places import pad
from npuflow.whole.execute.windows import Factors, Windows, factors, places, taps, windows

WIDEST = 4                       # vectors of output channels that a tile covers
ROWS = 8                         # places that a tile covers at most
CHUNK = 1 << 17                  # bytes of an input that are used by all channels before the next


def dense(bench: TensorBench, c: Command, last: Command) -> Step | None:
    """CONV and the REQUANT behind it."""
    s = windows(c)
    if s is None or not available() or c.text("acc_type") != "int32":
        return None
    per = s.dims[1] // s.groups
    weights = bench.constant(0, c, "w", c.text("w_type"), s.out * per * prod(s.kernel))
    end = tables.ending(bench, last, s.out)
    if weights is None or end is None or tables.byte_range(last.text("y_type")) is None:
        return None
    found = factors(bench, c, "x", "w", weights.reshape(s.out, -1), s.out)
    if found is None or not tables.fits(end, found.peaks):
        return None
    x, y = bench.operand(0, c, "x"), _result(bench, last)
    flags = tables.flags(end, found.flip * 0x01010101)
    if y is None or not _packed(y, (*s.size, s.out)) or flags is None:
        return None
    if s.groups > 1 and per == 1 and s.out == s.groups:
        from npuflow.whole.execute.depthwise import depthwise  # slow to load

        return depthwise(bench, s, x, y, found, end, flags)
    return _bound(bench, s, x, y, found, end, flags)


def product(bench: TensorBench, c: Command, last: Command) -> Step | None:
    """MATMUL by a constant matrix and the REQUANT behind it: every row of the left side is a place."""
    batch, m, k, n = (c.number(name) for name in ("batch", "m", "k", "n"))
    if c.number("accumulate") or c.text("acc_type") != "int32" or not available():
        return None
    a, b, y = bench.operand(0, c, "a"), bench.operand(0, c, "b"), bench.operand(0, last, "y")
    matrix = bench.constant(0, c, "b", c.text("b_type"), k * n)
    end = tables.ending(bench, last, n)
    shaped = last.vector("dims") == (1, batch, m, n) and last.number("channel_axis") == 3
    bytes_out = tables.byte_range(last.text("y_type")) is not None
    if matrix is None or end is None or b.strides[0] or not (shaped and bytes_out):
        return None
    step = matrix.itemsize
    turned = np.lib.stride_tricks.as_strided(matrix, (n, k), (b.strides[2] * step, b.strides[1] * step))
    found = factors(bench, c, "a", "b", turned, n)
    flags = None if found is None else tables.flags(end, found.flip * 0x01010101)
    if found is None or flags is None or not tables.fits(end, found.peaks):
        return None
    x = replace(a, strides=(a.strides[0], a.strides[2], a.strides[1], 0))
    to = replace(y, strides=(y.strides[1], y.strides[3], y.strides[2], 0))
    if not _packed(to, (m, 1, n)):
        return None
    s = Windows((batch, k, m, 1), n, (m, 1), 1, (1, 1), (1, 1), (1, 1), (0, 0))
    return _bound(bench, s, x, to, found, end, flags)


def _result(bench: TensorBench, last: Command) -> FlatOperand | None:
    """The result as [n, channels, height, width]; that of sequences comes as [1, n, channels, width]."""
    y, axis = bench.operand(0, last, "y"), last.number("channel_axis")
    if axis == 2 and last.vector("dims")[0] == 1:
        return replace(y, strides=(y.strides[1], y.strides[2], 0, y.strides[3]))
    return y if axis == 1 else None


def _packed(y: FlatOperand, sizes: tuple[int, int, int]) -> bool:
    """Whether rows, places and channels follow each other without gaps."""
    high, wide, channels = sizes
    _, c, h, w = y.strides
    steps = [(channels, c, 1), (wide, w, channels), (high, h, channels * wide)]
    return all(extent == 1 or have == want for extent, have, want in steps)


def _bound(
    bench: TensorBench,
    s: Windows,
    x: FlatOperand,
    y: FlatOperand,
    found: Factors,
    end: tables.Ending,
    flags: Array,
) -> Step:
    n, channels = s.dims[:2]
    per, pixels = channels // s.groups, prod(s.size)
    deep = -(-per // 4) * 4
    aligned = per == deep and (x.strides[1] == 1 or channels == 1)
    direct = aligned and s.inside
    high, wide = s.reach
    if direct:
        row, column, pitch = x.strides[2], x.strides[3], 0
        start = s.origin[0] * row + s.origin[1] * column
    else:
        pitch = s.groups * deep
        row, column, start = wide * pitch, pitch, 0
    base = places(s, row, column)
    at = np.add.outer(taps(s, row, column), np.arange(0, deep, 4)).reshape(-1)
    images = bench.batch * n
    x0 = np.array([x.base + b * x.sample + i * x.strides[0] for b in range(bench.batch) for i in range(n)])
    y0 = np.array([y.base + b * y.sample + i * y.strides[0] for b in range(bench.batch) for i in range(n)])
    flat = direct and (pixels == 1 or _even(base)) and _joined(x0, y0, base, pixels, s.out)
    step = int(base[1] - base[0]) if pixels > 1 else int(x0[1] - x0[0]) if images > 1 else 0
    if flat:
        x0, y0, pixels, base = x0[:1], y0[:1], pixels * images, np.arange(ROWS) * step
    panels, w, lanes = _panels(found.weights, s.groups, per, deep, prod(s.kernel))
    narrow, wider = tables.laid(end, found.correction, lanes)
    padded = bench.scratch("padded", "uint8", (1 if direct else high * wide * pitch,))
    source = x.flat.view(np.uint8), x0 + (start if direct else 0)
    chunk = max(4 * ROWS, CHUNK // max(1, channels if direct else pitch))
    frame = (
        not direct, x.strides[1:], s.dims[1:], s.origin, (high, wide), s.groups, deep,
        (found.zero ^ found.flip) & 255,
    )
    ends = narrow, wider, flags, y.flat.view(np.uint8), y0, s.out
    return partial(_run, *source, frame, padded, base, flat, step, at, w, panels, *ends, pixels, chunk, deep)


def _even(base: Array) -> bool:
    return bool((np.diff(base) == base[1] - base[0]).all())


def _joined(x0: Array, y0: Array, base: Array, pixels: int, out: int) -> bool:
    """Whether the places of all images follow each other evenly."""
    if len(x0) == 1:
        return True
    step = int(base[1] - base[0]) if pixels > 1 else int(x0[1] - x0[0])
    return bool((np.diff(x0) == pixels * step).all() and (np.diff(y0) == pixels * out).all())


def _panels(weights: Array, groups: int, per: int, deep: int, taps: int) -> tuple[Array, Array, Array]:
    """Rows (group, first channel, vectors, channels of the last vector, where the weights start, first vector
    in the tables), the weights as words, and the channel of every lane of every vector."""
    outs = len(weights) // groups
    table, words, lanes = [], [], []
    size = vec = 0
    for g in range(groups):
        left, first = -(-outs // LANES), 0
        while left:
            count = -(-left // -(-left // WIDEST))
            width = min(outs - first, count * LANES)
            block = np.zeros((count * LANES, taps, deep), np.int8)
            rows = weights[g * outs + first : g * outs + first + width].reshape(width, per, taps)
            block[:width, :, :per] = rows.transpose(0, 2, 1)
            ready = block.reshape(count * LANES, -1, 4).transpose(1, 0, 2)
            words.append(np.ascontiguousarray(ready).view(np.int32).reshape(-1))
            channel = np.full(count * LANES, -1)
            channel[:width] = g * outs + first + np.arange(width)
            lanes.append(channel.reshape(count, LANES))
            table.append((g, g * outs + first, count, width - (count - 1) * LANES, size, vec))
            size, vec, first, left = size + words[-1].size, vec + count, first + width, left - count
    return np.array(table, np.int64), np.concatenate(words), np.concatenate(lanes)


@compiled
def _run(  # type: ignore[no-untyped-def]
    x, x0, frame, padded, base, flat, step, at, w, panels, narrow, wide, flags, y, y0, out, pixels, chunk,
    deep,
):
    """Image after image; of each a stretch of places for all channels."""
    framed, strides, dims, origin, size, groups, _, fill = frame
    for i in range(x0.shape[0]):
        start, source = x0[i], x
        if framed:
            pad(x, start, strides, dims, origin, size, groups, deep, fill, padded)
            start, source = 0, padded
        for first in range(0, pixels, chunk):
            last = min(first + chunk, pixels)
            for p in range(panels.shape[0]):
                g, o, vectors = panels[p, 0], panels[p, 1], panels[p, 2]
                _panel(
                    source, start + g * deep, base, flat, step, at, w, panels[p], vectors,
                    narrow, wide, flags, y, y0[i] + o, out, first, last, pixels,
                )


@compiled
def _panel(  # type: ignore[no-untyped-def]
    x, x0, base, flat, step, at, w, panel, vectors, narrow, wide, flags, y, y0, pitch, first, last, pixels
):
    tall = 6 if vectors == 4 else 8
    count, w0, vec, ends = at.shape[0], panel[4], panel[5], panel[3]
    height = tall if pixels >= tall else 1
    for place in range(first, last, height):
        q = min(place, pixels - height)            # the last tile may make some places again
        start, row, to = (x0 + q * step, 0, y0 + q * pitch) if flat else (x0, q, y0 + q * pitch)
        if height == 1:
            if vectors == 4:
                one_four(x, start, base, row, at, count, w, w0, narrow, wide, flags, vec, ends, y, to, pitch)
            elif vectors == 3:
                one_three(x, start, base, row, at, count, w, w0, narrow, wide, flags, vec, ends, y, to, pitch)
            elif vectors == 2:
                one_two(x, start, base, row, at, count, w, w0, narrow, wide, flags, vec, ends, y, to, pitch)
            else:
                one_one(x, start, base, row, at, count, w, w0, narrow, wide, flags, vec, ends, y, to, pitch)
        elif vectors == 4:
            six_four(x, start, base, row, at, count, w, w0, narrow, wide, flags, vec, ends, y, to, pitch)
        elif vectors == 3:
            eight_three(x, start, base, row, at, count, w, w0, narrow, wide, flags, vec, ends, y, to, pitch)
        elif vectors == 2:
            eight_two(x, start, base, row, at, count, w, w0, narrow, wide, flags, vec, ends, y, to, pitch)
        else:
            eight_one(x, start, base, row, at, count, w, w0, narrow, wide, flags, vec, ends, y, to, pitch)
