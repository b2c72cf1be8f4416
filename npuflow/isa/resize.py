"""Weighted sums of two rows and two columns."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np

from npuflow.base.compiled import compiled
from npuflow.hw.check import SHIFT
from npuflow.hw.command import Command
from npuflow.hw.isa import CLAMP, OPCODES, ROUNDING, Fields, numbers, pointer, tensor
from npuflow.isa._resampling import ResamplingOpcode
from npuflow.kernels import exact, fast
from npuflow.kernels.compiled import rounded
from npuflow.kernels.memory import SimulatedMemory
from npuflow.kernels.opcode import Step
from npuflow.kernels.operands import Bench


@OPCODES.entry
class ResizeOpcode(ResamplingOpcode):
    """rows: int32 [out_height, 4] = (i0, i1, w0, w1), i + origin[0] a row of the tile; columns likewise
    with origin[1]; s = sum over both rows and columns of w_row * w_col * (x - x_zero); y = clamp(R(s *
    multiplier / 2^(2*weight_bits + shift)) + zero, lo, hi).
    """

    code = 18
    name = "RESIZE"
    queue = "VECTOR"
    layout = "channels"
    any_strides = True
    fields = (
        *tensor("x"), *numbers("x_dims:4 x_zero!"), *tensor("y", "write"), *numbers("out_height out_width"),
        pointer("rows"), pointer("columns"), *numbers("origin:2! weight_bits multiplier shift! zero!"),
        *CLAMP, *ROUNDING,
    )

    def problems(self, f: Fields) -> Iterator[str]:
        if f["weight_bits"] > 20 or not SHIFT[0] <= 2 * f["weight_bits"] + f["shift"] <= SHIFT[1]:
            yield f"weight_bits {f['weight_bits']} with shift {f['shift']}"

    def execute(self, memory: SimulatedMemory, c: Command) -> None:
        dims, out = c.vector("x_dims"), (c.number("out_height"), c.number("out_width"))
        v = exact.signed(memory, c, "x", dims)
        for axis, name in enumerate(("rows", "columns")):
            table = memory.flat(c.core, c.number(name), "int32", out[axis] * 4).astype(np.int64)
            table = table.reshape(-1, out[axis], 4)
            samples = [self._line(v[b], table[b % len(table)], axis, c) for b in range(v.shape[0])]
            v = np.stack(samples)
        shift = 2 * c.number("weight_bits") + c.number("shift")
        scaled = exact.divided(exact.times(v, c.number("multiplier")), shift, c.text("rounding"))
        memory.operand(c, "y", (*dims[:2], *out))[...] = exact.settle(scaled, c)

    def _line(self, v: exact.Wide, table: exact.Wide, axis: int, c: Command) -> exact.Wide:
        """Weighted sum of two rows (axis 0) or columns (axis 1) of a sample [n, c, H, W]."""
        extent, origin = v.shape[2 + axis], c.vector("origin")[axis]
        total: exact.Wide = np.zeros((), np.int64)
        for i in (0, 1):
            index = table[:, i] + origin
            exact.named(index, extent, c, axis)
            weight = table[:, 2 + i].reshape(-1, 1) if axis == 0 else table[:, 2 + i]
            total = total + exact.times(np.take(v, index, axis=2 + axis), weight)
        return total

    def bind(self, bench: Bench, i: int, c: Command) -> Step | None:
        tables = []
        for name, out in (("rows", c.number("out_height")), ("columns", c.number("out_width"))):
            table = bench.constant(i, c, name, "int32", out * 4)
            if table is None:
                return None
            tables.append(table.reshape(out, 4).copy())
        weight = [int(np.abs(t[:, 2:].astype(np.int64)).sum(1).max()) for t in tables]
        peak = fast.spread(c, "x") * weight[0] * weight[1]
        found = fast.rounding(c, peak, c.number("multiplier"), 2 * c.number("weight_bits"))
        if found is None:
            return None
        x, y = (bench.operand(i, c, n) for n in "xy")
        run = fast.checked(resize, c, "a table names a row or column outside the tile")
        factors = c.number("x_zero"), c.number("multiplier") * found[0]
        where = (*x.parts, c.vector("x_dims")), y.parts, bench.batch
        return partial(run, *where, (*tables, c.vector("origin")), factors, fast.end(c, found))


@compiled
def resize(source, target, batch, tables, factors, end):  # type: ignore[no-untyped-def]
    """False when a table names a row or column that the tile does not have. `tables`: of rows, of columns,
    and the place of the tile."""
    (x, x0, xb, xs, dims), (y, y0, yb, ys), (rows, cols, origin) = source, target, tables
    (zero_x, m), ((shift, half, mode), (zero, lo, hi)) = factors, end
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
                        upper = wi * (np.int64(x[p + i]) - zero_x) + wj * (np.int64(x[p + j]) - zero_x)
                        lower = wi * (np.int64(x[q + i]) - zero_x) + wj * (np.int64(x[q + j]) - zero_x)
                        v = rounded((wp * upper + wq * lower) * m, shift, half, mode) + zero
                        y[to + oy * ys[2] + ox * ys[3]] = min(max(v, lo), hi)
    return True
