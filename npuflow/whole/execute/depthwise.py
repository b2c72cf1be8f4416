"""Depthwise convolutions on bytes, channels innermost, from codes to codes in one pass."""

from __future__ import annotations

from functools import partial
from math import prod

import numpy as np

from npuflow.base.compiled import compiled
from npuflow.ir.types import Array
from npuflow.kernels.opcode import Step
from npuflow.kernels.operands import FlatOperand
from npuflow.whole.execute import tables
from npuflow.whole.execute.bench import TensorBench
from npuflow.whole.execute.dot import deep_16, deep_32, deep_64, single_16, single_32, single_64, woven
from npuflow.whole.execute.places import pad
from npuflow.whole.execute.windows import Factors, Windows, places, taps

ROWS = 4                         # places that a tile covers


def depthwise(
    bench: TensorBench,
    s: Windows,
    x: FlatOperand,
    y: FlatOperand,
    found: Factors,
    end: tables.Ending,
    flags: Array,
) -> Step | None:
    """The kernel on planes padded as the windows reach; None for fewer channels than a vector has bytes."""
    n, channels = s.dims[:2]
    quarter = next((q for q in (4, 2, 1) if 16 * q <= channels), 0)
    if not quarter:
        return None
    width = 16 * quarter
    # the last block may make some channels again
    blocks = np.array([min(c, channels - width) for c in range(0, channels, width)])
    high, wide = s.reach
    row = wide * channels
    at = taps(s, row, channels)
    count = -(-len(at) // 4)
    at = np.concatenate([at, np.zeros(4 * count - len(at), at.dtype)])
    lanes = (blocks[:, None, None] + woven(quarter)).reshape(-1, 4 * quarter)
    weights = np.zeros((channels, 4 * count), np.int8)
    weights[:, : found.weights.shape[1]] = found.weights
    per = weights.reshape(channels, count, 4)[lanes.reshape(len(blocks), 4, -1)]
    w = np.ascontiguousarray(per.transpose(0, 3, 1, 2, 4)).view(np.int32).reshape(-1)
    narrow, wider = tables.laid(end, found.correction, lanes)
    images = [(b, i) for b in range(bench.batch) for i in range(n)]
    x0 = np.array([x.base + b * x.sample + i * x.strides[0] for b, i in images])
    y0 = np.array([y.base + b * y.sample + i * y.strides[0] for b, i in images])
    padded = bench.scratch("padded", "uint8", (high * row,))
    frame = (x.strides[1:], s.dims[1:], s.origin, (high, wide), (found.zero ^ found.flip) & 255)
    ends = narrow, wider, flags, y.flat.view(np.uint8), y0, channels
    base = places(s, row, channels)
    shape = prod(s.size), s.size[1], width, count
    return partial(_run, x.flat.view(np.uint8), x0, frame, padded, base, at, w, blocks, *ends, *shape)


@compiled
def _run(  # type: ignore[no-untyped-def]
    x, x0, frame, padded, base, at, w, blocks, narrow, wide, flags, y, y0, channels, pixels, row, width, count
):
    strides, dims, origin, size, fill = frame
    for i in range(x0.shape[0]):
        pad(x, x0[i], strides, dims, origin, size, 1, channels, fill, padded)
        for first in range(0, pixels, row):
            for k in range(blocks.shape[0]):
                _places(
                    padded, blocks[k], base, at, w, k * count * width, narrow, wide, flags, 4 * k, y,
                    y0[i] + blocks[k], channels, first, min(first + row, pixels), pixels, width, count,
                )


@compiled
def _places(  # type: ignore[no-untyped-def]
    x, x0, base, at, w, w0, narrow, wide, flags, vec, y, y0, pitch, first, last, pixels, width, count
):
    height = ROWS if pixels >= ROWS else 1
    for place in range(first, last, height):
        q = min(place, pixels - height)            # the last tile may make some places again
        to = y0 + q * pitch
        if height == 1:
            if width == 64:
                single_64(x, x0, base, q, at, count, w, w0, narrow, wide, flags, vec, y, to, pitch)
            elif width == 32:
                single_32(x, x0, base, q, at, count, w, w0, narrow, wide, flags, vec, y, to, pitch)
            else:
                single_16(x, x0, base, q, at, count, w, w0, narrow, wide, flags, vec, y, to, pitch)
        elif width == 64:
            deep_64(x, x0, base, q, at, count, w, w0, narrow, wide, flags, vec, y, to, pitch)
        elif width == 32:
            deep_32(x, x0, base, q, at, count, w, w0, narrow, wide, flags, vec, y, to, pitch)
        else:
            deep_16(x, x0, base, q, at, count, w, w0, narrow, wide, flags, vec, y, to, pitch)
