"""Compiled sums of float products by the chunk rule.
They use float64 vector code, with a proof for each chunk that nothing was lost or that the rounding to
float32 cannot be another; else they go term by term, exactly.

A sum is exact in float64, in any order, if all its terms are multiples of a unit of which no partial sum
has 2^53. For `count` products of numbers of `digits` bits that holds where the exponents of the factors lie
in ranges of together no more than 53 - 2 digits - log2(count). Where they do not, the sum of n terms is off
by no more than n 2^-52 |a| |b| (Cauchy and Schwarz).

`space` is where kernels write on their way: a panel of columns, where its rows start, the largest and the
smallest exponents of its columns, their norms, sums, what a tile left open, digits (see `nearest`) with the
tile's masks.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from npuflow.base.compiled import borrowing
from npuflow.kernels.floats.float_lanes import (
    EXPONENT,
    LANES,
    NOTHING,
    VECTORS,
    WIDE,
    brains,
    brains_apart,
    eight,
    four,
    halves_,
    halves_apart,
    one,
    reached,
    squared,
    two,
)

PLACES = 96  # columns that are laid out together: a whole number of tiles
UNIT = 2.0**-53
LIMBS, ORIGIN = 72, 1200  # 32-bit digits that hold any sum of float64s from 2^-ORIGIN on


@borrowing
def widen(x, at, step, n, halves, out, to):  # type: ignore[no-untyped-def]
    """out[to + i] = the number that x[at + i * step] is the pattern of."""
    if step == 1 and halves:
        halves_(out, to, x, at, n)
    elif step == 1:
        brains(out, to, x, at, n)
    elif halves:
        halves_apart(out, to, x, at, n, step)
    else:
        brains_apart(out, to, x, at, n, step)


@borrowing
def extent(high, low):  # type: ignore[no-untyped-def]
    """How far the largest and the smallest exponent field are apart."""
    return (high - low) >> 52 if high > low else np.int64(0)


@borrowing
def logarithm(count):  # type: ignore[no-untyped-def]
    """The least power of two that is not below a count, as its exponent."""
    bits = 0
    while 1 << bits < count:
        bits += 1
    return bits


@borrowing
def nearest(terms, first, n, limbs):  # type: ignore[no-untyped-def]
    """The float32 nearest to the exact sum of numbers. First term by term with Knuth's sum without error;
    where that loses a bit, in digits of 32 bits."""
    total, lost = 0.0, False
    for k in range(n):
        more = terms[first + k]
        now = total + more
        part = now - total
        lost = lost or ((total - (now - part)) + (more - part) != 0.0)
        total = now
    return digits_of(terms, first, n, limbs) if lost else np.float32(total)


@borrowing
def digits_of(terms, first, n, limbs):  # type: ignore[no-untyped-def]
    """The same in `limbs`, digits of 32 bits that are carried at the end."""
    mask, sign = np.int64(0xFFFFFFFF), 1.0
    for i in range(LIMBS):
        limbs[i] = 0
    for k in range(first, first + n):
        fraction, exponent = math.frexp(abs(terms[k]))
        whole, place = np.int64(fraction * 9007199254740992.0), exponent - 53 + ORIGIN
        at, up, unit = place >> 5, place & 31, np.int64(-1 if terms[k] < 0 else 1)
        low, top = (whole & mask) << up, (whole >> 32) << up
        limbs[at] += unit * (low & mask)
        limbs[at + 1] += unit * ((low >> 32) + (top & mask))
        limbs[at + 2] += unit * (top >> 32)
    for again in range(2):
        for i in range(LIMBS - 1):
            limbs[i + 1] += limbs[i] >> 32
            limbs[i] &= mask
        if again == 0 and limbs[LIMBS - 1] < 0:
            sign = -1.0
            for i in range(LIMBS):
                limbs[i] = -limbs[i]
    return np.float32(sign * leading(limbs))


@borrowing
def leading(limbs):  # type: ignore[no-untyped-def]
    """The first 32 to 53 bits of carried digits, the last one set where anything follows: that rounds as the
    whole does."""
    top = LIMBS - 2
    while top > 0 and limbs[top] == 0:
        top -= 1
    if top == 0:
        return 0.0
    found, sticky = (limbs[top] << 31) | (limbs[top - 1] >> 1), limbs[top - 1] & 1
    for i in range(top - 1):
        sticky |= limbs[i]
    up = 0
    while found >> up >= 1 << 53:
        up += 1
    sticky |= found & ((np.int64(1) << up) - 1)
    found = (found >> up) | (1 if sticky != 0 else 0)
    return math.ldexp(np.float64(found), 32 * (top - 1) + 1 + up - ORIGIN)


@borrowing
def settle(  # type: ignore[no-untyped-def]
    a, ao, rows, b, bo, base, count, total, to, pitch, raw, vectors, limbs, sure
):
    """What a tile left open: such a sum is taken term by term, unless it is infinite or NaN or, by `sure`
    (see `exact`), is exact in float64."""
    terms = rows * vectors * LANES
    for v in range(rows * vectors):
        mask, r = limbs[LIMBS + v], v // vectors
        for lane in range(LANES):
            if not (mask >> lane) & 1:
                continue
            q, value = v % vectors * LANES + lane, raw[v * LANES + lane]
            found = np.float32(value)
            if math.isfinite(value) and not exact(sure, r, q):
                for k in range(count):
                    raw[terms + k] = a[ao + k * rows + r] * b[bo + base[k] + q]
                found = nearest(raw, terms, count, limbs)
            total[to + r * pitch + q] += found + np.float32(0.0)


@borrowing
def exact(sure, r, q):  # type: ignore[no-untyped-def]
    """Whether the exponents of a row and of a column lie near enough to each other: `sure` has those of
    rows, the first row, those of columns (none: unknown), the first column, and the range that is
    allowed."""
    spreads, row, high, low, column, free = sure
    return high.shape[0] > 0 and spreads[row + r] + extent(high[column + q], low[column + q]) <= free


@borrowing
def chunk_sums(weights, first, count, spreads, left, places, digits, space):  # type: ignore[no-untyped-def]
    """Sums[row, place] += one chunk: `count` terms of K from `first` on. `weights`: numbers, and the table
    of tiles (first row, rows, where its numbers start). `spreads` has each row's range of exponents in the
    chunk, `left` its norm."""
    a, table = weights
    panel, base, high, low, right, total, raw, limbs = space
    for q in range(places):
        high[q], low[q], right[q] = 0, NOTHING, 0.0
    for k in range(count):
        reached(high, 0, low, 0, panel, k * PLACES, places)
    widest, normed = np.int64(0), False
    for q in range(places):
        widest = max(widest, extent(high[q], low[q]))
    free = 53 - 2 * digits - logarithm(count)
    for t in range(table.shape[0]):
        row, rows, at = table[t, 0], table[t, 1], table[t, 2] + first * table[t, 1]
        scale = 0.0
        for r in range(row, row + rows):
            if spreads[r] + widest > free:
                scale = 4.0 * count * UNIT
        if scale > 0.0 and not normed:
            normed = True
            norms(panel, count, places, right)
        for q in range(0, places, WIDE):
            to = row * PLACES + q
            if tile(a, at, rows, panel, q, base, count, left, row, scale, right, total, to, raw, limbs):
                sure = (spreads, row, high, low, q, free)
                settle(a, at, rows, panel, q, base, count, total, to, PLACES, raw, VECTORS, limbs, sure)


@borrowing
def tile(  # type: ignore[no-untyped-def]
    a, at, rows, b, q, base, n, left, row, scale, right, total, to, raw, limbs
):
    p = PLACES
    if rows == 8:
        return eight(a, at, b, q, base, 0, n, left, row, scale, right, q, total, to, p, raw, 0, limbs, LIMBS)
    if rows == 4:
        return four(a, at, b, q, base, 0, n, left, row, scale, right, q, total, to, p, raw, 0, limbs, LIMBS)
    if rows == 2:
        return two(a, at, b, q, base, 0, n, left, row, scale, right, q, total, to, p, raw, 0, limbs, LIMBS)
    return one(a, at, b, q, base, 0, n, left, row, scale, right, q, total, to, p, raw, 0, limbs, LIMBS)


@borrowing
def norms(panel, count, places, right):  # type: ignore[no-untyped-def]
    """The norm of every column."""
    for k in range(count):
        squared(right, 0, panel, k * PLACES, places)
    for q in range(places):
        right[q] = math.sqrt(right[q])


def exponents(values: Any) -> tuple[Any, Any]:
    """Largest and smallest exponent field along the last dimension; zeros have none."""
    fields = np.ascontiguousarray(values, np.float64).view(np.int64) & EXPONENT
    return fields.max(-1, initial=0), np.where(fields == 0, NOTHING, fields).min(-1, initial=NOTHING)
