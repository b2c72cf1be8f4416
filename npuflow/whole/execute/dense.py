"""Convolutions on bytes, channels innermost, and products with constant matrices, from codes to codes.

One loop goes through images, stretches of places and panels of channels; a panel is made in tiles of `dot`.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from math import prod
from typing import Any

import numpy as np

from npuflow.base.compiled import borrowing
from npuflow.hw.command import Command
from npuflow.ir.types import Array
from npuflow.kernels.opcode import Step
from npuflow.kernels.operands import FlatOperand
from npuflow.whole.execute import tables
from npuflow.whole.execute.bench import TensorBench
from npuflow.whole.execute.dot import (
    LANES,
    available,
    deep_16,
    deep_32,
    deep_64,
    eight_one,
    eight_three,
    eight_two,
    one_four,
    one_one,
    one_three,
    one_two,
    single_16,
    single_32,
    single_64,
    six_four,
    woven,
)
from npuflow.whole.execute.windows import Factors, Windows, factors, places, taps, windows
from npuflow.whole.fusion import by_channel

WIDEST = 4                       # vectors of output channels that a tile covers
ROWS, TALL = 8, 4                # places that a tile covers at most: of words, of channels by themselves
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
    if s.groups > 1 and by_channel(s.groups, s.dims[1], s.out):
        return _by_channel(bench, s, x, y, found, (end, flags))
    return _bound(bench, s, x, y, found, (end, flags))


def product(bench: TensorBench, c: Command, last: Command) -> Step | None:
    """MATMUL by a constant matrix and the REQUANT behind it: every row of the left side is a place."""
    batch, m, k, n = (c.number(name) for name in ("batch", "m", "k", "n"))
    if c.text("acc_type") != "int32" or not available():
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
    return _bound(bench, s, x, to, found, (end, flags))


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
    bench: TensorBench, s: Windows, x: FlatOperand, y: FlatOperand, found: Factors,
    ending: tuple[tables.Ending, Array],
) -> Step:
    channels = s.dims[1]
    per, pixels = channels // s.groups, prod(s.size)
    deep = -(-per // 4) * 4
    aligned = per == deep and (x.strides[1] == 1 or channels == 1)
    direct = aligned and s.inside
    wide = s.reach[1]
    if direct:
        row, column, pitch = x.strides[2], x.strides[3], 0
        start = s.origin[0] * row + s.origin[1] * column
    else:
        pitch = s.groups * deep
        row, column, start = wide * pitch, pitch, 0
    base = places(s, row, column)
    at = np.add.outer(taps(s, row, column), np.arange(0, deep, 4)).reshape(-1)
    x0, y0 = _images(bench, s, x), _images(bench, s, y)
    images = len(x0)
    flat = direct and (pixels == 1 or _even(base)) and _joined(x0, y0, base, pixels, s.out)
    step = int(base[1] - base[0]) if pixels > 1 else int(x0[1] - x0[0]) if images > 1 else 0
    if flat:
        x0, y0, pixels, base = x0[:1], y0[:1], pixels * images, np.arange(ROWS) * step
    panels, w, lanes = _panels(found.weights, s.groups, per, deep, prod(s.kernel))
    narrow, wider = tables.laid(ending[0], found.correction, lanes)
    frame = _frame(bench, s, x, found, s.groups, deep, not direct)
    chunk = max(4 * ROWS, CHUNK // max(1, channels if direct else pitch))
    return partial(
        _run, (x.flat.view(np.uint8), x0 + (start if direct else 0)), frame, (base, flat, step, at),
        (w, panels), (narrow, wider, ending[1], y.flat.view(np.uint8), y0, s.out), (pixels, chunk),
    )


def _by_channel(
    bench: TensorBench, s: Windows, x: FlatOperand, y: FlatOperand, found: Factors,
    ending: tuple[tables.Ending, Array],
) -> Step | None:
    """Groups of one channel, on planes padded as the windows reach; None for fewer channels than a vector has
    bytes."""
    channels = s.dims[1]
    quarter = next((q for q in (4, 2, 1) if 16 * q <= channels), 0)
    if not quarter:
        return None
    width, row = 16 * quarter, s.reach[1] * channels
    # the last block may make some channels again
    blocks = np.array([min(c, channels - width) for c in range(0, channels, width)])
    at = taps(s, row, channels)
    count = -(-len(at) // 4)
    at = np.concatenate([at, np.zeros(4 * count - len(at), at.dtype)])
    lanes = (blocks[:, None, None] + woven(quarter)).reshape(-1, 4 * quarter)
    weights = np.zeros((channels, 4 * count), np.int8)
    weights[:, : found.weights.shape[1]] = found.weights
    per = weights.reshape(channels, count, 4)[lanes.reshape(len(blocks), 4, -1)]
    w = np.ascontiguousarray(per.transpose(0, 3, 1, 2, 4)).view(np.int32).reshape(-1)
    narrow, wider = tables.laid(ending[0], found.correction, lanes)
    panels = np.array([(c, c, width, 0, k * count * width, 4 * k) for k, c in enumerate(blocks)], np.int64)
    frame = _frame(bench, s, x, found, 1, channels, True)
    return partial(
        _run, (x.flat.view(np.uint8), _images(bench, s, x)), frame, (places(s, row, channels), False, 0, at),
        (w, panels), (narrow, wider, ending[1], y.flat.view(np.uint8), _images(bench, s, y), channels),
        (prod(s.size), s.size[1]),
    )


def _images(bench: TensorBench, s: Windows, one: FlatOperand) -> Array:
    """Where the images of all samples start."""
    starts = np.arange(bench.batch)[:, None] * one.sample + np.arange(s.dims[0]) * one.strides[0]
    return np.asarray((one.base + starts).reshape(-1))


def _frame(
    bench: TensorBench, s: Windows, x: FlatOperand, found: Factors, groups: int, deep: int, framed: bool
) -> tuple[Any, ...]:
    """How an image is padded, as `pad` takes it, and whether it is."""
    high, wide = s.reach
    space = bench.scratch("padded", "uint8", (high * wide * groups * deep if framed else 1,))
    fill = (found.zero ^ found.flip) & 255
    return framed, x.strides[1:], s.dims[1:], s.origin, (high, wide), groups, deep, fill, space


def _even(base: Array) -> bool:
    return bool((np.diff(base) == base[1] - base[0]).all())


def _joined(x0: Array, y0: Array, base: Array, pixels: int, out: int) -> bool:
    """Whether the places of all images follow each other evenly."""
    if len(x0) == 1:
        return True
    step = int(base[1] - base[0]) if pixels > 1 else int(x0[1] - x0[0])
    return bool((np.diff(x0) == pixels * step).all() and (np.diff(y0) == pixels * out).all())


def _panels(weights: Array, groups: int, per: int, deep: int, taps: int) -> tuple[Array, Array, Array]:
    """Rows (first channel that is read, first that is made, vectors, channels of the last vector, where the
    weights start, first vector in the tables), the weights as words, and the channel of every lane."""
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
            table.append((g * deep, g * outs + first, count, width - (count - 1) * LANES, size, vec))
            size, vec, first, left = size + words[-1].size, vec + count, first + width, left - count
    return np.array(table, np.int64), np.concatenate(words), np.concatenate(lanes)


@borrowing
def _copy(x, y):  # type: ignore[no-untyped-def]
    """A slice: numba's own assignment compiles the text of an error about shapes with it, for seconds."""
    for i in range(x.shape[0]):
        y[i] = x[i]


@borrowing
def pad(x, x0, frame):  # type: ignore[no-untyped-def]
    """out[r, c, g, :deep] = x at row r + origin, column c + origin: what the windows reach, `fill` outside;
    of every group its channels, then whatever lies there (weights there are 0)."""
    _, strides, (channels, height, width), origin, size, groups, deep, fill, out = frame
    per = channels // groups
    pitch = groups * deep
    plain = strides[0] == 1 and (per == deep or groups == 1)
    for r in range(size[0]):
        sy = r + origin[0]
        to = r * size[1] * pitch
        if sy < 0 or sy >= height:
            out[to : to + size[1] * pitch] = fill
            continue
        left = min(max(0, -origin[1]), size[1])
        right = max(left, min(size[1], width - origin[1]))
        out[to : to + left * pitch] = fill
        out[to + right * pitch : to + size[1] * pitch] = fill
        at = x0 + sy * strides[1] + (left + origin[1]) * strides[2]
        if plain and pitch == channels and strides[2] == channels:
            count = (right - left) * pitch
            _copy(x[at : at + count], out[to + left * pitch : to + left * pitch + count])
        elif plain:
            for c in range(right - left):
                dst = to + (left + c) * pitch
                src = at + c * strides[2]
                _copy(x[src : src + channels], out[dst : dst + channels])
        else:
            for c in range(right - left):
                for g in range(groups):
                    dst = to + (left + c) * pitch + g * deep
                    src = at + c * strides[2] + g * per * strides[0]
                    for k in range(per):
                        out[dst + k] = x[src + k * strides[0]]


@borrowing
def _run(source, frame, places, weights, ends, extent):  # type: ignore[no-untyped-def]
    """Image after image; of each a stretch of places for all channels.

    - source: bytes, and where the images start; frame: how they are padded, see `pad`
    - places: where the window of every place begins, or whether they lie evenly, how far apart; taps
    - weights: words, and the panels that they make; ends: tables, result, where its images start, channels
    - extent: places, and how many of them all panels make before the next
    """
    (x, x0), (w, panels), (pixels, chunk) = source, weights, extent
    for i in range(x0.shape[0]):
        start, image = x0[i], x
        if frame[0]:
            pad(x, start, frame)
            start, image = 0, frame[8]
        for first in range(0, pixels, chunk):
            part = ends[4][i], first, min(first + chunk, pixels), pixels
            for p in range(panels.shape[0]):
                if panels[p, 2] > WIDEST:
                    _channels(image, start + panels[p, 0], places, w, panels[p], ends, part)
                else:
                    _words(image, start + panels[p, 0], places, w, panels[p], ends, part)


@borrowing
def _words(x, x0, places, w, panel, ends, part):  # type: ignore[no-untyped-def]
    """A panel whose every channel reads words of four: panel[2] vectors of LANES channels."""
    (base, flat, step, at), (narrow, wide, flags, y, _, pitch) = places, ends
    (y0, first, final, pixels), y1 = part, panel[1]
    vectors, last, w0, vec, n = panel[2], panel[3], panel[4], panel[5], at.shape[0]
    tall = 6 if vectors == WIDEST else ROWS
    height = tall if pixels >= tall else 1
    for place in range(first, final, height):
        q = min(place, pixels - height)            # the last tile may make some places again
        to = y0 + y1 + q * pitch
        start, row = (x0 + q * step, 0) if flat else (x0, q)
        if height == 1:
            if vectors == 4:
                one_four(x, start, base, row, at, n, w, w0, narrow, wide, flags, vec, last, y, to, pitch)
            elif vectors == 3:
                one_three(x, start, base, row, at, n, w, w0, narrow, wide, flags, vec, last, y, to, pitch)
            elif vectors == 2:
                one_two(x, start, base, row, at, n, w, w0, narrow, wide, flags, vec, last, y, to, pitch)
            else:
                one_one(x, start, base, row, at, n, w, w0, narrow, wide, flags, vec, last, y, to, pitch)
        elif vectors == 4:
            six_four(x, start, base, row, at, n, w, w0, narrow, wide, flags, vec, last, y, to, pitch)
        elif vectors == 3:
            eight_three(x, start, base, row, at, n, w, w0, narrow, wide, flags, vec, last, y, to, pitch)
        elif vectors == 2:
            eight_two(x, start, base, row, at, n, w, w0, narrow, wide, flags, vec, last, y, to, pitch)
        else:
            eight_one(x, start, base, row, at, n, w, w0, narrow, wide, flags, vec, last, y, to, pitch)


@borrowing
def _channels(x, x0, places, w, panel, ends, part):  # type: ignore[no-untyped-def]
    """A panel whose every channel reads its own bytes: panel[2] channels."""
    (base, _, _, at), (narrow, wide, flags, y, _, pitch) = places, ends
    (y0, first, final, pixels), y1 = part, panel[1]
    width, w0, vec, n = panel[2], panel[4], panel[5], at.shape[0] // 4
    height = TALL if pixels >= TALL else 1
    for place in range(first, final, height):
        q = min(place, pixels - height)            # the last tile may make some places again
        to = y0 + y1 + q * pitch
        if height == 1:
            if width == 64:
                single_64(x, x0, base, q, at, n, w, w0, narrow, wide, flags, vec, y, to, pitch)
            elif width == 32:
                single_32(x, x0, base, q, at, n, w, w0, narrow, wide, flags, vec, y, to, pitch)
            else:
                single_16(x, x0, base, q, at, n, w, w0, narrow, wide, flags, vec, y, to, pitch)
        elif width == 64:
            deep_64(x, x0, base, q, at, n, w, w0, narrow, wide, flags, vec, y, to, pitch)
        elif width == 32:
            deep_32(x, x0, base, q, at, n, w, w0, narrow, wide, flags, vec, y, to, pitch)
        else:
            deep_16(x, x0, base, q, at, n, w, w0, narrow, wide, flags, vec, y, to, pitch)
