"""Commands bound to compiled kernels; None where a command is outside what they are proved for (the exact path takes it)."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from typing import Any

import numpy as np
import numpy.typing as npt

from npuflow.base.errors import ModelError
from npuflow.engine.sim import compiled as k
from npuflow.engine.sim import windows as w
from npuflow.engine.sim.fast_products import conv, matmul
from npuflow.engine.sim.operands import Bench, Operand, walk
from npuflow.hw.check import RANGES
from npuflow.hw.encode import Command
from npuflow.hw.isa import ROUNDINGS

Array = npt.NDArray[Any]
Step = Callable[[], None]
LIMIT = 1 << 62


def bind(bench: Bench, i: int, c: Command) -> Step | None:
    """The command at position i as a call without arguments."""
    binder = _BINDERS.get(c.opcode)
    pair = _PAIRS.get(c.opcode)
    if pair is not None and c.text(f"{pair[0]}_type") != c.text(f"{pair[1]}_type"):
        return None               # a kernel per pair of types would cost more to compile than such commands are worth
    return binder(bench, i, c) if binder is not None else None


@cache
def enabled() -> bool:
    """Whether compiled roundings agree with plain numpy where sums are largest; only then are compiled kernels used."""
    v = np.array([-(1 << 61), -3, -2, -1, 0, 1, 2, 3, (1 << 61) - 1], np.int64)
    wanted = {0: v + 1 >> 1, 1: np.rint(v / 2), 2: np.trunc(v / 2 + np.where(v < 0, -0.5, 0.5)), 3: np.trunc(v / 2)}
    for mode, want in wanted.items():
        got = [int(k.rounded(int(x), 1, 1, mode)) for x in v[1:-1]]
        if got != [int(x) for x in want[1:-1]]:
            return False
    return True


def rounding(c: Command, peak: int, factor: int, extra: int = 0) -> tuple[int, int, int, int] | None:
    """(left shift as a factor, shift, half, mode) when |value| <= peak times factor stays exact in 62 bits."""
    return _rounding(c, "shift", peak, factor, extra)


def _rounding(c: Command, field: str, peak: int, factor: int, extra: int = 0) -> tuple[int, int, int, int] | None:
    shift = c.number(field) + extra
    scale = 1 << max(0, -shift)
    shift = max(0, shift)
    half = (1 << shift) >> 1
    if peak * factor * scale + 2 * half >= LIMIT:
        return None
    return scale, shift, half, ROUNDINGS.index(c.text("rounding")) if shift else 0


def spread(c: Command, name: str) -> int:
    """The largest |operand - zero point| that the container allows."""
    lo, hi = RANGES[c.text(f"{name}_type")]
    zero = c.number(f"{name}_zero")
    return max(abs(lo - zero), abs(hi - zero))


def rows(bench: Bench, dims: tuple[int, ...], *operands: Operand) -> tuple[int, list[Array], tuple[int, ...]]:
    """Rows over all samples: length, absolute offsets per operand, steps."""
    strides = tuple((o.sample, *o.strides) for o in operands)
    length, offsets, steps, _ = walk((bench.batch, *dims), strides)
    return length, [o + p.base for o, p in zip(offsets, operands, strict=True)], steps


def _move(bench: Bench, i: int, c: Command) -> Step:
    if i in bench.facts.idle:
        return _nothing
    source, sink = bench.memory.dma(c)
    return partial(np.copyto, *_merged(sink, source))


def _merged(sink: Array, source: Array) -> tuple[Array, Array]:
    """The same copy with dimensions merged where both sides allow it."""
    shape = sink.shape
    source = np.broadcast_to(source, shape)
    axes: list[list[int]] = []
    for extent, a, b in zip(shape, sink.strides, source.strides, strict=True):
        if extent == 1:
            continue
        if axes and axes[-1][1] == a * extent and axes[-1][2] == b * extent:
            axes[-1] = [axes[-1][0] * extent, a, b]
        else:
            axes.append([extent, a, b])
    dims = tuple(x[0] for x in axes) or (1,)
    a_steps, b_steps = tuple(x[1] for x in axes) or (0,), tuple(x[2] for x in axes) or (0,)
    view = np.lib.stride_tricks.as_strided
    return view(sink, dims, a_steps), view(source, dims, b_steps, writeable=False)


def _nothing() -> None:
    return


def _requant(bench: Bench, i: int, c: Command) -> Step | None:
    dims, axis = c.vector("dims"), c.number("channel_axis")
    channels = dims[axis]

    def vector(name: str, dtype: str, otherwise: int) -> Array | None:
        if c.pointer(name) is None:
            return np.full(channels, otherwise, np.int64)
        known = bench.constant(i, c, name, dtype, channels)
        return None if known is None else known.astype(np.int64)

    bias = vector("bias", c.text("bias_type"), 0)
    m = vector("multipliers", "uint32", c.number("multiplier"))
    lo, hi = vector("los", "int32", c.number("lo")), vector("his", "int32", c.number("hi"))
    if bias is None or m is None or lo is None or hi is None:
        return None
    peak_bias = int(np.abs(bias).max())
    if peak_bias << c.number("bias_shift") >= LIMIT:
        return None
    bias = bias << c.number("bias_shift")
    found = rounding(c, bench.peak(i, c) + int(np.abs(bias).max()), int(m.max()))
    if found is None:
        return None
    scale, shift, half, mode = found
    flat, starts = bench.sum(i, c, int(np.prod(dims)))
    y = bench.operand(i, c, "y")
    dense = tuple(int(np.prod(dims[d + 1 :])) for d in range(4))
    sample = int(starts[1] - starts[0]) if bench.batch > 1 else 0
    length, (ao, yo), steps, kept = walk((bench.batch, *dims), ((sample, *dense), (y.sample, *y.strides)), 1 + axis)
    end = (shift, half, mode, c.number("zero"))
    if len(kept):
        first = (flat, ao + starts[0], y.flat, yo + y.base)
        numbers = (length, kept, bias, m * scale, lo, hi, *end)
        sums, factor = bench.peak(i, c) + int(np.abs(bias).max()), int(m.max()) * scale
        fits = sums < 1 << 31 and factor < 1 << 32 and (sums * factor >> shift) + 1 < 1 << 30 and shift < 62
        if fits and flat.dtype == np.int32 and steps[1] == 1 and mode < 2:
            return partial(k.requant_dense, *first, *numbers)
        return partial(k.requant_rows, *first, steps[1], *numbers)
    return partial(k.requant_inner, flat, ao + starts[0], y.flat, yo + y.base, steps[1], length, bias, m * scale, lo, hi, *end)


def _end(c: Command, found: tuple[int, int, int, int]) -> tuple[int, ...]:
    return (*found[1:], c.number("zero"), c.number("lo"), c.number("hi"))


def _add(bench: Bench, i: int, c: Command) -> Step | None:
    ma, mb = c.number("a_multiplier"), c.number("b_multiplier")
    found = rounding(c, spread(c, "a") * abs(ma) + spread(c, "b") * abs(mb), 1)
    if found is None:
        return None
    a, b, y = (bench.operand(i, c, n) for n in "aby")
    n, (ao, bo, yo), (p, q, s) = rows(bench, c.vector("dims"), a, b, y)
    zeros = c.number("a_zero"), c.number("b_zero"), ma * found[0], mb * found[0]
    return partial(k.linear_rows, a.flat, ao, p, b.flat, bo, q, y.flat, yo, s, n, *zeros, *_end(c, found))


def _rescale(bench: Bench, i: int, c: Command) -> Step | None:
    found = rounding(c, spread(c, "x"), c.number("multiplier"))
    if found is None:
        return None
    x, y = (bench.operand(i, c, n) for n in "xy")
    n, (xo, yo), (p, s) = rows(bench, c.vector("dims"), x, y)
    numbers = c.number("x_zero"), 0, c.number("multiplier") * found[0], 0
    return partial(k.linear_rows, x.flat, xo, p, x.flat, xo, p, y.flat, yo, s, n, *numbers, *_end(c, found))


def _mul(bench: Bench, i: int, c: Command) -> Step | None:
    found = rounding(c, spread(c, "a") * spread(c, "b"), c.number("multiplier"))
    if found is None:
        return None
    a, b, y = (bench.operand(i, c, n) for n in "aby")
    n, (ao, bo, yo), (p, q, s) = rows(bench, c.vector("dims"), a, b, y)
    numbers = c.number("a_zero"), c.number("b_zero"), c.number("multiplier") * found[0]
    return partial(k.product_rows, a.flat, ao, p, b.flat, bo, q, y.flat, yo, s, n, *numbers, *_end(c, found))


def _prelu(bench: Bench, i: int, c: Command) -> Step | None:
    above = rounding(c, spread(c, "x"), c.number("multiplier"))
    below = _rounding(c, "negative_shift", spread(c, "x") * spread(c, "slope"), abs(c.number("negative")))
    if above is None or below is None:
        return None
    x, slope, y = (bench.operand(i, c, n) for n in ("x", "slope", "y"))
    n, (xo, wo, yo), (p, q, s) = rows(bench, c.vector("dims"), x, slope, y)
    numbers = c.number("x_zero"), c.number("slope_zero"), c.number("multiplier") * above[0], c.number("negative") * below[0]
    end = c.number("zero"), c.number("lo"), c.number("hi")
    return partial(k.prelu_rows, x.flat, xo, p, slope.flat, wo, q, y.flat, yo, s, n, *numbers, below[1:], above[1:], *end)


def _minmax(bench: Bench, i: int, c: Command) -> Step:
    a, b, y = (bench.operand(i, c, n) for n in "aby")
    n, (ao, bo, yo), (p, q, s) = rows(bench, c.vector("dims"), a, b, y)
    last = c.number("maximum"), c.number("lo"), c.number("hi")
    return partial(k.minmax_rows, a.flat, ao, p, b.flat, bo, q, y.flat, yo, s, n, *last)


def _checked(kernel: Callable[..., Any], c: Command, why: str) -> Callable[..., None]:
    """A kernel that answers False when the data lead outside a table."""

    def run(*args: Any) -> None:
        if not kernel(*args):
            raise ModelError(f"{c.opcode}: {why}", code="NF-SIM-007")

    return run


def _lut(bench: Bench, i: int, c: Command) -> Step | None:
    bits, count = c.number("bits"), c.number("entries")
    table = bench.constant(i, c, "table", "int32" if bits else c.text("y_type"), count)
    if table is None:
        return None
    x, y = (bench.operand(i, c, n) for n in "xy")
    n, (xo, yo), (p, s) = rows(bench, c.vector("dims"), x, y)
    wrong = "an index outside the table"
    lo, hi = RANGES[c.text("x_type")]
    if bits:
        return partial(
            _checked(k.slope_rows, c, wrong), x.flat, xo, p, table.copy(), c.number("base"), bits, c.number("fraction"),
            c.number("lo"), c.number("hi"), y.flat, yo, s, n,
        )
    if hi < 256 and p == s == 1 and lo >= c.number("base") and hi - c.number("base") < count:
        codes = np.arange(256) if lo == 0 else np.arange(256).astype(np.uint8).view(np.int8).astype(np.int64)
        return partial(k.codes_rows, x.flat.view(np.uint8), xo, table[codes - c.number("base")].copy(), y.flat, yo, n)
    return partial(_checked(k.table_rows, c, wrong), x.flat, xo, p, table.copy(), c.number("base"), y.flat, yo, s, n)


def _softmax(bench: Bench, i: int, c: Command) -> Step | None:
    bits, entries, two = c.number("low_bits"), c.number("entries"), c.pointer("high") is not None
    low = bench.constant(i, c, "low", "uint32", 1 << bits if two else entries)
    high = bench.constant(i, c, "high", "uint32", entries) if two else np.zeros(0, np.uint32)
    if low is None or high is None:
        return None
    e = int(low.max()) * int(high.max()) >> 15 if two else int(low.max())
    dims = c.vector("dims")
    if 2 * e * max(c.number("multiplier"), dims[1]) * 2 >= LIMIT or (two and int(low.max()) * int(high.max()) >= LIMIT):
        return None
    x, y = (bench.operand(i, c, n) for n in "xy")
    where = (x.flat, x.base, x.sample, x.strides, y.flat, y.base, y.sample, y.strides, bench.batch, dims)
    end = (c.number("multiplier"), c.number("zero"), c.number("lo"), c.number("hi"))
    run = _checked(k.softmax, c, "an index outside a table, or a sum of 0")
    return partial(run, *where, low.copy(), high.copy(), bits, *end)


def _window(bench: Bench, i: int, c: Command) -> tuple[Any, ...]:
    """Leading arguments of the pools."""
    x, y = (bench.operand(i, c, n) for n in "xy")
    shape = (c.vector("kernel"), c.vector("stride"), c.vector("dilation"), c.vector("origin"))
    size = (c.number("out_height"), c.number("out_width"))
    ends = (x.flat, x.base, x.sample, x.strides, c.vector("x_dims"), y.flat, y.base, y.sample, y.strides, bench.batch)
    return (*ends, *shape, size)


def _maxpool(bench: Bench, i: int, c: Command) -> Step | None:
    least = RANGES[c.text("x_type")][0]
    if least > c.number("lo"):
        return None               # an empty window gives lo, and would be mistaken for the smallest code
    lines = bench.scratch("lines", c.text("x_type"), ((c.vector("x_dims")[2] + 1) * c.number("out_width"),))
    return partial(w.maxpool, *_window(bench, i, c), least, lines, c.number("lo"), c.number("hi"))


def _avgpool(bench: Bench, i: int, c: Command) -> Step | None:
    area = c.vector("kernel")[0] * c.vector("kernel")[1]
    m = bench.constant(i, c, "multipliers", "uint32", area + 1)
    if m is None:
        return None
    found = rounding(c, spread(c, "x") * area, int(m.max()))
    if found is None:
        return None
    counts = []
    for axis, out in enumerate((c.number("out_height"), c.number("out_width"))):
        step = np.arange(c.vector("kernel")[axis])[:, None] * c.vector("dilation")[axis]
        at = step + np.arange(out) * c.vector("stride")[axis] + c.vector("origin")[axis]
        counts.append(((at >= c.vector("count_lo")[axis]) & (at < c.vector("count_hi")[axis])).sum(0))
    numbers = c.number("x_zero"), m.astype(np.int64) * found[0], np.multiply.outer(*counts)
    return partial(w.avgpool, *_window(bench, i, c), *numbers, *_end(c, found))


def _reduce(bench: Bench, i: int, c: Command) -> Step:
    x, dims = bench.operand(i, c, "x"), c.vector("dims")
    keep = bool(c.number("accumulate"))
    bench.grow(i, spread(c, "x") * (1 if c.number("maximum") else dims[1]), keep)
    flat, starts = bench.sum(i, c, dims[0] * dims[2])
    numbers = c.number("x_zero"), flat, starts, c.number("maximum"), keep
    return partial(w.reduce, x.flat, x.base, x.sample, x.strides, dims, *numbers)


def _resize(bench: Bench, i: int, c: Command) -> Step | None:
    tables = []
    for name, out in (("rows", c.number("out_height")), ("columns", c.number("out_width"))):
        table = bench.constant(i, c, name, "int32", out * 4)
        if table is None:
            return None
        tables.append(table.reshape(out, 4).copy())
    weight = [int(np.abs(t[:, 2:].astype(np.int64)).sum(1).max()) for t in tables]
    found = rounding(c, spread(c, "x") * weight[0] * weight[1], c.number("multiplier"), 2 * c.number("weight_bits"))
    if found is None:
        return None
    x, y = (bench.operand(i, c, n) for n in "xy")
    where = (x.flat, x.base, x.sample, x.strides, c.vector("x_dims"), y.flat, y.base, y.sample, y.strides, bench.batch)
    run = _checked(w.resize, c, "a table names a row or column outside the tile")
    numbers = c.number("x_zero"), c.number("multiplier") * found[0]
    return partial(run, *where, *tables, c.vector("origin"), *numbers, *_end(c, found))


_PAIRS = {"ADD": ("a", "b"), "MUL": ("a", "b"), "MINMAX": ("a", "b"), "PRELU": ("x", "slope")}
_BINDERS: dict[str, Callable[[Bench, int, Command], Step | None]] = {
    "LOAD": _move, "STORE": _move, "COPY": _move, "CONV": conv, "MATMUL": matmul, "REQUANT": _requant, "ADD": _add,
    "MUL": _mul, "MINMAX": _minmax, "PRELU": _prelu, "RESCALE": _rescale, "MAXPOOL": _maxpool, "AVGPOOL": _avgpool,
    "REDUCE": _reduce, "LUT": _lut, "SOFTMAX": _softmax, "RESIZE": _resize,
}  # fmt: skip
