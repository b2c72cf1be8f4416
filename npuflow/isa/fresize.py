"""Weighted sums of two rows and two columns of floats."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from npuflow.hw.command import Command
from npuflow.hw.isa import BOUNDS, OPCODES, Fields, numbers, pointer, tensor
from npuflow.isa._resampling import ResamplingOpcode
from npuflow.kernels import exact
from npuflow.kernels.floats import floats
from npuflow.kernels.memory import SimulatedMemory
from npuflow.kernels.opcode import Step
from npuflow.kernels.operands import Bench


@OPCODES.entry
class FResize(ResamplingOpcode):
    """rows: int32 [out_height, 4] = (i0, i1, w0, w1), i + origin[0] a row of the tile; columns likewise with
    origin[1]; s = the exact sum over both rows and columns of w_row * w_col / 4^weight_bits * x, without
    those whose weight is 0, rounded once to float32; y = clamp(R(s), low, high).
    """

    code = 35
    name = "FRESIZE"
    queue = "VECTOR"
    fields = (
        *tensor("x", role="float"),
        *numbers("x_dims:4"),
        *tensor("y", "write", role="float"),
        *numbers("out_height out_width"),
        pointer("rows"),
        pointer("columns"),
        *numbers("origin:2! weight_bits"),
        *BOUNDS,
    )

    def problems(self, f: Fields) -> Iterator[str]:
        if f["weight_bits"] > 20:
            yield f"weight_bits {f['weight_bits']} is above 20"

    def execute(self, memory: SimulatedMemory, c: Command) -> None:
        dims, out = c.vector("x_dims"), (c.number("out_height"), c.number("out_width"))
        x = floats.tensor(memory, c, "x", dims)
        tables = []
        for axis, name in enumerate(("rows", "columns")):
            table = memory.flat(c.core, c.number(name), "int32", out[axis] * 4).astype(np.int64)
            table = np.broadcast_to(table.reshape(-1, out[axis], 4), (len(x), out[axis], 4))
            index = table[..., :2] + c.vector("origin")[axis]
            exact.named(index, dims[2 + axis], c, axis)
            floats.weighed(table[..., 2:], c)
            tables.append((index, table[..., 2:]))
        ((rows, up), (columns, across)), unit = tables, 0.25 ** c.number("weight_bits")
        terms = np.zeros((len(x), *dims[:2], 4, out[0] * out[1]))
        for b, (a, d) in ((b, ad) for b in range(len(x)) for ad in np.ndindex(2, 2)):
            weight = np.multiply.outer(up[b, :, a], across[b, :, d])
            part = x[b][:, :, rows[b, :, a]][..., columns[b, :, d]]
            with np.errstate(all="ignore"):
                value = np.where(weight == 0, 0.0, part * (weight * unit))
            terms[b, :, :, 2 * a + d] = value.reshape(*dims[:2], -1)
        total = floats.dot(np.ones((1, 4)), terms, 4, np.zeros((), np.float32))
        floats.finish(memory, c, (*dims[:2], *out), total.astype(np.float64).reshape(-1, *dims[:2], *out))

    def bind(self, bench: Bench, i: int, c: Command) -> Step | None:
        from npuflow.kernels.floats.fast_float_rows import resize  # its kernels are slow to load

        return resize(bench, i, c)
