"""Compiled kernels of element-wise and windowed commands on floats.
Patterns become float64, are computed with, and are rounded once.
"""

from __future__ import annotations

import math

import numpy as np

from npuflow.base.compiled import borrowing
from npuflow.kernels.compiled import inside
from npuflow.kernels.floats.float_lanes import (
    EXPONENT,
    NOTHING,
    bits64,
    brain,
    half,
    real64,
    to_brains,
    to_brains_apart,
    to_halves,
    to_halves_apart,
)
from npuflow.kernels.floats.float_sums import extent, logarithm, nearest, widen

BLOCK = 1024  # numbers that are computed with at a time
OPERATIONS = ("add", "sub", "mul", "div", "min", "max", "prelu")
ALONE = ("neg", "abs", "square", "sqrt", "reciprocal", "floor", "ceil", "round")


@borrowing
def narrow(values, first, n, bounds, target):  # type: ignore[no-untyped-def]
    """y[at + i * step] = the pattern of values[first + i], rounded once and clamped. NaN stays NaN. `target`:
    y, at, step, and whether these are float16."""
    (low, high), (y, at, step, halves) = bounds, target
    if step == 1 and halves:
        to_halves(values, first, y, at, n, low, high)
    elif step == 1:
        to_brains(values, first, y, at, n, low, high)
    elif halves:
        to_halves_apart(values, first, y, at, n, step, low, high)
    else:
        to_brains_apart(values, first, y, at, n, step, low, high)


@borrowing
def round_rows(sums, out, n, channel, divisor, bounds, buffer):  # type: ignore[no-untyped-def]
    (acc, ao), (y, yo, ys, halves), (lows, highs) = sums, out, bounds
    for r in range(yo.shape[0]):
        c = channel[r]
        if divisor == 1:
            narrow(acc, ao[r], n, (lows[c], highs[c]), (y, yo[r], ys, halves))
            continue
        for first in range(0, n, BLOCK):
            size = min(BLOCK, n - first)
            for i in range(size):
                buffer[i] = acc[ao[r] + first + i]
            np.divide(buffer[:size], np.float64(divisor), buffer[:size])
            narrow(buffer, 0, size, (lows[c], highs[c]), (y, yo[r] + first * ys, ys, halves))


@borrowing
def arith_rows(left, right, out, n, op, bounds, room):  # type: ignore[no-untyped-def]
    (a, ao, ast, ah), (b, bo, bs, bh), (y, yo, ys, yh), (one, two) = left, right, out, room
    for r in range(yo.shape[0]):
        for first in range(0, n, BLOCK):
            size = min(BLOCK, n - first)
            widen(a, ao[r] + first * ast, ast, size, ah, one, 0)
            widen(b, bo[r] + first * bs, bs, size, bh, two, 0)
            combined(one[:size], two[:size], op)
            narrow(one, 0, size, bounds, (y, yo[r] + first * ys, ys, yh))


@borrowing
def unary_rows(source, out, n, op, bounds, buffer):  # type: ignore[no-untyped-def]
    (x, xo, xs, xh), (y, yo, ys, yh) = source, out
    for r in range(yo.shape[0]):
        for first in range(0, n, BLOCK):
            size = min(BLOCK, n - first)
            widen(x, xo[r] + first * xs, xs, size, xh, buffer, 0)
            alone(buffer[:size], op)
            narrow(buffer, 0, size, bounds, (y, yo[r] + first * ys, ys, yh))


@borrowing
def alone(p, op):  # type: ignore[no-untyped-def]
    """p = f(p), `op` an index of ALONE."""
    if op == 0:
        np.negative(p, p)
    elif op == 1:
        np.absolute(p, p)
    elif op == 2:
        np.multiply(p, p, p)
    elif op == 3:
        np.sqrt(p, p)
    elif op == 4:
        np.divide(np.float64(1.0), p, p)
    elif op == 5:
        np.floor(p, p)
    elif op == 6:
        np.ceil(p, p)
    else:
        np.rint(p, p)


@borrowing
def added(a, b):  # type: ignore[no-untyped-def]
    """a + b; where float64 loses something, the number toward zero with its last bit set."""
    total = a + b
    part = total - a
    lost = (a - (total - part)) + (b - part)
    bits = bits64(total)
    odd = (bits - (1 if (bits64(lost) ^ bits) < 0 else 0)) | 1
    return real64(odd) if lost != 0.0 and abs(total) < np.inf else total


@borrowing
def combined(p, q, op):  # type: ignore[no-untyped-def]
    """p = p op q, `op` an index of OPERATIONS."""
    n = p.shape[0]
    if op < 2:
        sign = 1.0 - 2.0 * op
        for i in range(n):
            p[i] = added(p[i], sign * q[i])
    elif op == 2:
        for i in range(n):
            p[i] *= q[i]
    elif op == 3:
        np.divide(p, q, p)
    elif op == 4:
        for i in range(n):
            p[i] = p[i] if p[i] != p[i] or p[i] < q[i] else q[i]
    elif op == 5:
        for i in range(n):
            p[i] = p[i] if p[i] != p[i] or p[i] > q[i] else q[i]
    else:
        for i in range(n):
            p[i] = p[i] * q[i] if p[i] < 0 else p[i]


@borrowing
def cast_rows(source, out, n, bounds, buffer):  # type: ignore[no-untyped-def]
    (x, xo, xs, xh), (y, yo, ys, yh) = source, out
    for r in range(yo.shape[0]):
        for first in range(0, n, BLOCK):
            size = min(BLOCK, n - first)
            widen(x, xo[r] + first * xs, xs, size, xh, buffer, 0)
            narrow(buffer, 0, size, bounds, (y, yo[r] + first * ys, ys, yh))


@borrowing
def from_codes(source, out, n, scale, bounds, buffer):  # type: ignore[no-untyped-def]
    (x, xo, xs), (y, yo, ys, yh), (factor, zero) = source, out, scale
    for r in range(yo.shape[0]):
        for first in range(0, n, BLOCK):
            size = min(BLOCK, n - first)
            for i in range(size):
                buffer[i] = np.float64(np.int64(x[xo[r] + (first + i) * xs]) - zero) * factor
            narrow(buffer, 0, size, bounds, (y, yo[r] + first * ys, ys, yh))


@borrowing
def to_codes(source, out, n, scale, bounds, buffer):  # type: ignore[no-untyped-def]
    (x, xo, xs, xh), (y, yo, ys), (factor, zero) = source, out, scale
    lowest, highest = np.float64(bounds[0]), np.float64(bounds[1])
    for r in range(yo.shape[0]):
        for first in range(0, n, BLOCK):
            size = min(BLOCK, n - first)
            widen(x, xo[r] + first * xs, xs, size, xh, buffer, 0)
            for i in range(size):
                near = np.rint(buffer[i] * factor)
                near = 0.0 if near != near else near
                y[yo[r] + (first + i) * ys] = np.int64(min(max(near + zero, lowest), highest))


@borrowing
def table_rows(source, table, out, n):  # type: ignore[no-untyped-def]
    (x, xo, xs), (y, yo, ys) = source, out
    for r in range(yo.shape[0]):
        if xs == 1 and ys == 1:
            src, dst = x[xo[r] : xo[r] + n], y[yo[r] : yo[r] + n]
            for i in range(n):
                dst[i] = table[src[i]]
        else:
            for i in range(n):
                y[yo[r] + i * ys] = table[x[xo[r] + i * xs]]


@borrowing
def summed(terms, first, n, digits, limbs):  # type: ignore[no-untyped-def]
    """float32 of the exact sum of numbers of `digits` bits."""
    total, top, least = 0.0, np.int64(0), np.int64(NOTHING)
    for k in range(first, first + n):
        total += terms[k]
        e = bits64(terms[k]) & EXPONENT
        top, least = max(top, e), min(least, np.int64(NOTHING) if e == 0 else e)
    if not math.isfinite(total) or extent(top, least) + logarithm(n) + digits <= 53:
        return np.float32(total) + np.float32(0.0)
    return nearest(terms, first, n, limbs) + np.float32(0.0)


@borrowing
def reduce_rows(source, terms, maximum, sums, kept, chunk, room):  # type: ignore[no-untyped-def]
    """acc[ao[s] + j] over x[xo[s] + kept[j] + terms[..]], `chunk` terms at a time."""
    (x, xo, halves, digits), (acc, ao, keep), (buffer, limbs) = source, sums, room
    count = terms.shape[0]
    size = min(chunk, count)
    for s in range(xo.shape[0]):
        for j in range(kept.shape[0]):
            at, to = xo[s] + kept[j], ao[s] + j
            if maximum:
                best = np.float64(acc[to]) if keep else -np.inf
                for k in range(count):
                    p = x[at + terms[k]]
                    v = np.float64(half(p) if halves else brain(p))
                    best = v if v > best or v != v else best
                acc[to] = np.float32(np.nan) if best != best else np.float32(best + 0.0)
                continue
            total = acc[to] if keep else np.float32(0.0)
            for first in range(0, count, size):
                n = min(size, count - first)
                for k in range(n):
                    p = x[at + terms[first + k]]
                    buffer[k] = half(p) if halves else brain(p)
                total = total + summed(buffer, 0, n, digits, limbs)
            acc[to] = total if total == total else np.float32(np.nan)


@borrowing
def pool_rows(source, target, batch, window, counted, bounds, room):  # type: ignore[no-untyped-def]
    """`window`: kernel, stride, dilation, origin, size of the result. `counted`: the first place that counts,
    the last, and whether the largest is wanted."""
    (x, x0, xb, xs, dims, xh, digits), (y, y0, yb, ys, yh) = source, target
    size, (buffer, wide, limbs), maximum = window[4], room, counted[2]
    for b in range(batch):
        for n in range(dims[0]):
            for c in range(dims[1]):
                at = x0 + b * xb + n * xs[0] + c * xs[1]
                to = y0 + b * yb + n * ys[0] + c * ys[1]
                plane = (x, at, xs, dims, xh, digits)
                for o in range(size[0]):
                    if maximum:
                        _largest(plane, window, o, wide, buffer)
                    else:
                        for q in range(size[1]):
                            buffer[q] = _mean(plane, window, o, q, counted, wide, limbs)
                    narrow(buffer, 0, size[1], bounds, (y, to + o * ys[2], ys[3], yh))


@borrowing
def _largest(plane, window, o, wide, out):  # type: ignore[no-untyped-def]
    (x, at, xs, dims, xh, _), (kernel, stride, dilation, origin, size) = plane, window
    n = size[1]
    for q in range(n):
        out[q] = -np.inf
    for i in range(kernel[0]):
        r = o * stride[0] + i * dilation[0] + origin[0]
        if r < 0 or r >= dims[2]:
            continue
        widen(x, at + r * xs[2], xs[3], dims[3], xh, wide, 0)
        for j in range(kernel[1]):
            left = j * dilation[1] + origin[1]
            lo, hi = inside(left, stride[1], dims[3], n)
            for q in range(lo, hi):
                v = wide[left + q * stride[1]]
                out[q] = v if v > out[q] or v != v else out[q]
    for q in range(n):
        out[q] += 0.0


@borrowing
def _mean(plane, window, o, q, counted, terms, limbs):  # type: ignore[no-untyped-def]
    (x, at, xs, dims, xh, digits), (kernel, stride, dilation, origin, _) = plane, window
    count_lo, count_hi, _ = counted
    n, rows, columns = 0, 0, 0
    for j in range(kernel[1]):
        s = q * stride[1] + j * dilation[1] + origin[1]
        columns += 1 if count_lo[1] <= s < count_hi[1] else 0
    for i in range(kernel[0]):
        r = o * stride[0] + i * dilation[0] + origin[0]
        rows += 1 if count_lo[0] <= r < count_hi[0] else 0
        if r < 0 or r >= dims[2]:
            continue
        for j in range(kernel[1]):
            s = q * stride[1] + j * dilation[1] + origin[1]
            if 0 <= s < dims[3]:
                p = x[at + r * xs[2] + s * xs[3]]
                terms[n] = half(p) if xh else brain(p)
                n += 1
    return np.divide(np.float64(summed(terms, 0, n, digits, limbs)), np.float64(rows * columns))


@borrowing
def softmax_rows(source, target, batch, dims, chunk, bounds, room):  # type: ignore[no-untyped-def]
    """`room` begins with the float32 nearest to exp(-d) for every pattern d."""
    (x, x0, xb, xs, xh), (y, y0, yb, ys, yh) = source, target
    exponential, values, patterns, limbs = room
    size = dims[1]
    for b in range(batch):
        for a in range(dims[0]):
            for i in range(dims[2]):
                widen(x, x0 + b * xb + a * xs[0] + i * xs[2], xs[1], size, xh, values, 0)
                best = -np.inf
                for k in range(size):
                    best = values[k] if values[k] > best or values[k] != values[k] else best
                for k in range(size):
                    values[k] = best - values[k]
                narrow(values, 0, size, bounds, (patterns, 0, 1, yh))
                for k in range(size):
                    values[k] = exponential[patterns[k]]
                total = np.float32(0.0)
                for first in range(0, size, chunk):
                    # numbers of 24 bits
                    total = total + summed(values, first, min(chunk, size - first), 24, limbs)
                np.divide(values[:size], np.float64(total), values[:size])
                to = y0 + b * yb + a * ys[0] + i * ys[2]
                narrow(values, 0, size, bounds, (y, to, ys[1], yh))


@borrowing
def resize_rows(source, target, batch, tables, weights, bounds, room):  # type: ignore[no-untyped-def]
    """Tables are of places in the tile; `weights`: what one unit of a product of two is, and the digits of
    terms."""
    (rows, columns), (unit, digits), (buffer, terms, limbs) = tables, weights, room
    (x, x0, xb, xs, dims, xh), (y, y0, yb, ys, yh) = source, target
    width = columns.shape[0]
    for b in range(batch):
        for plane in range(dims[0] * dims[1]):
            n, c = plane // dims[1], plane % dims[1]
            at, to = x0 + b * xb + n * xs[0] + c * xs[1], y0 + b * yb + n * ys[0] + c * ys[1]
            for o in range(rows.shape[0]):
                for q in range(width):
                    count = 0
                    for k in range(4):
                        i, j = k // 2, k % 2
                        weight = rows[o, 2 + i] * columns[q, 2 + j]
                        if weight != 0:
                            p = x[at + rows[o, i] * xs[2] + columns[q, j] * xs[3]]
                            terms[count] = np.float64(half(p) if xh else brain(p)) * (weight * unit)
                            count += 1
                    buffer[q] = summed(terms, 0, count, digits, limbs)
                narrow(buffer, 0, width, bounds, (y, to + o * ys[2], ys[3], yh))
