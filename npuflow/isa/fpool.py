"""The largest float of a window, or the mean."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

import numpy as np

from npuflow.hw.command import Command
from npuflow.hw.isa import BOUNDS, OPCODES, numbers, tensor
from npuflow.hw.region import Region
from npuflow.kernels import exact
from npuflow.kernels.floats import floats
from npuflow.kernels.memory import SimulatedMemory
from npuflow.kernels.opcode import Simulated, Step
from npuflow.kernels.operands import Bench
from npuflow.program import access


@OPCODES.entry
class FPool(Simulated):
    """Windows as of MAXPOOL and AVGPOOL. maximum: y = clamp(the largest of the window inside the tile, low,
    high), NaN if one is; of zeros +0. Else y = clamp(R(s / k), low, high): s is the exact sum of the window
    inside the tile, rounded once to float32; k the number of its positions with count_lo <= coordinate <
    count_hi.
    """

    code = 27
    name = "FPOOL"
    queue = "VECTOR"
    fields = (
        *tensor("x", role="float"),
        *numbers("x_dims:4"),
        *tensor("y", "write", role="float"),
        *numbers(
            "out_height out_width kernel:2 stride:2 dilation:2 origin:2! count_lo:2! count_hi:2! maximum"
        ),
        *BOUNDS,
    )

    def accesses(self, c: Command) -> Iterator[Region]:
        yield from access.window(c)
        yield access.pooled(c)

    def operations(self, c: Command) -> int:
        dims = c.vector("x_dims")
        return prod(dims[:2]) * c.number("out_height") * c.number("out_width") * prod(c.vector("kernel"))

    def execute(self, memory: SimulatedMemory, c: Command) -> None:
        dims, out = c.vector("x_dims"), (c.number("out_height"), c.number("out_width"))
        x = floats.tensor(memory, c, "x", dims)
        there = exact.windows(np.ones(x.shape, bool), c)
        seen = exact.windows(x, c)  # [.., kh, kw, oh, ow]
        if c.number("maximum"):
            with np.errstate(invalid="ignore"):  # NaNs that signal
                best = np.where(there, seen, -np.inf).max(axis=(-4, -3)) + 0.0  # NaN wins
            floats.finish(memory, c, (*dims[:2], *out), best)
            return
        terms = np.moveaxis(seen.reshape(*seen.shape[:3], -1, *out), 3, -2)  # [.., oh, k, ow]
        ones = np.ones((1, terms.shape[-2]))
        total = floats.dot(ones, terms, terms.shape[-2], np.zeros((), np.float32))[..., 0, :]
        with np.errstate(all="ignore"):
            value = total.astype(np.float64) / np.multiply.outer(*_counts(c, out))
        floats.finish(memory, c, (*dims[:2], *out), value)

    def bind(self, bench: Bench, i: int, c: Command) -> Step | None:
        from npuflow.kernels.floats.fast_float_rows import pool  # its kernels are slow to load

        return pool(bench, i, c)


def _counts(c: Command, out: tuple[int, int]) -> list[np.typing.NDArray[np.int64]]:
    """How many positions of every window count, by row and by column."""
    found = []
    for axis in (0, 1):
        at = np.arange(c.vector("kernel")[axis])[:, None] * c.vector("dilation")[axis]
        at = at + np.arange(out[axis]) * c.vector("stride")[axis] + c.vector("origin")[axis]
        found.append(((at >= c.vector("count_lo")[axis]) & (at < c.vector("count_hi")[axis])).sum(0))
    return found
