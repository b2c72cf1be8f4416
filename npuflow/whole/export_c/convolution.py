"""Convolutions in C: blocks of 16 channels for bytes, a kernel for depthwise ones, plain loops else."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from npuflow.hw.elements import ELEMENTS
from npuflow.ir.types import Array
from npuflow.whole.export_c import blocked
from npuflow.whole.export_c.kernel import SourceWriter
from npuflow.whole.export_c.layer import ConvLayer

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
    found = layer.finish.scale(layer.peak)
    total = layer.peak + int(np.abs(layer.finish.bias).max())
    narrow = (
        ELEMENTS[layer.x_type].bits == 8 and layer.insert == (1, 1) and np.abs(layer.weight).max() < 1 << 15
    )
    fits = found.way == "f" and int(layer.finish.multiplier.max()) * found.gain < 1 << 32 and total < 1 << 31
    if narrow and fits:
        channels, out = layer.x_dims[1], layer.y_dims[1]
        kernel = layer.weight.shape[2:]
        if layer.groups == channels == out and kernel[0] * kernel[1] <= TAPS:
            blocked.depthwise(w, layer)
            return
        if layer.groups == 1 or channels // layer.groups >= 4:
            blocked.convolution(w, layer)
            return
    plain(w, layer)


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
