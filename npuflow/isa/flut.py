"""A function of one float, from a table of the numbers between which it varies."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from math import isfinite

import numpy as np

from npuflow.hw.command import Command, FieldValue
from npuflow.hw.isa import OPCODES, Fields, numbers, pointer, tensor
from npuflow.hw.region import Region
from npuflow.kernels import exact
from npuflow.kernels.floats import floats
from npuflow.kernels.memory import SimulatedMemory
from npuflow.kernels.opcode import Simulated, Step
from npuflow.kernels.operands import Bench
from npuflow.program import access

SIGN = 1 << 15
SPECIAL = 5  # entries of zeros, infinities and NaN


@OPCODES.entry
class FLut(Simulated):
    """T holds patterns of y's type: of +0, -0, infinity, -infinity, NaN; then last[0] - first[0] + 1 of
    positive numbers and last[1] - first[1] + 1 of negative ones. Of a finite x other than 0, m is the pattern
    without its sign, s 1 where it is negative, else 0: y is the entry of min(max(m, first[s]), last[s]) of
    its sign. But y = R(x * below[s]) where m < first[s] and below[s] is not 0, and y = R(x * above[s])
    where m > last[s] and above[s] is not 0. Factors are patterns of float32; the products are exact.
    """

    code = 26
    name = "FLUT"
    queue = "VECTOR"
    fields = (
        *tensor("x", role="float"),
        *tensor("y", "write", role="float"),
        *numbers("dims:4"),
        pointer("table"),
        *numbers("first:2 last:2 below:2 above:2"),
    )
    in_place = True

    def problems(self, f: Fields) -> Iterator[str]:
        for first, last in zip(f["first"], f["last"], strict=True):
            if first > last:
                yield f"first {first} lies beyond last {last}"
            if first < 1 or last >= floats.INFINITIES[f["x_type"]]:
                yield f"{first}..{last} are no finite numbers of {f['x_type']} above 0"
        if not all(map(isfinite, (*single(f["below"]), *single(f["above"])))):
            yield "a factor is no finite number"

    def accesses(self, c: Command) -> Iterator[Region]:
        dims = c.vector("dims")
        yield access.tensor(c, "x", dims)
        yield from access.flat(c, "table", entries(c), 2)
        yield access.tensor(c, "y", dims, True)

    def execute(self, memory: SimulatedMemory, c: Command) -> None:
        dims = c.vector("dims")
        table = memory.flat(c.core, c.number("table"), "uint16", entries(c))
        memory.operand(c, "y", dims)[...] = looked_up(c, table, memory.operand(c, "x", dims))

    def bind(self, bench: Bench, i: int, c: Command) -> Step | None:
        from npuflow.kernels.floats.fast_float_rows import table  # its kernels are slow to load

        known = bench.constant(i, c, "table", "uint16", entries(c))
        if known is None:
            return None
        kept = {name: c.fields[name] for name in ("x_type", "y_type", "first", "last", "below", "above")}
        return table(bench, i, c, every(known.tobytes(), tuple(kept.items())))


def single(words: tuple[int, ...]) -> tuple[float, ...]:
    """float32 numbers of their patterns."""
    return tuple(np.array(words, np.uint32).view(np.float32).tolist())


def entries(c: Command) -> int:
    """How many the table has."""
    return sum(c.vector("last")) - sum(c.vector("first")) + 2 + SPECIAL


def looked_up(c: Command, table: floats.Array, x: floats.Array) -> floats.Array:
    """The result of every pattern; `table` has one row, or one for every sample."""
    first, last, top = c.vector("first"), c.vector("last"), floats.INFINITIES[c.text("x_type")]
    negative, size = x >= SIGN, (x & (SIGN - 1)).astype(np.int64)
    low, high = (np.where(negative, v[1], v[0]) for v in (first, last))
    start = np.where(negative, last[0] - first[0] + 1, 0) + SPECIAL
    index = start + np.minimum(np.maximum(size, low), high) - low
    for which, place in ((size == 0, negative), (size == top, 2 + negative), (size > top, 4)):
        index = np.where(which, place, index)
    found = exact.lookup(table, index, c, "the table")
    number = (size > 0) & (size < top)
    for name, outside in (("below", size < low), ("above", size > high)):
        factor = single(c.vector(name))
        if any(factor):
            used = outside & number & np.where(negative, bool(factor[1]), bool(factor[0]))
            with np.errstate(invalid="ignore"):  # infinity times a 0 that is not used
                value = floats.real(x, c.text("x_type")) * np.where(negative, factor[1], factor[0])
            found = np.where(used, floats.pattern(value, c.text("y_type")), found)
    return found


@lru_cache(maxsize=64)
def every(table: bytes, fields: tuple[tuple[str, FieldValue], ...]) -> floats.Array:
    """The result of each pattern, so that a kernel looks up one entry for each element."""
    patterns = np.arange(2 * SIGN, dtype=np.uint16)
    return looked_up(Command("FLUT", dict(fields)), np.frombuffer(table, np.uint16)[None], patterns)
