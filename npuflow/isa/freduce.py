"""Sums or maxima of floats along dimensions."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

import numpy as np

from npuflow.hw.command import Command
from npuflow.hw.isa import FLOAT_SUM, OPCODES, Fields, numbers, tensor
from npuflow.hw.region import Region
from npuflow.kernels.floats import floats
from npuflow.kernels.memory import SimulatedMemory
from npuflow.kernels.opcode import Simulated, Step
from npuflow.kernels.operands import Bench
from npuflow.program import access


@OPCODES.entry
class FReduce(Simulated):
    """acc (dense, float32) over the dimensions of x whose bit in `axes` (bit d for dimension d) is 0.
    maximum: the largest along the others, and the old acc when accumulate; NaN if one is, of zeros +0. Else
    start + the sum along them, row-major; start is the old acc when accumulate, else +0: each `chunk`
    consecutive terms (the last may be fewer) are summed exactly and rounded once to float32; these are
    added to start in float32.
    """

    code = 28
    name = "FREDUCE"
    queue = "VECTOR"
    fields = (
        *tensor("x", role="float"),
        *numbers("dims:4 axes maximum"),
        *FLOAT_SUM,
        *numbers("accumulate chunk"),
    )

    def problems(self, f: Fields) -> Iterator[str]:
        yield from floats.chunk_problems(f)
        if f["axes"] > 15:
            yield f"axes {f['axes']} of a tensor of 4 dimensions"

    def accesses(self, c: Command) -> Iterator[Region]:
        yield access.tensor(c, "x", c.vector("dims"))
        kept = tuple(c.vector("dims")[d] for d in self._split(c)[0])
        yield from access.sums(c, kept, bool(c.number("accumulate")))

    @staticmethod
    def _split(c: Command) -> tuple[list[int], list[int]]:
        """Dimensions that stay, and those that go."""
        gone = [d for d in range(4) if c.number("axes") >> d & 1]
        return [d for d in range(4) if d not in gone], gone

    def execute(self, memory: SimulatedMemory, c: Command) -> None:
        dims, (kept, gone) = c.vector("dims"), self._split(c)
        x = floats.tensor(memory, c, "x", dims)
        x = x.transpose(0, *(1 + d for d in kept), *(1 + d for d in gone))
        x = x.reshape(x.shape[0], prod(dims[d] for d in kept), prod(dims[d] for d in gone))
        acc = memory.accumulator(c, tuple(dims[d] for d in kept))
        old = acc.reshape(acc.shape[0], -1)
        keep = bool(c.number("accumulate"))
        if c.number("maximum"):
            with np.errstate(invalid="ignore"):  # NaNs that signal
                best = x.max(-1) + 0.0
                best = (np.maximum(best, old) + 0.0 if keep else best).astype(np.float32)
            acc[...] = floats.single(best).reshape(acc.shape)
            return
        start = old[..., None] if keep else np.zeros((), np.float32)
        total = floats.dot(x, np.ones((x.shape[-1], 1)), c.number("chunk"), start)
        acc[...] = total.reshape(acc.shape)

    def bind(self, bench: Bench, i: int, c: Command) -> Step | None:
        from npuflow.kernels.floats.fast_float_rows import reduction  # its kernels are slow to load

        return reduction(bench, i, c)
