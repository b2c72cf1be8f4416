"""The mean of a window."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from math import prod

import numpy as np

from npuflow.base.compiled import compiled
from npuflow.hw.command import NONE, Command
from npuflow.hw.isa import CLAMP, OPCODES, ROUNDING, Fields, numbers, pointer, tensor
from npuflow.hw.region import Region
from npuflow.kernels import exact, fast
from npuflow.kernels.compiled import rounded
from npuflow.kernels.memory import SimulatedMemory
from npuflow.kernels.opcode import Simulated, Step
from npuflow.kernels.operands import Bench
from npuflow.program import access


@OPCODES.entry
class AvgPoolOpcode(Simulated):
    """s = sum of (x - x_zero) over window positions inside the tile; k = number of window positions with
    count_lo <= coordinate < count_hi in both dimensions (tile coordinates); y = clamp(R(s * m[k] /
    2^shift) + zero, lo, hi), m = uint32 table of kernel area + 1 entries.
    """

    code = 14
    name = "AVGPOOL"
    queue = "VECTOR"
    layout = "channels"
    fields = (
        *tensor("x"), *numbers("x_dims:4 x_zero!"), *tensor("y", "write"),
        *numbers("out_height out_width kernel:2 stride:2 dilation:2 origin:2! count_lo:2! count_hi:2!"),
        pointer("multipliers", optional=True), *numbers("shift! zero!"), *CLAMP, *ROUNDING,
    )

    def problems(self, f: Fields) -> Iterator[str]:
        if f["multipliers"] == NONE:
            yield "no multipliers"

    def accesses(self, c: Command) -> Iterator[Region]:
        yield from access.window(c)
        yield from access.flat(c, "multipliers", prod(c.vector("kernel")) + 1, 4)
        yield access.pooled(c)

    def operations(self, c: Command) -> int:
        dims = c.vector("x_dims")
        return prod(dims[:2]) * c.number("out_height") * c.number("out_width") * prod(c.vector("kernel"))

    def execute(self, memory: SimulatedMemory, c: Command) -> None:
        dims, out = c.vector("x_dims"), (c.number("out_height"), c.number("out_width"))
        total = exact.windows(exact.signed(memory, c, "x", dims), c).sum(axis=(-4, -3))
        counts = []
        for axis in (0, 1):
            kernel, stride = c.vector("kernel")[axis], c.vector("stride")[axis]
            at = np.arange(kernel)[:, None] * c.vector("dilation")[axis] + np.arange(out[axis]) * stride
            at = at + c.vector("origin")[axis]
            counts.append(((at >= c.vector("count_lo")[axis]) & (at < c.vector("count_hi")[axis])).sum(0))
        area = c.vector("kernel")[0] * c.vector("kernel")[1]
        table = memory.flat(c.core, c.number("multipliers"), "uint32", area + 1).astype(np.int64)
        m = table[:, np.multiply.outer(*counts)][:, None, None]
        exact.finish(memory, c, (*dims[:2], *out), exact.times(total, m))

    def bind(self, bench: Bench, i: int, c: Command) -> Step | None:
        area = c.vector("kernel")[0] * c.vector("kernel")[1]
        m = bench.constant(i, c, "multipliers", "uint32", area + 1)
        if m is None:
            return None
        found = fast.rounding(c, fast.spread(c, "x") * area, int(m.max()))
        if found is None:
            return None
        counts = []
        for axis, out in enumerate((c.number("out_height"), c.number("out_width"))):
            step = np.arange(c.vector("kernel")[axis])[:, None] * c.vector("dilation")[axis]
            at = step + np.arange(out) * c.vector("stride")[axis] + c.vector("origin")[axis]
            counts.append(((at >= c.vector("count_lo")[axis]) & (at < c.vector("count_hi")[axis])).sum(0))
        factors = c.number("x_zero"), m.astype(np.int64) * found[0], np.multiply.outer(*counts)
        return partial(avgpool, *fast.window(bench, i, c), factors, fast.end(c, found))


@compiled
def avgpool(source, target, batch, window, size, factors, end):  # type: ignore[no-untyped-def]
    """`factors`: x's zero point, multipliers by count, and how many window positions count at each output
    [oh, ow]."""
    (x, x0, xb, xs, dims), (y, y0, yb, ys) = source, target
    (kernel, stride, dilation, origin), (zero_x, m, counts) = window, factors
    (shift, half, mode), (zero, lo, hi) = end
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
