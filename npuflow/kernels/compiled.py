"""Compiled kernels (numba): rows of elements with explicit offsets, so that one kernel serves every layout.

An operand is one argument, (x, xo, xs): a flat typed array, where each row of it starts, and the step
within a row. So are (shift, half, mode) of a rounding and (zero, lo, hi) of a result. Roundings are numbered
as in hw.isa.ROUNDINGS. Products fit 62 bits: who calls has proved it. Kernels of one opcode are in its file.
"""

from __future__ import annotations

import numpy as np

from npuflow.base.compiled import compiled


@compiled
def rounded(p, shift, half, mode):  # type: ignore[no-untyped-def]
    if mode == 0:
        return (p + half) >> shift
    if mode == 1:
        return (p + half - 1 + ((p >> shift) & 1)) >> shift
    if mode == 2:
        return (p + half - (1 if p < 0 else 0)) >> shift
    return (p + (half + half - 1 if p < 0 else 0)) >> shift


@compiled
def rounded_wide(v, m, shift, mode):  # type: ignore[no-untyped-def]
    """R(v * m / 2^shift) where the product takes up to 92 bits: v in two limbs, the lower of 30 bits.
    30 <= shift <= 62, 0 <= m < 2^32."""
    low = (v & 0x3FFFFFFF) * m
    high = (v >> 30) * m + (low >> 30)
    low &= 0x3FFFFFFF
    more = shift - 30
    floor = high >> more
    rest = ((high - (floor << more)) << 30 | low) if more <= 30 else high - (floor << more)
    half = np.int64(1) << (shift - 1) if more <= 30 else np.int64(1) << (more - 1)
    beyond = more > 30 and low != 0       # what `rest` leaves out then
    if mode == 3:
        return floor + (1 if high < 0 and (rest != 0 or beyond) else 0)
    if rest != half or beyond:
        return floor + (1 if rest >= half else 0)
    return floor + (1 if mode == 0 or (mode == 1 and floor & 1) or (mode == 2 and high >= 0) else 0)


@compiled
def inside(left, step, width, count):  # type: ignore[no-untyped-def]
    """The first of `count` places at left, left + step, ... that lies in a row of `width`,
    and the one after the last."""
    first = min(count, max(0, -(left // step)))
    return first, max(first, min(count, (width - 1 - left) // step + 1))


@compiled
def linear_rows(left, right, out, n, factors, rounding, clamp):  # type: ignore[no-untyped-def]
    """y = R(((a - za) * ma + (b - zb) * mb) / 2^shift) + zero, clamped. `factors`: za, zb, ma, mb."""
    (a, ao, ast), (b, bo, bs), (y, yo, ys) = left, right, out
    (za, zb, ma, mb), (shift, half, mode), (zero, lo, hi) = factors, rounding, clamp
    for r in range(yo.shape[0]):
        if ast == 1 and bs == 1 and ys == 1:
            p, q, dst = a[ao[r] : ao[r] + n], b[bo[r] : bo[r] + n], y[yo[r] : yo[r] + n]
            for i in range(n):
                v = (np.int64(p[i]) - za) * ma + (np.int64(q[i]) - zb) * mb
                dst[i] = min(max(rounded(v, shift, half, mode) + zero, lo), hi)
        else:
            for i in range(n):
                v = (np.int64(a[ao[r] + i * ast]) - za) * ma + (np.int64(b[bo[r] + i * bs]) - zb) * mb
                y[yo[r] + i * ys] = min(max(rounded(v, shift, half, mode) + zero, lo), hi)
