"""Convolutions in C: blocks of 16 channels, a kernel for depthwise ones, plain loops for sums over 32 bits.

Blocks read a strip of the input as centred 16-bit numbers, channels innermost; products of two neighbours are
added in one step.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from npuflow.hw.elements import ELEMENTS
from npuflow.ir.types import Array
from npuflow.whole.export_c import simd
from npuflow.whole.export_c.kernel import SourceWriter
from npuflow.whole.export_c.layer import ConvLayer
from npuflow.whole.fusion import by_channel

BLOCK = 16
STRIP = 1 << 16  # elements of a strip, unless one row of windows needs more

# d: 0 rows and 1 columns of the output, 2 its channels and 3 the input's of a group, 4 rows and 5 columns
# of the input, 6 stride, 8 origin (two each), 10 rows of a window, 11 columns and 12 output rows of a strip,
# 13 taps, 14 pairs of a tap, 15 strides of x and 18 of y (channel, row, column), 21 samples, 22 stride of a
# sample of x and 23 of y, 24 groups, 25 stride of a group of x and 26 of y, 27 weights of a group,
# 28 elements of a pixel in the strip, 29 padded channels of a group, 30 what lies around the input (not if 0)
FILL = r"""
static NN_KERNEL void $NAME(const $X *x, nn_int16 *s, const int32_t *d, int32_t first, int32_t rows,
    int32_t zx)
{
    const int32_t h = d[4], w = d[5], c = d[3], line = d[11] * d[28];
    int32_t r, q, k;
    for (r = 0; r < rows; r++) {
        nn_int16 *to = s + r * line;
        const int32_t sy = first + r;
        const int32_t begin = d[9] < 0 ? -d[9] : 0, most = w - d[9];
        int32_t end = most < d[11] ? most : d[11];
        const $X *from;
        if (sy < 0 || sy >= h || end < begin)
            end = begin;
        if (end == begin) {
            for (k = 0; k < line; k++)
                to[k] = 0;
            continue;
        }
        from = x + (sy * d[16] + (begin + d[9]) * d[17]);
        for (k = 0; k < begin * d[28]; k++)
            to[k] = 0;
        for (k = end * d[28]; k < line; k++)
            to[k] = 0;
        if (d[15] == 1 && d[28] == c && (d[17] == c || end - begin == 1)) {
            nn_int16 *run = to + begin * c;
            for (k = 0; k < (end - begin) * c; k++)
                run[k] = (nn_int16)(from[k] - zx);
        } else
            for (q = begin; q < end; q++) {
                const $X *p = from + (q - begin) * d[17];
                nn_int16 *run = to + q * d[28];
                if (d[15] == 1)
                    for (k = 0; k < c; k++)
                        run[k] = (nn_int16)(p[k] - zx);
                else
                    for (k = 0; k < c; k++)
                        run[k] = (nn_int16)(p[k * d[15]] - zx);
                for (k = c; k < d[28]; k++)
                    run[k] = 0;
            }
    }
}
"""
CONVOLUTION = r"""
static NN_KERNEL void $NAME(const $X *x, $Y *y, nn_int16 *s, const int32_t *d, const int32_t *taps,
    const $W *w,
    const nn_int32 *bias, const nn_uint32 *m, const nn_int32 *lo, const nn_int32 *hi, int32_t n,
        int32_t zx, int32_t zero)
{
    int32_t b, g, oy, o, p, i;
    for (b = 0; b < d[21]; b++)
        for (g = 0; g < d[24]; g++)
            for (oy = 0; oy < d[0]; oy += d[12]) {
                const int32_t rows = d[0] - oy < d[12] ? d[0] - oy : d[12], pixels = rows * d[1];
                const int32_t down = d[6] * d[11] * d[28], along = d[7] * d[28];
                $FILL(x + (b * d[22] + g * d[25]), s, d, oy * d[6] + d[8], (rows - 1) * d[6] + d[10], zx);
                for (o = 0; o < d[2]; o += 16) {
                    const $W *block = w + (g * d[27] + o * d[13] * d[14] * 2);
                    const int32_t some = d[2] - o < 16 ? d[2] - o : 16, at = g * d[29] + o;
                    int32_t row = 0, column = 0;
                    for (p = 0; p < pixels;) {
                        int32_t sums[NN_PIXELS * 16], from[NN_PIXELS], to[NN_PIXELS];
                        const int32_t left = pixels - p, turns = (left + NN_PIXELS - 1) / NN_PIXELS;
                        const int32_t now = left <= 2 * NN_PIXELS ? (left + turns - 1) / turns : NN_PIXELS;
                        for (i = 0; i < now; i++) {
                            from[i] = row * down + column * along;
                            to[i] = b * d[23] + g * d[26] + o * d[18] + (oy + row) * d[19] + column * d[20];
                            if (++column == d[1]) {
                                column = 0;
                                row++;
                            }
                        }
                        nn_products_$W(now, s, from, taps, d[13], d[14], block, sums);
                        for (i = 0; i < now; i++)
                            nn_finish_$Y(sums + 16 * i, y + to[i], d[18], some, bias + at, m + at, lo
                                + at, hi + at,
                                n, zero);
                        p += now;
                    }
                }
            }
}
"""
DEPTHWISE = r"""
static NN_KERNEL void $NAME(const $X *x, $Y *y, nn_int16 *s, const int32_t *d, const int32_t *taps,
    const nn_int16 *w,
    const nn_int32 *bias, const nn_uint32 *m, const nn_int32 *lo, const nn_int32 *hi, int32_t n,
        int32_t zx, int32_t zero)
{
    int32_t b, oy, o, row, column;
    for (b = 0; b < d[21]; b++)
        for (oy = 0; oy < d[0]; oy += d[12]) {
            const int32_t rows = d[0] - oy < d[12] ? d[0] - oy : d[12];
            $FILL(x + b * d[22], s, d, oy * d[6] + d[8], (rows - 1) * d[6] + d[10], zx);
            for (o = 0; o < d[2]; o += 16) {
                const int32_t some = d[2] - o < 16 ? d[2] - o : 16;
                for (row = 0; row < rows; row++) {
                    $Y *to = y + (b * d[23] + o * d[18] + (oy + row) * d[19]);
                    const nn_int16 *from = s + (row * d[6] * d[11] * d[28] + o);
                    for (column = 0; column < d[1]; column++) {
                        int32_t sums[16];
                        nn_window(from + column * d[7] * d[28], taps, d[13], w + o, d[28], sums);
                        nn_finish_$Y(sums, to + column * d[20], d[18], some, bias + o, m + o, lo + o, hi
                            + o, n, zero);
                    }
                }
            }
        }
}
"""


def _filled(w: SourceWriter, layer: ConvLayer) -> str:
    """The function that makes a strip."""
    if not layer.blank:
        return w.function("fill_strip", FILL, X=layer.x_type)
    return w.function("fill_strip_around", FILL.replace("[k] = 0;", "[k] = (nn_int16)d[30];"), X=layer.x_type)


def convolution(w: SourceWriter, layer: ConvLayer) -> None:
    """Any convolution with a few channels a group."""
    g = layer.groups
    channels, out = layer.x_dims[1] // g, layer.y_dims[1] // g
    kernel = layer.weight.shape[2:]
    padded = -(-out // BLOCK) * BLOCK
    joined = layer.dilation[1] == 1  # taps of a row lie in one run
    run = kernel[1] * channels if joined else channels
    pairs = -(-run // 2)
    columns = [0] if joined else [j * layer.dilation[1] for j in range(kernel[1])]
    width = (layer.y_dims[3] - 1) * layer.stride[1] + (kernel[1] - 1) * layer.dilation[1] + 1
    taps = [(i * layer.dilation[0] * width + j) * channels for i in range(kernel[0]) for j in columns]
    # [group, out, tap, run] -> [group, block, tap, pair, 16, 2]
    rows = layer.weight.reshape(g, out, channels, *kernel).transpose(0, 1, 3, 4, 2)
    rows = rows.reshape(g, out, len(taps), run)
    full = np.zeros((g, padded, len(taps), 2 * pairs), np.int64)
    full[:, :out, :, :run] = rows
    blocks = full.reshape(g, padded // BLOCK, BLOCK, len(taps), pairs, 2).transpose(0, 1, 3, 4, 2, 5)
    kind = "int8" if rows.min() >= -128 and rows.max() < 128 else "int16"
    fill = _filled(w, layer)
    simd.products(w, kind)
    simd.finish(w, layer.y_type)
    own = w.function(
        "blocks_around" if layer.blank else "blocks",
        CONVOLUTION.replace("$FILL", fill)
        .replace("nn_finish_$Y", f"nn_finish_{layer.y_type}")
        .replace("nn_products_$W", f"nn_products_{kind}"),
        X=layer.x_type,
        Y=layer.y_type,
        W=kind,
    )
    _called(w, layer, own, channels, channels, width, taps, pairs, blocks.astype(kind), padded)


def depthwise(w: SourceWriter, layer: ConvLayer) -> None:
    """One channel in, one out."""
    channels = layer.x_dims[1]
    padded = -(-channels // BLOCK) * BLOCK
    kernel = layer.weight.shape[2:]
    width = (layer.y_dims[3] - 1) * layer.stride[1] + (kernel[1] - 1) * layer.dilation[1] + 1
    taps = [
        (i * layer.dilation[0] * width + j * layer.dilation[1]) * padded
        for i in range(kernel[0])
        for j in range(kernel[1])
    ]
    full = np.zeros((len(taps), padded), np.int16)
    full[:, :channels] = layer.weight.reshape(channels, -1).T
    fill = _filled(w, layer)
    simd.window(w)
    simd.finish(w, layer.y_type)
    own = w.function(
        "depthwise_around" if layer.blank else "depthwise",
        DEPTHWISE.replace("$FILL", fill).replace("nn_finish_$Y", f"nn_finish_{layer.y_type}"),
        X=layer.x_type,
        Y=layer.y_type,
    )
    _called(w, layer, own, channels, padded, width, taps, 0, full, padded)


def _called(
    w: SourceWriter,
    layer: ConvLayer,
    own: str,
    channels: int,
    held: int,
    width: int,
    taps: list[int],
    pairs: int,
    weight: Array,
    padded: int,
) -> None:
    """The call. `held`: elements of a pixel in the strip; `padded`: channels of a group in the constants."""
    f = layer.finish
    g = layer.groups if pairs else 1
    found = f.scale(layer.peak)
    span = (layer.weight.shape[2] - 1) * layer.dilation[0] + 1
    high, line = layer.y_dims[2], width * held
    strip = max(1, min(high, (STRIP // line - span) // layer.stride[0] + 1))
    size = ((strip - 1) * layer.stride[0] + span) * line + BLOCK
    x, y = layer.x_strides, layer.y_strides
    out = layer.y_dims[1] // g
    shape = [high, layer.y_dims[3], out, channels, *layer.x_dims[2:], *layer.stride, *layer.origin]
    steps = [*x[1:], *y[1:], layer.x_dims[0], x[0], y[0], g, channels * x[1], out * y[1]]
    d = [*shape, span, width, strip, len(taps), pairs, *steps, weight.size // g, held, padded]
    d += [layer.blank] if layer.blank else []
    arrays = {
        "bias": (f.bias, "int32"),
        "multipliers": (f.multiplier * found.gain, "uint32"),
        "lo": (f.lo, "int32"),
        "hi": (f.hi, "int32"),
    }
    each = [w.constant(name, _padded(a, g, out, padded, kind)) for name, (a, kind) in arrays.items()]
    ends = w.pointer(layer.x, layer.x_type), w.pointer(layer.y, layer.y_type)
    lines = w.vector(d), w.vector(taps), w.constant("weight", weight)
    w.call(own, *ends, w.scratch("int16", size), *lines, *each, found.shift, layer.x_zero, f.zero)


def _padded(array: Array, groups: int, out: int, padded: int, dtype: str) -> Array:
    """One number a channel, each group filled up to whole blocks."""
    full = np.zeros((groups, padded), np.int64)
    full[:, :out] = np.broadcast_to(array, (groups * out,)).reshape(groups, out)
    return full.astype(dtype)


TAPS = 64  # of a window that the depthwise kernel holds in registers' reach

# d: n, channels of a group, h, w; out channels, height, width, groups; kernel, stride, dilation, origin,
# insert (two each); strides of x, of y (four each); steps of bias, multiplier, bounds
PLAIN = r"""
static NN_KERNEL void $NAME(const $X *x, const $W *w, $Y *y, const int32_t *d, const int64_t *bias,
    const int64_t *m,
    const int32_t *lo, const int32_t *hi, int32_t n, int32_t zx, int32_t zero)
{
    const int32_t each = d[4] / d[7];
    int32_t b, o, oy, ox, c, i, j;
    for (b = 0; b < d[0]; b++)
        for (o = 0; o < d[4]; o++)
            for (oy = 0; oy < d[5]; oy++)
                for (ox = 0; ox < d[6]; ox++) {
                    const $X *from = x + (b * d[18] + o / each * d[1] * d[19]);
                    const $W *taps = w + o * d[1] * d[8] * d[9];
                    int64_t sum = bias[o * d[26]];
                    for (i = 0; i < d[8]; i++) {
                        const int32_t sy = oy * d[10] + i * d[12] + d[14];
                        if (sy < 0 || sy % d[16] || sy / d[16] >= d[2])
                            continue;
                        for (j = 0; j < d[9]; j++) {
                            const int32_t sx = ox * d[11] + j * d[13] + d[15];
                            const $X *p;
                            if (sx < 0 || sx % d[17] || sx / d[17] >= d[3])
                                continue;
                            p = from + (sy / d[16] * d[20] + sx / d[17] * d[21]);
                            for (c = 0; c < d[1]; c++)
                                sum += (int64_t)(p[c * d[19]] - zx) * taps[(c * d[8] + i) * d[9] + j];
                        }
                    }
                    y[b * d[22] + o * d[23] + oy * d[24] + ox * d[25]] = ($Y)nn_clamp(
                        NN_SCALE_$WAY(sum, m[o * d[27]], n) + zero, lo[o * d[28]], hi[o * d[28]]);
                }
}
"""


def write(w: SourceWriter, layer: ConvLayer) -> None:
    layer = flattened(layer)
    strips = in_words(layer)
    found = strips.finish.scale(strips.peak)
    total = strips.peak + int(np.abs(strips.finish.bias).max())
    narrow = layer.insert == (1, 1) and np.abs(layer.weight).max() < 1 << 15
    fits = found.way == "f" and int(layer.finish.multiplier.max()) * found.gain < 1 << 32 and total < 1 << 31
    if narrow and fits:
        channels, out = layer.x_dims[1], layer.y_dims[1]
        kernel = layer.weight.shape[2:]
        if by_channel(layer.groups, channels, out) and kernel[0] * kernel[1] <= TAPS:
            depthwise(w, strips)
            return
        if layer.groups == 1 or channels // layer.groups >= 4:
            convolution(w, strips)
            return
    plain(w, layer)


def in_words(layer: ConvLayer) -> ConvLayer:
    """Centred codes of 16 bits may need 17: then from the middle of their range. What that takes off goes to
    the bias, and what lies around the input is the zero point's distance."""
    lo, hi = ELEMENTS[layer.x_type].range
    if lo - layer.x_zero >= -(1 << 15) and hi - layer.x_zero < 1 << 15:
        return layer
    middle, sums = (lo + hi + 1) // 2, layer.weight.reshape(len(layer.weight), -1).sum(1)
    finish = replace(layer.finish, bias=layer.finish.bias + (middle - layer.x_zero) * sums)
    return replace(layer, x_zero=middle, blank=layer.x_zero - middle, finish=finish)


def flattened(layer: ConvLayer) -> ConvLayer:
    """A window of one point reads every stride-th point: the input gets that stride, and
    its pixels lie in a row."""
    if layer.weight.shape[2:] != (1, 1) or layer.origin != (0, 0) or layer.insert != (1, 1):
        return layer
    n, channels, _, _ = layer.x_dims
    _, out, height, width = layer.y_dims
    x, y = layer.x_strides, layer.y_strides
    xs = (x[0], x[1], x[2] * layer.stride[0], x[3] * layer.stride[1])
    if (height - 1) * layer.stride[0] >= layer.x_dims[2] or (width - 1) * layer.stride[1] >= layer.x_dims[3]:
        return layer
    layer = replace(layer, x_strides=xs, x_dims=(n, channels, height, width), stride=(1, 1), dilation=(1, 1))
    if height == 1 or (xs[2] == xs[3] * width and y[2] == y[3] * width):
        rows = height * width
        layer = replace(
            layer,
            x_dims=(n, channels, rows, 1),
            y_dims=(n, out, rows, 1),
            x_strides=(*xs[:2], xs[3] if width > 1 else xs[2], 0),
            y_strides=(*y[:2], y[3] if width > 1 else y[2], 0),
        )
    return layer


def plain(w: SourceWriter, layer: ConvLayer) -> None:
    """Slow and exact, for any types, groups and insertions."""
    f, found = layer.finish, layer.finish.scale(layer.peak)
    way = "n" if found.way == "f" else found.way
    kind = next(k for k in ("int8", "int16", "int32") if _fits(layer.weight, k))
    own = w.function(
        f"conv{way}",
        PLAIN.replace("$WAY", way),
        X=layer.x_type,
        W=kind,
        Y=layer.y_type,
    )
    n, channels, height, width = layer.x_dims
    d = [
        n,
        channels // layer.groups,
        height,
        width,
        *layer.y_dims[1:],
        layer.groups,
        *layer.weight.shape[2:],
        *layer.stride,
        *layer.dilation,
        *layer.origin,
        *layer.insert,
        *layer.x_strides,
        *layer.y_strides,
        *f.steps,
    ]
    w.call(
        own,
        w.pointer(layer.x, layer.x_type),
        w.constant("weight", layer.weight.astype(kind)),
        w.pointer(layer.y, layer.y_type),
        w.vector(d),
        *f.arguments(w, found.gain),
        found.shift,
        layer.x_zero,
        f.zero,
    )


def _fits(array: Array, dtype: str) -> bool:
    lo, hi = ELEMENTS[dtype].range
    return bool(array.min() >= lo and array.max() <= hi)
