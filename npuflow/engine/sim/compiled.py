"""Compiled kernels (numba): rows of elements with explicit offsets, so that one kernel serves every layout.

Every operand is a flat typed array; `xo[r]` is where row r of x starts and `xs` the step within the row. Roundings are
numbered as in hw.isa.ROUNDINGS. Products fit 62 bits: who calls has proved it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba
import numpy as np


def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """Machine code, cached on disk, that releases the interpreter lock."""
    made: Callable[..., Any] = numba.njit(cache=True, nogil=True)(function)
    return made


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
def inside(left, step, width, count):  # type: ignore[no-untyped-def]
    """The first of `count` places at left, left + step, ... that lies in a row of `width`, and the one after the last."""
    first = min(count, max(0, -(left // step)))
    return first, max(first, min(count, (width - 1 - left) // step + 1))


@compiled
def requant_rows(acc, ao, y, yo, ys, n, channel, bias, m, lo, hi, shift, half, mode, zero):  # type: ignore[no-untyped-def]
    for r in range(ao.shape[0]):
        c = channel[r]
        b, k, low, high = bias[c], m[c], lo[c] - zero, hi[c] - zero
        src = acc[ao[r] : ao[r] + n]
        if ys == 1 and mode == 0:                      # the usual case by itself: only so does it become vector code
            dst = y[yo[r] : yo[r] + n]
            for i in range(n):
                v = ((np.int64(src[i]) + b) * k + half) >> shift
                dst[i] = min(max(v, low), high) + zero
        else:
            for i in range(n):
                v = rounded((np.int64(src[i]) + b) * k, shift, half, mode)
                y[yo[r] + i * ys] = min(max(v, low), high) + zero


@compiled
def requant_dense(acc, ao, y, yo, n, channel, bias, m, lo, hi, shift, half, mode, zero):  # type: ignore[no-untyped-def]
    """Rows without gaps whose sums, multipliers and results fit 32 bits: vector code.

    Products of unsigned 32-bit numbers are what processors have. So 2^31 is added to every sum, and taken off again with
    2^62 more, which keeps the total positive: a logical shift is then as good as an arithmetic one.
    """
    top = np.uint64(1) << np.uint64(62)
    up = np.uint64(shift)
    less = np.int64(np.int32(top >> up))
    odd = mode == 1
    add = np.uint64(half - 1 if odd else half)
    for r in range(ao.shape[0]):
        c = channel[r]
        b, k = np.int32(bias[c]), np.uint32(m[c])
        low, high = np.int32(lo[c] - zero), np.int32(hi[c] - zero)
        base = top - (np.uint64(k) << np.uint64(31))
        src, dst = acc[ao[r] : ao[r] + n], y[yo[r] : yo[r] + n]
        if odd:
            for i in range(n):
                p = np.uint64(np.uint32(np.int32(src[i] + b)) ^ np.uint32(0x80000000)) * np.uint64(k) + base
                v = np.int32(np.int32(np.uint32((p + add + ((p >> up) & np.uint64(1))) >> up)) - less)
                dst[i] = np.int32(min(max(v, low), high) + zero)
        else:
            for i in range(n):
                p = np.uint64(np.uint32(np.int32(src[i] + b)) ^ np.uint32(0x80000000)) * np.uint64(k) + base
                v = np.int32(np.int32(np.uint32((p + add) >> up)) - less)
                dst[i] = np.int32(min(max(v, low), high) + zero)


@compiled
def requant_inner(acc, ao, y, yo, ys, n, bias, m, lo, hi, shift, half, mode, zero):  # type: ignore[no-untyped-def]
    for r in range(ao.shape[0]):
        src = acc[ao[r] : ao[r] + n]
        for i in range(n):
            v = rounded((np.int64(src[i]) + bias[i]) * m[i], shift, half, mode) + zero
            y[yo[r] + i * ys] = min(max(v, lo[i]), hi[i])


@compiled
def linear_rows(a, ao, ast, b, bo, bs, y, yo, ys, n, za, zb, ma, mb, shift, half, mode, zero, lo, hi):  # type: ignore[no-untyped-def]
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


@compiled
def product_rows(a, ao, ast, b, bo, bs, y, yo, ys, n, za, zb, m, shift, half, mode, zero, lo, hi):  # type: ignore[no-untyped-def]
    for r in range(yo.shape[0]):
        if ast == 1 and bs == 1 and ys == 1:
            p, q, dst = a[ao[r] : ao[r] + n], b[bo[r] : bo[r] + n], y[yo[r] : yo[r] + n]
            for i in range(n):
                v = (np.int64(p[i]) - za) * (np.int64(q[i]) - zb) * m
                dst[i] = min(max(rounded(v, shift, half, mode) + zero, lo), hi)
        else:
            for i in range(n):
                v = (np.int64(a[ao[r] + i * ast]) - za) * (np.int64(b[bo[r] + i * bs]) - zb) * m
                y[yo[r] + i * ys] = min(max(rounded(v, shift, half, mode) + zero, lo), hi)


@compiled
def prelu_rows(x, xo, xs, w, wo, ws, y, yo, ys, n, zx, zw, m, negative, below, above, zero, lo, hi):  # type: ignore[no-untyped-def]
    for r in range(yo.shape[0]):
        for i in range(n):
            d = np.int64(x[xo[r] + i * xs]) - zx
            if d >= 0:
                v = rounded(d * m, *above)
            else:
                v = rounded(d * (np.int64(w[wo[r] + i * ws]) - zw) * negative, *below)
            y[yo[r] + i * ys] = min(max(v + zero, lo), hi)


@compiled
def minmax_rows(a, ao, ast, b, bo, bs, y, yo, ys, n, largest, lo, hi):  # type: ignore[no-untyped-def]
    for r in range(yo.shape[0]):
        for i in range(n):
            p, q = np.int32(a[ao[r] + i * ast]), np.int32(b[bo[r] + i * bs])
            v = max(p, q) if largest else min(p, q)
            y[yo[r] + i * ys] = min(max(v, lo), hi)


@compiled
def table_rows(x, xo, xs, table, base, y, yo, ys, n):  # type: ignore[no-untyped-def]
    """False when an index leaves the table."""
    size, inside = table.shape[0], True
    for r in range(yo.shape[0]):
        for i in range(n):
            d = np.int64(x[xo[r] + i * xs]) - base
            if d < 0 or d >= size:
                inside = False
                d = 0
            y[yo[r] + i * ys] = table[d]
    return inside


@compiled
def codes_rows(x, xo, table, y, yo, n):  # type: ignore[no-untyped-def]
    """y = table[x as a byte]: every code has an entry, rows are contiguous."""
    for r in range(yo.shape[0]):
        src, dst = x[xo[r] : xo[r] + n], y[yo[r] : yo[r] + n]
        for i in range(n):
            dst[i] = table[src[i]]


@compiled
def slope_rows(x, xo, xs, table, base, bits, fraction, lo, hi, y, yo, ys, n):  # type: ignore[no-untyped-def]
    size, inside = table.shape[0], True
    one, steps = np.int64(1) << bits, bits + fraction
    half = np.int64(1) << (steps - 1)
    for r in range(yo.shape[0]):
        for i in range(n):
            d = np.int64(x[xo[r] + i * xs]) - base
            k = d >> bits
            if k < 0 or k + 1 >= size:
                inside = False
                k = 0
            f = d & (one - 1)
            v = (np.int64(table[k]) * (one - f) + np.int64(table[k + 1]) * f + half) >> steps
            y[yo[r] + i * ys] = min(max(v, lo), hi)
    return inside


@compiled
def softmax(x, x0, xb, xs, y, y0, yb, ys, batch, dims, low, high, bits, m, zero, lo, hi):  # type: ignore[no-untyped-def]
    """False when an index leaves a table or the exponentials sum to 0. `high` is empty when there is only one table."""
    count, rows, inner = dims
    e = np.empty(rows, np.int64)
    good = True
    for b in range(batch):
        for a in range(count):
            for i in range(inner):
                at = x0 + b * xb + a * xs[0] + i * xs[2]
                top = np.int64(x[at])
                for r in range(rows):
                    top = max(top, np.int64(x[at + r * xs[1]]))
                total = np.int64(0)
                for r in range(rows):
                    d = top - np.int64(x[at + r * xs[1]])
                    k = d if high.shape[0] == 0 else d >> bits
                    v = np.int64(0)
                    if high.shape[0] == 0:
                        good = good and k < low.shape[0]
                        v = np.int64(low[min(k, low.shape[0] - 1)])
                    else:
                        good = good and k < high.shape[0]
                        v = (np.int64(low[d & ((1 << bits) - 1)]) * np.int64(high[min(k, high.shape[0] - 1)])) >> 15
                    e[r] = v
                    total += v
                if total <= 0:
                    good = False
                    total = np.int64(1)
                to = y0 + b * yb + a * ys[0] + i * ys[2]
                for r in range(rows):
                    v = (2 * e[r] * m + total) // (2 * total) + zero
                    y[to + r * ys[1]] = min(max(v, lo), hi)
    return good
