"""Compiled kernels of convolutions and products of matrices: columns, rows of bytes, sums, depthwise."""

from __future__ import annotations

import numpy as np

from npuflow.base.compiled import compiled
from npuflow.kernels.compiled import inside


@compiled
def columns(  # type: ignore[no-untyped-def]
    x, x0, xb, xs, dims, kernel, stride, dilation, origin, insert, size, out, first, shift, add, fill
):
    """out[r, c*i*j, y*x] = byte of x + add under the window ((x >> shift) + add, modulo
    256), `fill` outside the tile.

    Row r of `out` is sample first + r of the B * n samples of the tile.
    """
    n, channels, height, width = dims
    for r in range(out.shape[0]):
        b, s = (first + r) // n, (first + r) % n
        for c in range(channels):
            plane = x0 + b * xb + s * xs[0] + c * xs[1]
            for i in range(kernel[0]):
                for j in range(kernel[1]):
                    k = (c * kernel[0] + i) * kernel[1] + j
                    for oy in range(size[0]):
                        row = out[r, k, oy * size[1] : (oy + 1) * size[1]]
                        sy = oy * stride[0] + i * dilation[0] + origin[0]
                        if sy < 0 or sy % insert[0] or sy // insert[0] >= height:
                            row[:] = fill
                            continue
                        at = plane + (sy // insert[0]) * xs[2]
                        _row(
                            x,
                            at,
                            xs[3],
                            width,
                            row,
                            j * dilation[1] + origin[1],
                            stride[1],
                            insert[1],
                            shift,
                            add,
                            fill,
                        )


@compiled
def _row(x, at, step, width, row, origin, stride, insert, shift, add, fill):  # type: ignore[no-untyped-def]
    n = row.shape[0]
    if insert != 1:
        for o in range(n):
            s = o * stride + origin
            if s < 0 or s % insert or s // insert >= width:
                row[o] = fill
            else:
                row[o] = np.uint8((np.int32(x[at + (s // insert) * step]) >> shift) + add)
        return
    lo = min(n, max(0, -(origin // stride)))           # first o with o * stride + origin >= 0
    hi = max(lo, min(n, (width - 1 - origin) // stride + 1))
    for o in range(lo):
        row[o] = fill
    for o in range(hi, n):
        row[o] = fill
    if stride == 1 and step == 1 and shift == 0:
        src, dst = x[at + origin + lo : at + origin + hi], row[lo:hi]
        for o in range(hi - lo):
            dst[o] = np.uint8(np.int32(src[o]) + add)
    else:
        for o in range(lo, hi):
            row[o] = np.uint8((np.int32(x[at + (o * stride + origin) * step]) >> shift) + add)


@compiled
def half_rows(x, xo, n, high, add, out, to):  # type: ignore[no-untyped-def]
    """Rows without gaps of the low or the high bytes of 16-bit numbers, plus `add` modulo 256."""
    k = np.uint8(add)
    for r in range(xo.shape[0]):
        src, dst = x[xo[r] : xo[r] + n], out[to[r] : to[r] + n]
        if high:
            for i in range(n):
                dst[i] = np.uint8(np.uint8(src[i] >> 8) + k)
        else:
            for i in range(n):
                dst[i] = np.uint8(np.uint8(src[i]) + k)


@compiled
def gather(x, x0, xb, xs, dims, out, shift, add):  # type: ignore[no-untyped-def]
    """out[b, i, j, k] = byte of a strided 3-dimensional operand, as in `columns`."""
    for b in range(out.shape[0]):
        for i in range(dims[0]):
            for j in range(dims[1]):
                at = x0 + b * xb + i * xs[0] + j * xs[1]
                row = out[b, i, j]
                for k in range(dims[2]):
                    row[k] = np.uint8((np.int32(x[at + k * xs[2]]) >> shift) + add)


@compiled
def gather_sums(part, acc, offsets, shift, keep):  # type: ignore[no-untyped-def]
    """acc = (acc if keep else 0) + part * 2^shift, row by row; containers wrap."""
    n = part.shape[1]
    for r in range(part.shape[0]):
        dst, src = acc[offsets[r] : offsets[r] + n], part[r]
        if keep:
            for i in range(n):
                dst[i] += np.int64(src[i]) << shift
        else:
            for i in range(n):
                dst[i] = np.int64(src[i]) << shift


@compiled
def depthwise(  # type: ignore[no-untyped-def]
    x, x0, xb, xs, dims, w, zeros, kernel, stride, dilation, origin, size, per,
    zero, buf, plane, acc, offsets, keep,
):
    """One input channel per group: out channel o reads channel o // per. `w` is [out,
    kh, kw], of the type of `buf`.

    A channel is copied, centred and padded, into `buf` as one plane per phase of the stride, so that
    every tap is a contiguous run over the whole output plane (of pitch `wide`; columns beyond the
    output's width are never read).
    """
    n, channels, height, width = dims
    oh, ow = size
    deep = (oh - 1) + ((kernel[0] - 1) * dilation[0]) // stride[0] + 1
    wide = (ow - 1) + ((kernel[1] - 1) * dilation[1]) // stride[1] + 1
    one, run, taps = deep * wide, oh * wide, kernel[0] * kernel[1]
    base, k = np.empty(taps, np.int64), np.empty(taps, buf.dtype)
    for i in range(kernel[0]):
        for j in range(kernel[1]):
            r, c = i * dilation[0], j * dilation[1]
            phase = (r % stride[0]) * stride[1] + c % stride[1]
            base[i * kernel[1] + j] = phase * one + (r // stride[0]) * wide + c // stride[1]
    line = plane[:run]
    for b in range(offsets.shape[0]):
        for s in range(n):
            for o in range(channels * per):
                if o % per == 0:
                    at = x0 + b * xb + s * xs[0] + (o // per) * xs[1]
                    _phases(x, at, xs, height, width, stride, origin, deep, wide, zero, buf)
                for i in range(kernel[0]):
                    for j in range(kernel[1]):
                        k[i * kernel[1] + j] = w[o, i, j] - zeros[o]
                _taps(buf, base, k, taps, run, line)
                to = offsets[b] + (s * channels * per + o) * oh * ow
                for y in range(oh):
                    row, src = acc[to + y * ow : to + (y + 1) * ow], line[y * wide : y * wide + ow]
                    if keep:
                        for q in range(ow):
                            row[q] += src[q]
                    else:
                        for q in range(ow):
                            row[q] = src[q]


@compiled
def _phases(x, at, xs, height, width, stride, origin, deep, wide, zero, buf):  # type: ignore[no-untyped-def]
    """buf[phase][r, c] = x - zero at row r * stride + phase + origin; 0 outside the tile."""
    to = 0
    for p in range(stride[0]):
        for f in range(stride[1]):
            left = f + origin[1]
            lo, hi = inside(left, stride[1], width, wide)
            for r in range(deep):
                row = buf[to : to + wide]
                to += wide
                y = r * stride[0] + p + origin[0]
                if y < 0 or y >= height:
                    row[:] = 0
                    continue
                for q in range(lo):
                    row[q] = 0
                for q in range(hi, wide):
                    row[q] = 0
                start = at + y * xs[2] + left * xs[3]
                if stride[1] == 1 and xs[3] == 1:
                    src, dst = x[start + lo : start + hi], row[lo:hi]
                    for q in range(hi - lo):
                        dst[q] = np.int32(src[q]) - np.int32(zero)
                else:
                    for q in range(lo, hi):
                        row[q] = np.int32(x[start + q * stride[1] * xs[3]]) - np.int32(zero)


@compiled
def _taps(buf, base, k, taps, run, line):  # type: ignore[no-untyped-def]
    """line[q] = sum over taps of buf[base + q] * k, a few taps at a time."""
    line[:] = 0
    t = 0
    while t + 3 <= taps:
        a, b, c = (
            buf[base[t] : base[t] + run],
            buf[base[t + 1] : base[t + 1] + run],
            buf[base[t + 2] : base[t + 2] + run],
        )
        p, q, r = np.int32(k[t]), np.int32(k[t + 1]), np.int32(k[t + 2])
        for i in range(run):
            line[i] += np.int32(a[i]) * p + np.int32(b[i]) * q + np.int32(c[i]) * r
        t += 3
    while t < taps:
        a = buf[base[t] : base[t] + run]
        p = np.int32(k[t])
        for i in range(run):
            line[i] += np.int32(a[i]) * p
        t += 1
