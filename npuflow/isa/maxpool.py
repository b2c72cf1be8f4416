"""The largest of a window."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from math import prod

import numpy as np

from npuflow.base.compiled import compiled
from npuflow.hw.command import Command
from npuflow.hw.elements import ELEMENTS
from npuflow.hw.isa import CLAMP, OPCODES, numbers, tensor
from npuflow.hw.region import Region
from npuflow.kernels import exact, fast
from npuflow.kernels.compiled import inside
from npuflow.kernels.memory import SimulatedMemory
from npuflow.kernels.opcode import Simulated, Step
from npuflow.kernels.operands import Bench
from npuflow.program import access


@OPCODES.entry
class MaxPoolOpcode(Simulated):
    """y[n,c,y,x] = clamp(max of x[n,c,Y,X] over the window, lo, hi); Y = y*stride + i*dilation + origin;
    outside the tile is skipped; an empty window gives lo. y is [x_dims[0], x_dims[1], out_height,
    out_width].
    """

    code = 13
    name = "MAXPOOL"
    queue = "VECTOR"
    layout = "channels"
    any_strides = True
    fields = (
        *tensor("x"), *numbers("x_dims:4"), *tensor("y", "write"),
        *numbers("out_height out_width kernel:2 stride:2 dilation:2 origin:2!"), *CLAMP,
    )

    def accesses(self, c: Command) -> Iterator[Region]:
        yield from access.window(c)
        yield access.pooled(c)

    def operations(self, c: Command) -> int:
        dims = c.vector("x_dims")
        return prod(dims[:2]) * c.number("out_height") * c.number("out_width") * prod(c.vector("kernel"))

    def execute(self, memory: SimulatedMemory, c: Command) -> None:
        dims = c.vector("x_dims")
        floor = np.int64(-(1 << 40))
        above = memory.operand(c, "x", dims).astype(np.int64) - floor
        shifted = exact.windows(above, c)                  # outside the tile: 0, below every value
        best = shifted.max(axis=(-4, -3)) + floor
        best = np.where(best == floor, c.number("lo"), best)
        out = (*dims[:2], c.number("out_height"), c.number("out_width"))
        memory.operand(c, "y", out)[...] = exact.settle(best, c)

    def bind(self, bench: Bench, i: int, c: Command) -> Step | None:
        least = ELEMENTS[c.text("x_type")].range[0]
        if least > c.number("lo"):
            return None               # an empty window gives lo, and would be mistaken for the smallest code
        size = (c.vector("x_dims")[2] + 1) * c.number("out_width")
        lines = bench.scratch("lines", c.text("x_type"), (size,))
        return partial(maxpool, *fast.window(bench, i, c), (least, lines), (c.number("lo"), c.number("hi")))


@compiled
def maxpool(source, target, batch, window, size, room, clamp):  # type: ignore[no-untyped-def]
    """First along rows, into lines [height, out width], then along columns. `room`: x's smallest code, and
    these lines."""
    (x, x0, xb, xs, dims), (y, y0, yb, ys) = source, target
    (kernel, stride, dilation, origin), (least, lines), (lo, hi) = window, room, clamp
    n, channels, height, width = dims
    for b in range(batch):
        for s in range(n):
            for c in range(channels):
                plane = x0 + b * xb + s * xs[0] + c * xs[1]
                for r in range(height):
                    line = lines[r * size[1] : (r + 1) * size[1]]
                    line[:] = least
                    for j in range(kernel[1]):
                        left = j * dilation[1] + origin[1]
                        first, last = inside(left, stride[1], width, size[1])
                        at = plane + r * xs[2] + (first * stride[1] + left) * xs[3]
                        _greater(x, at, stride[1] * xs[3], line[first:last])
                for oy in range(size[0]):
                    best = lines[height * size[1] : (height + 1) * size[1]]
                    best[:] = least
                    for i in range(kernel[0]):
                        sy = oy * stride[0] + i * dilation[0] + origin[0]
                        if 0 <= sy < height:
                            _greater(lines, sy * size[1], 1, best)
                    to = y0 + b * yb + s * ys[0] + c * ys[1] + oy * ys[2]
                    for q in range(size[1]):
                        y[to + q * ys[3]] = min(max(best[q], lo), hi)


@compiled
def _greater(x, at, step, line):  # type: ignore[no-untyped-def]
    if step == 1:
        src = x[at : at + line.shape[0]]
        for q in range(line.shape[0]):
            line[q] = max(line[q], src[q])
    else:
        for q in range(line.shape[0]):
            line[q] = max(line[q], x[at + q * step])
