"""Compiled convolutions and products of matrices of floats: operands laid out for the tiles of `float_sums`.

Sums go to `acc`. `start` says what they begin with: biases, and whether to begin with what is in `acc`.
`spreads` and `left` have ranges of exponents and norms of rows, by chunk.
"""

from __future__ import annotations

import math

import numpy as np

from npuflow.base.compiled import borrowing
from npuflow.kernels.compiled import inside
from npuflow.kernels.floats.float_lanes import (
    EXPONENT,
    LANES,
    LONG,
    NOTHING,
    WIDE,
    bits64,
    copied,
    filled,
    filled_single,
    line,
    settled,
)
from npuflow.kernels.floats.float_sums import (
    LIMBS,
    PLACES,
    UNIT,
    chunk_sums,
    extent,
    logarithm,
    settle,
    widen,
)


@borrowing
def started(start, channel, acc, at, n, total, to):  # type: ignore[no-untyped-def]
    bias, keep = start
    if keep:
        copied(total, to, acc, at, n)
    else:
        filled_single(total, to, n, bias[channel] if bias.shape[0] > 0 else np.float32(0.0))


@borrowing
def convolution(  # type: ignore[no-untyped-def]
    source, window, runs, parts, terms, chunk, digits, weights, spreads, left, space, acc, size, start
):
    """`source`: patterns, steps, dimensions, whether they are float16. `window`: groups, the columns'
    stride. `runs`: the places of a row of results that a panel holds: where the sample starts in the
    source, row and column of its first tap, places, where in the panel, where in `acc`; `parts`: the first
    run of every panel. `terms`: channel, row and column of every k."""
    a, table = weights
    outs, per, count = table[-1, 0] + table[-1, 1], source[2][1] // window[0], terms.shape[0]
    panel, total = space[0], space[5]
    for g in range(window[0]):
        for p in range(parts.shape[0] - 1):
            begin, end = parts[p], parts[p + 1]
            used = runs[end - 1, 4] + runs[end - 1, 3]
            places = -(-used // WIDE) * WIDE
            for s in range(begin, end):
                for o in range(g * outs, (g + 1) * outs):
                    to = (o - g * outs) * PLACES + runs[s, 4]
                    started(start, o, acc, runs[s, 5] + o * size, runs[s, 3], total, to)
            for first in range(0, count, chunk):
                last, c = min(count, first + chunk), first // chunk
                for k in range(first, last):
                    to = (k - first) * PLACES
                    filled(panel, to + used, places - used, 0.0)
                    for s in range(begin, end):
                        taken(source, g * per, runs, s, terms, k, window[1], panel, to)
                numbers = (a[g], table)
                chunk_sums(numbers, first, last - first, spreads[g, c], left[g, c], places, digits, space)
            for s in range(begin, end):
                for o in range(outs):
                    at = runs[s, 5] + (g * outs + o) * size
                    settled(acc, at, total, o * PLACES + runs[s, 4], runs[s, 3])


@borrowing
def taken(source, group, runs, s, terms, k, stride, panel, to):  # type: ignore[no-untyped-def]
    """The row of a panel that one term of K reads; outside the tile it is 0."""
    x, steps, dims, halves = source
    n, at = runs[s, 3], to + runs[s, 4]
    y, left = runs[s, 1] + terms[k, 1], runs[s, 2] + terms[k, 2]
    if y < 0 or y >= dims[2]:
        filled(panel, at, n, 0.0)
        return
    lo, hi = inside(left, stride, dims[3], n)
    filled(panel, at, lo, 0.0)
    filled(panel, at + hi, n - hi, 0.0)
    begin = runs[s, 0] + (group + terms[k, 0]) * steps[1] + y * steps[2] + (left + lo * stride) * steps[3]
    widen(x, begin, stride * steps[3], hi - lo, halves, panel, at + lo)


@borrowing
def depthwise(  # type: ignore[no-untyped-def]
    source, starts, shape, digits, weights, taps, spreads, left, space, acc, offsets, start
):
    """One input channel a group and one chunk. `shape`: stride, origin, rows and columns of a phase of the
    padded plane, rows and columns of results, outputs of a channel; `taps`: where every tap's run starts in
    the plane. No sum is off by more than `left` (the weights' magnitudes) times the largest number of the
    plane."""
    (_, dims), (plane, right, out, raw, limbs) = source[1:3], space
    wide, size, per = shape[3], shape[4], shape[5]
    count, free = taps.shape[0], 53 - 2 * digits - logarithm(taps.shape[0])
    unknown = (spreads, 0, limbs[:0], limbs[:0], 0, free)
    scale, area = 0.0, size[0] * size[1]
    for s in range(starts.shape[0]):
        for o in range(dims[1] * per):
            if o % per == 0:
                top, least = phases(source, starts[s] + (o // per) * source[1][1], shape, plane)
                largest = np.inf if top == EXPONENT else math.ldexp(1.0, (top >> 52) - 1022)
                for q in range(LONG):
                    right[q] = largest
            scale = 4.0 * count * UNIT if extent(top, least) + spreads[o] > free else 0.0
            to = offsets[s] + o * area
            for y in range(size[0]):
                started(start, o, acc, to + y * size[1], size[1], out, y * wide)
            for q in range(0, (size[0] - 1) * wide + size[1], LONG):
                at = o * count
                more = (o, scale, right, 0, out, q, 0, raw, 0, limbs, LIMBS)
                if line(weights, at, plane, q, taps, 0, count, left, *more):
                    vectors = LONG // LANES
                    settle(weights, at, 1, plane, q, taps, count, out, q, 0, raw, vectors, limbs, unknown)
            for y in range(size[0]):
                settled(acc, to + y * size[1], out, y * wide, size[1])


@borrowing
def phases(source, at, shape, plane):  # type: ignore[no-untyped-def]
    """plane[phase][r, c] = x at row r * stride + phase + origin; 0 outside the tile. Gives the largest and
    the smallest exponent field."""
    x, steps, dims, halves = source
    stride, origin, deep, wide = shape[:4]
    to = 0
    for p in range(stride[0]):
        for f in range(stride[1]):
            left = f + origin[1]
            lo, hi = inside(left, stride[1], dims[3], wide)
            for r in range(deep):
                y = r * stride[0] + p + origin[0]
                if y < 0 or y >= dims[2]:
                    filled(plane, to, wide, 0.0)
                else:
                    filled(plane, to, lo, 0.0)
                    filled(plane, to + hi, wide - hi, 0.0)
                    begin = at + y * steps[2] + (left + lo * stride[1]) * steps[3]
                    widen(x, begin, stride[1] * steps[3], hi - lo, halves, plane, to + lo)
                to += wide
    top, least = np.int64(0), np.int64(NOTHING)
    for i in range(to):
        e = bits64(plane[i]) & EXPONENT
        top, least = max(top, e), min(least, np.int64(NOTHING) if e == 0 else e)
    return top, least


@borrowing
def matrices(  # type: ignore[no-untyped-def]
    lefts, rights, size, chunk, digits, row, weights, spreads, left, space, acc, offsets, start
):
    """acc[i] = start + a[i] @ b[i]. `lefts`: patterns, where every row of every left side starts, the step
    within a row, whether they are float16; `rights`: where every right side starts, and two steps; `size`:
    rows, K, columns."""
    m, count, n = size
    bias, keep = start
    panel, total = space[0], space[5]
    for i in range(rights[1].shape[0]):
        packed(lefts, i, count, chunk, weights, spreads, left, row)
        for p in range(0, n, PLACES):
            used = min(PLACES, n - p)
            places = -(-used // WIDE) * WIDE
            for r in range(m):
                if keep or bias.shape[0] == 0:
                    started(start, 0, acc, offsets[i, r] + p, used, total, r * PLACES)
                else:
                    copied(total, r * PLACES, bias, p, used)
            for first in range(0, count, chunk):
                last, c = min(count, first + chunk), first // chunk
                y, at, ys, halves = rights
                for k in range(first, last):
                    to = (k - first) * PLACES
                    filled(panel, to + used, places - used, 0.0)
                    widen(y, at[i] + k * ys[0] + p * ys[1], ys[1], used, halves, panel, to)
                chunk_sums(weights, first, last - first, spreads[c], left[c], places, digits, space)
            for r in range(m):
                settled(acc, offsets[i, r] + p, total, r * PLACES, used)


@borrowing
def packed(lefts, i, count, chunk, weights, spreads, left, line_):  # type: ignore[no-untyped-def]
    """Left sides by tiles of rows, with norms and ranges of exponents of every chunk."""
    (x, rows, step, halves), (a, table) = lefts, weights
    for t in range(table.shape[0]):
        for r in range(table[t, 1]):
            row = table[t, 0] + r
            widen(x, rows[i, row], step, count, halves, line_, 0)
            for k in range(count):
                a[table[t, 2] + k * table[t, 1] + r] = line_[k]
            for c in range(spreads.shape[0]):
                top, least, squares = np.int64(0), np.int64(NOTHING), 0.0
                for k in range(c * chunk, min(count, (c + 1) * chunk)):
                    e = bits64(line_[k]) & EXPONENT
                    top, least = max(top, e), min(least, np.int64(NOTHING) if e == 0 else e)
                    squares += line_[k] * line_[k]
                left[c, row], spreads[c, row] = math.sqrt(squares), extent(top, least)
