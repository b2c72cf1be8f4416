"""Compiled kernels of operators that look through windows: columns for the matrix product, depthwise, pools, reductions."""

from __future__ import annotations

import numpy as np

from npuflow.engine.sim.compiled import compiled, rounded


@compiled
def columns(x, x0, xb, xs, dims, kernel, stride, dilation, origin, insert, size, out, first, shift, add, fill):  # type: ignore[no-untyped-def]
    """out[r, c*i*j, y*x] = byte of x + add under the window ((x >> shift) + add, modulo 256), `fill` outside the tile.

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
                        _row(x, at, xs[3], width, row, j * dilation[1] + origin[1], stride[1], insert[1], shift, add, fill)


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
def depthwise(x, x0, xb, xs, dims, w, zeros, kernel, stride, dilation, origin, size, per, zero, acc, offsets, keep):  # type: ignore[no-untyped-def]
    """One input channel per group: out channel o reads channel o // per. `w` is [out, kh, kw], int32."""
    n, channels, height, width = dims
    oh, ow = size
    line = np.empty(ow, np.int32)
    for b in range(offsets.shape[0]):
        for s in range(n):
            for o in range(channels * per):
                plane = x0 + b * xb + s * xs[0] + (o // per) * xs[1]
                to = offsets[b] + (s * channels * per + o) * oh * ow
                for y in range(oh):
                    line[:] = 0
                    for i in range(kernel[0]):
                        sy = y * stride[0] + i * dilation[0] + origin[0]
                        if sy < 0 or sy >= height:
                            continue
                        for j in range(kernel[1]):
                            left = j * dilation[1] + origin[1]
                            lo = min(ow, max(0, -(left // stride[1])))
                            hi = max(lo, min(ow, (width - 1 - left) // stride[1] + 1))
                            k = np.int32(w[o, i, j] - zeros[o])
                            at = plane + sy * xs[2]
                            if stride[1] == 1 and xs[3] == 1:
                                src, dst = x[at + left + lo : at + left + hi], line[lo:hi]
                                for q in range(hi - lo):
                                    dst[q] += (np.int32(src[q]) - np.int32(zero)) * k
                            else:
                                for q in range(lo, hi):
                                    line[q] += (np.int32(x[at + (q * stride[1] + left) * xs[3]]) - np.int32(zero)) * k
                    row = acc[to + y * ow : to + (y + 1) * ow]
                    if keep:
                        for q in range(ow):
                            row[q] += line[q]
                    else:
                        for q in range(ow):
                            row[q] = line[q]


@compiled
def maxpool(x, x0, xb, xs, dims, y, y0, yb, ys, batch, kernel, stride, dilation, origin, size, lo, hi):  # type: ignore[no-untyped-def]
    n, channels, height, width = dims
    line = np.empty(size[1], np.int32)
    none = np.int32(-(1 << 20))
    for b in range(batch):
        for s in range(n):
            for c in range(channels):
                plane = x0 + b * xb + s * xs[0] + c * xs[1]
                for oy in range(size[0]):
                    line[:] = none
                    for i in range(kernel[0]):
                        sy = oy * stride[0] + i * dilation[0] + origin[0]
                        if sy < 0 or sy >= height:
                            continue
                        at = plane + sy * xs[2]
                        for j in range(kernel[1]):
                            left = j * dilation[1] + origin[1]
                            first = min(size[1], max(0, -(left // stride[1])))
                            last = max(first, min(size[1], (width - 1 - left) // stride[1] + 1))
                            for q in range(first, last):
                                line[q] = max(line[q], np.int32(x[at + (q * stride[1] + left) * xs[3]]))
                    to = y0 + b * yb + s * ys[0] + c * ys[1] + oy * ys[2]
                    for q in range(size[1]):
                        v = np.int32(lo) if line[q] == none else line[q]
                        y[to + q * ys[3]] = min(max(v, lo), hi)


@compiled
def avgpool(  # type: ignore[no-untyped-def]
    x, x0, xb, xs, dims, y, y0, yb, ys, batch, kernel, stride, dilation, origin, size, zero_x, m, counts, shift, half, mode, zero, lo, hi
):
    """`counts` [oh, ow] is how many window positions count at each output."""
    n, channels, height, width = dims
    for b in range(batch):
        for s in range(n):
            for c in range(channels):
                plane = x0 + b * xb + s * xs[0] + c * xs[1]
                to = y0 + b * yb + s * ys[0] + c * ys[1]
                for oy in range(size[0]):
                    for ox in range(size[1]):
                        total = np.int64(0)
                        for i in range(kernel[0]):
                            sy = oy * stride[0] + i * dilation[0] + origin[0]
                            if sy < 0 or sy >= height:
                                continue
                            for j in range(kernel[1]):
                                sx = ox * stride[1] + j * dilation[1] + origin[1]
                                if 0 <= sx < width:
                                    total += np.int64(x[plane + sy * xs[2] + sx * xs[3]]) - zero_x
                        v = rounded(total * m[counts[oy, ox]], shift, half, mode) + zero
                        y[to + oy * ys[2] + ox * ys[3]] = min(max(v, lo), hi)


@compiled
def reduce(x, x0, xb, xs, dims, zero, acc, offsets, largest, keep):  # type: ignore[no-untyped-def]
    count, rows, inner = dims
    for b in range(offsets.shape[0]):
        for a in range(count):
            for i in range(inner):
                at = x0 + b * xb + a * xs[0] + i * xs[2]
                v = np.int64(x[at]) - zero
                for r in range(1, rows):
                    d = np.int64(x[at + r * xs[1]]) - zero
                    v = max(v, d) if largest else v + d
                to = offsets[b] + a * inner + i
                if keep:
                    v = max(v, np.int64(acc[to])) if largest else v + np.int64(acc[to])
                acc[to] = v


@compiled
def resize(  # type: ignore[no-untyped-def]
    x, x0, xb, xs, dims, y, y0, yb, ys, batch, rows, cols, origin, zero_x, m, shift, half, mode, zero, lo, hi
):
    """False when a table names a row or column that the tile does not have."""
    n, channels, height, width = dims
    good = True
    for t, extent, start in ((rows, height, origin[0]), (cols, width, origin[1])):
        for i in range(t.shape[0]):
            for k in range(2):
                good = good and 0 <= t[i, k] + start < extent
    if not good:
        return False
    for b in range(batch):
        for s in range(n):
            for c in range(channels):
                plane = x0 + b * xb + s * xs[0] + c * xs[1]
                to = y0 + b * yb + s * ys[0] + c * ys[1]
                for oy in range(rows.shape[0]):
                    p = plane + (rows[oy, 0] + origin[0]) * xs[2]
                    q = plane + (rows[oy, 1] + origin[0]) * xs[2]
                    wp, wq = np.int64(rows[oy, 2]), np.int64(rows[oy, 3])
                    for ox in range(cols.shape[0]):
                        i, j = (cols[ox, 0] + origin[1]) * xs[3], (cols[ox, 1] + origin[1]) * xs[3]
                        wi, wj = np.int64(cols[ox, 2]), np.int64(cols[ox, 3])
                        total = wp * (wi * (np.int64(x[p + i]) - zero_x) + wj * (np.int64(x[p + j]) - zero_x)) + wq * (
                            wi * (np.int64(x[q + i]) - zero_x) + wj * (np.int64(x[q + j]) - zero_x)
                        )
                        v = rounded(total * m, shift, half, mode) + zero
                        y[to + oy * ys[2] + ox * ys[3]] = min(max(v, lo), hi)
    return True
