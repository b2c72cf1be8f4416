"""The compiled kernel that converts bfloat16 activations to blocks that share an exponent, by exponent fields
and shifted integers."""

from __future__ import annotations

import numpy as np

from npuflow.kernels.compiled import borrowing

LENGTHS = np.array([int(i).bit_length() for i in range(256)], np.int64)  # bits of a significand


@borrowing
def order(magnitude, lengths):  # type: ignore[no-untyped-def]
    """The biased exponent of a pattern without its sign, of subnormal numbers 0 or less; -300 of zero."""
    field = magnitude >> 7
    if field > 0:
        return field
    return lengths[magnitude] - 7 if magnitude > 0 else -300


@borrowing
def element(pattern, unit, top, lengths):  # type: ignore[no-untyped-def]
    """The pattern of the nearest multiple of 2^(unit - 134), ties to even, at most the one by `top`."""
    magnitude = pattern & 0x7FFF
    field = magnitude >> 7
    digits = (magnitude & 127) | (128 if field > 0 else 0)
    down = min(unit - max(field, 1), 12)
    kept = digits >> down
    half, rest = (1 << down) >> 1, digits & ((1 << down) - 1)
    if rest > half or (rest == half and half > 0 and kept & 1 == 1):
        kept += 1
    kept = min(kept, top)
    if kept == 0:
        return 0
    lead = lengths[kept] - 1
    exponent = unit + lead - 7
    found = kept << (unit - 1)  # below the least normal number
    if exponent >= 1:
        found = (exponent << 7) | ((kept << (7 - lead)) & 127)
    return found | (pattern & 0x8000)


@borrowing
def convert_rows(x, xo, xs, y, yo, ys, shape, kind, lengths):  # type: ignore[no-untyped-def]
    """Every place r has a line of groups * per elements from x[xo[r]] on, `xs` apart. A group is converted
    block by block; in y it has `deep` elements, zeros behind its own. `kind`: elements of a block, bits of
    one, elements that share a micro-exponent (0: none do), the least exponent."""
    groups, per, deep = shape
    size, bits, pair, least = kind
    top = (1 << (bits - 1)) - 1
    for g in range(groups):
        for first in range(0, deep, size):
            count, whole = min(size, per - first), min(size, deep - first)
            for r in range(xo.shape[0]):
                at, to = xo[r] + (g * per + first) * xs, yo[r] + (g * deep + first) * ys
                most = 0
                for k in range(count):
                    most = max(most, int(x[at + k * xs]) & 0x7FFF)
                for k in range(count, whole):
                    y[to + k * ys] = 0
                if most >= 0x7F80:
                    for k in range(count):
                        y[to + k * ys] = 0x7FC0
                    continue
                exponent = max(order(most, lengths), least)
                step = pair if pair > 0 else count
                for begin in range(0, count, step):
                    unit, end = exponent + 9 - bits, min(begin + step, count)
                    larger = 0
                    for k in range(begin, end):
                        larger = max(larger, int(x[at + k * xs]) & 0x7FFF)
                    if pair > 0 and larger > 0 and order(larger, lengths) < exponent:
                        unit -= 1
                    for k in range(begin, end):
                        y[to + k * ys] = element(int(x[at + k * xs]), unit, top, lengths)
