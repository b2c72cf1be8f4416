"""Every opcode in plain numpy: the exact path that needs no compiled kernel. Nothing here comes from hw.numerics, on purpose."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from npuflow.base.errors import ModelError
from npuflow.engine.sim.memory import Memory
from npuflow.hw.encode import Command
from npuflow.hw.isa import NIBBLES

Wide = npt.NDArray[Any]      # int64, or Python integers (object) where products may not fit
LIMIT = 1 << 62


def times(v: Wide, m: Any) -> Wide:
    """v * m with no overflow: int64 while the largest product fits, Python integers beyond."""
    m = np.asarray(m)
    if v.dtype != object and m.dtype != object and _peak(v) * _peak(m) < LIMIT:
        return np.asarray(v.astype(np.int64) * m.astype(np.int64))
    return np.asarray(v.astype(object) * m.astype(object))


def _peak(v: Wide) -> int:
    return max(abs(int(v.max())), abs(int(v.min()))) if v.size else 0


def divided(v: Wide, shift: int, rounding: str) -> Wide:
    """R(v / 2^shift), by quotient and remainder."""
    if shift <= 0:
        return times(v, np.int64(1) << np.int64(-shift))
    return ratio(v, np.asarray(1 << shift), rounding)


def ratio(num: Wide, den: Wide, rounding: str) -> Wide:
    """R(num / den) for positive integer den."""
    quotient = num // den
    rest = num - quotient * den
    if rounding == "truncate":
        up = (num < 0) & (rest > 0)
    else:
        other = den - rest                 # rest is above, at or below one half as it compares with den - rest
        tie = {"half_up": rest == rest, "half_away": num >= 0, "half_even": quotient % 2 == 1}[rounding]
        up = (rest > other) | ((rest == other) & tie)
    return np.asarray(quotient + up)


def settle(v: Wide, c: Command, lo: Any = None, hi: Any = None) -> Wide:
    """clamp(v + zero, lo, hi) as int64."""
    low, high = (c.number("lo") if lo is None else lo), (c.number("hi") if hi is None else hi)
    shifted = v + c.number("zero") if "zero" in c.fields else v
    return np.asarray(np.minimum(np.maximum(shifted, low), high).astype(np.int64))


def _signed(memory: Memory, c: Command, name: str, dims: tuple[int, ...]) -> Wide:
    """An operand minus its zero point, as int64."""
    return memory.operand(c, name, dims).astype(np.int64) - c.number(f"{name}_zero")


def _finish(memory: Memory, c: Command, dims: tuple[int, ...], v: Wide) -> None:
    memory.operand(c, "y", dims)[...] = settle(divided(v, c.number("shift"), c.text("rounding")), c)


def _move(memory: Memory, c: Command) -> None:
    source, sink = memory.dma(c)
    sink[...] = source


def _fill(memory: Memory, c: Command) -> None:
    memory.operand(c, "y", c.vector("dims"))[...] = c.number("value")


def windows(x: Wide, c: Command) -> Wide:
    """x [.., H, W] gathered to [.., kh, kw, oh, ow]; where the window leaves the tile, 0."""
    insert = c.vector("insert") if "insert" in c.fields else (1, 1)
    out = (c.number("out_height"), c.number("out_width"))
    for axis in (0, 1):
        index, inside = positions(c, axis, x.shape[-2 + axis] if axis == 0 else x.shape[-1], out[axis], insert[axis])
        if axis == 0:
            x = np.where(inside[:, :, None], x[..., np.where(inside, index, 0), :], 0)      # [.., kh, oh, W]
        else:
            x = np.where(inside, x[..., np.where(inside, index, 0)], 0)                      # [.., kh, oh, kw, ow]
    return np.moveaxis(x, -2, -3)


def positions(c: Command, axis: int, extent: int, out: int, insert: int = 1) -> tuple[Wide, npt.NDArray[np.bool_]]:
    """Tile coordinates [kernel, out] of a window along one axis, and which of them the tile has."""
    kernel, stride = c.vector("kernel")[axis], c.vector("stride")[axis]
    at = np.arange(kernel)[:, None] * c.vector("dilation")[axis] + np.arange(out) * stride + c.vector("origin")[axis]
    index = at // insert
    return index, (at % insert == 0) & (index >= 0) & (index < extent)


def matmul(a: Wide, b: Wide) -> Wide:
    """Exact integer a @ b: float64 where no partial sum can reach 2^53, else Python integers."""
    if a.shape[-1] * max(1, _peak(a)) * max(1, _peak(b)) < 1 << 53:
        return np.asarray((a.astype(np.float64) @ b.astype(np.float64)).astype(np.int64))
    return np.asarray(np.matmul(a.astype(object), b.astype(object)))


def _accumulate(memory: Memory, c: Command, dims: tuple[int, ...], value: Wide) -> None:
    acc = memory.accumulator(c, dims)
    if c.number("accumulate"):
        value = value + acc
    acc[...] = wrapped(value, acc.dtype.itemsize * 8)


def wrapped(value: Wide, bits: int) -> Wide:
    """What is left of a sum in a two's complement container."""
    if value.dtype == object:
        half = 1 << (bits - 1)
        return np.asarray(((value + half) % (1 << bits) - half).astype(np.int64))
    return value


def _zeros(memory: Memory, c: Command, name: str, count: int) -> Wide:
    at = c.pointer(f"{name}_zeros")
    if at is None:
        return np.full((1, count), c.number(f"{name}_zero"), np.int64)
    return memory.flat(c.core, at, "int32", count).astype(np.int64)


def _weights(memory: Memory, c: Command, count: int) -> Wide:
    """The dense weights of a convolution as int64."""
    if c.text("w_type") not in NIBBLES:
        return memory.flat(c.core, c.number("w"), c.text("w_type"), count).astype(np.int64)
    return _halves(memory, c, c.number("w"), c.text("w_type"), np.arange(count))


def _matrix(memory: Memory, c: Command, dims: tuple[int, int, int]) -> Wide:
    """The right operand of a product of matrices as int64."""
    if c.text("b_type") not in NIBBLES:
        return memory.operand(c, "b", dims).astype(np.int64)
    lines = [np.arange(d) * s for d, s in zip(dims, c.vector("b_strides"), strict=True)]
    return _halves(memory, c, c.number("b"), c.text("b_type"), lines[0][:, None, None] + lines[1][:, None] + lines[2])


def _halves(memory: Memory, c: Command, address: int, dtype: str, at: Wide) -> Wide:
    """The codes at half bytes `at` from an address: [B, *at.shape]."""
    first = int(at.min()) // 2
    raw = memory.flat(c.core, address + first, "uint8", int(at.max()) // 2 - first + 1)
    code = (raw[:, at // 2 - first] >> (at % 2 * 4).astype(np.uint8)) & 15
    return np.asarray(code.astype(np.int64) - (16 * (code > 7) if dtype == "int4" else 0))


def _conv(memory: Memory, c: Command) -> None:
    dims = c.vector("x_dims")
    groups, out = c.number("groups"), c.number("out_channels")
    height, width, (kh, kw) = c.number("out_height"), c.number("out_width"), c.vector("kernel")
    per = dims[1] // groups
    columns = windows(_signed(memory, c, "x", dims), c)                       # [B, n, C, kh, kw, oh, ow]
    batch = columns.shape[:2]
    columns = columns.reshape(*batch, groups, per * kh * kw, height * width)
    count = out * per * kh * kw
    weight = _weights(memory, c, count).reshape(-1, out, per * kh * kw)
    weight = (weight - _zeros(memory, c, "w", out)[..., None]).reshape(-1, 1, groups, out // groups, per * kh * kw)
    acc = matmul(weight, columns).reshape(*batch, out, height, width)
    _accumulate(memory, c, (dims[0], out, height, width), acc)


def _matmul(memory: Memory, c: Command) -> None:
    batch, m, k, n = (c.number(i) for i in ("batch", "m", "k", "n"))
    a = _signed(memory, c, "a", (batch, m, k))
    b = _matrix(memory, c, (batch, k, n)) - _zeros(memory, c, "b", n)[:, None, None, :]
    _accumulate(memory, c, (batch, m, n), matmul(a, b))


def _requant(memory: Memory, c: Command) -> None:
    dims, axis = c.vector("dims"), c.number("channel_axis")

    def vector(name: str, dtype: str, otherwise: int) -> Wide:
        at = c.pointer(name)
        if at is None:
            return np.full((1, 1, 1, 1, 1), otherwise, np.int64)
        values = memory.flat(c.core, at, dtype, dims[axis]).astype(np.int64)
        return values.reshape([-1, *(dims[axis] if i == axis else 1 for i in range(4))])

    acc = memory.accumulator(c, dims).astype(np.int64)
    acc = acc + times(vector("bias", c.text("bias_type"), 0), 1 << c.number("bias_shift"))
    scaled = divided(times(acc, vector("multipliers", "uint32", c.number("multiplier"))), c.number("shift"), c.text("rounding"))
    y = settle(scaled, c, vector("los", "int32", c.number("lo")), vector("his", "int32", c.number("hi")))
    memory.operand(c, "y", dims)[...] = y


def _add(memory: Memory, c: Command) -> None:
    dims = c.vector("dims")
    a = times(_signed(memory, c, "a", dims), c.number("a_multiplier"))
    b = times(_signed(memory, c, "b", dims), c.number("b_multiplier"))
    _finish(memory, c, dims, a + b)


def _mul(memory: Memory, c: Command) -> None:
    dims = c.vector("dims")
    product = _signed(memory, c, "a", dims) * _signed(memory, c, "b", dims)
    _finish(memory, c, dims, times(product, c.number("multiplier")))


def _div(memory: Memory, c: Command) -> None:
    dims, shift = c.vector("dims"), c.number("shift")
    num = times(_signed(memory, c, "a", dims), c.number("multiplier")).astype(object)
    den = _signed(memory, c, "b", dims).astype(object)
    num, size = np.where(den < 0, -num, num), abs(den)
    num, size = num * (1 << max(-shift, 0)), size * (1 << max(shift, 0))
    quotient = ratio(num, np.where(size == 0, 1, size), c.text("rounding"))
    limit = np.where(num > 0, 1 << 40, np.where(num < 0, -(1 << 40), 0))
    memory.operand(c, "y", dims)[...] = settle(np.where(size == 0, limit, quotient), c)


def _minmax(memory: Memory, c: Command) -> None:
    dims = c.vector("dims")
    a, b = (memory.operand(c, name, dims).astype(np.int64) for name in "ab")
    memory.operand(c, "y", dims)[...] = settle(np.maximum(a, b) if c.number("maximum") else np.minimum(a, b), c)


def _prelu(memory: Memory, c: Command) -> None:
    dims = c.vector("dims")
    v, slope = _signed(memory, c, "x", dims), _signed(memory, c, "slope", dims)
    above = divided(times(v, c.number("multiplier")), c.number("shift"), c.text("rounding"))
    below = divided(times(v * slope, c.number("negative")), c.number("negative_shift"), c.text("rounding"))
    memory.operand(c, "y", dims)[...] = settle(np.where(v >= 0, above, below), c)


def _rescale(memory: Memory, c: Command) -> None:
    dims = c.vector("dims")
    _finish(memory, c, dims, times(_signed(memory, c, "x", dims), c.number("multiplier")))


def _maxpool(memory: Memory, c: Command) -> None:
    dims = c.vector("x_dims")
    floor = np.int64(-(1 << 40))
    shifted = windows(memory.operand(c, "x", dims).astype(np.int64) - floor, c)      # outside the tile: 0, below every value
    best = shifted.max(axis=(-4, -3)) + floor
    best = np.where(best == floor, c.number("lo"), best)
    out = (*dims[:2], c.number("out_height"), c.number("out_width"))
    memory.operand(c, "y", out)[...] = settle(best, c)


def _avgpool(memory: Memory, c: Command) -> None:
    dims, out = c.vector("x_dims"), (c.number("out_height"), c.number("out_width"))
    total = windows(_signed(memory, c, "x", dims), c).sum(axis=(-4, -3))
    counts = []
    for axis in (0, 1):
        kernel, stride = c.vector("kernel")[axis], c.vector("stride")[axis]
        at = np.arange(kernel)[:, None] * c.vector("dilation")[axis] + np.arange(out[axis]) * stride + c.vector("origin")[axis]
        counts.append(((at >= c.vector("count_lo")[axis]) & (at < c.vector("count_hi")[axis])).sum(0))
    area = c.vector("kernel")[0] * c.vector("kernel")[1]
    table = memory.flat(c.core, c.number("multipliers"), "uint32", area + 1).astype(np.int64)
    m = table[:, np.multiply.outer(*counts)][:, None, None]
    _finish(memory, c, (*dims[:2], *out), times(total, m))


def _reduce(memory: Memory, c: Command) -> None:
    dims = c.vector("dims")
    v = _signed(memory, c, "x", dims)
    acc = memory.accumulator(c, (dims[0], dims[2]))
    value = v.max(2) if c.number("maximum") else v.sum(2)
    if c.number("accumulate"):
        value = np.maximum(value, acc) if c.number("maximum") else value + acc
    acc[...] = value


def lookup(table: Wide, index: Wide, c: Command, what: str) -> Wide:
    """table[b, index[b]], an index outside being the program's fault."""
    if index.size and not (index.min() >= 0 and index.max() < table.shape[-1]):
        raise ModelError(
            f"{c.opcode}: index {int(index.min())}..{int(index.max())} into {what} of {table.shape[-1]} entries",
            code="NF-SIM-004",
        )
    if table.shape[0] == 1:
        return np.asarray(table[0][index])
    return np.asarray(np.take_along_axis(table, index.reshape(index.shape[0], -1), 1).reshape(index.shape))


def _lut(memory: Memory, c: Command) -> None:
    dims, bits = c.vector("dims"), c.number("bits")
    d = memory.operand(c, "x", dims).astype(np.int64) - c.number("base")
    y = memory.operand(c, "y", dims)
    table = memory.flat(c.core, c.number("table"), "int32" if bits else c.text("y_type"), c.number("entries")).astype(np.int64)
    if bits == 0:
        y[...] = lookup(table, d, c, "the table")
        return
    index, part = d >> bits, d & ((1 << bits) - 1)
    low, high = lookup(table, index, c, "the table"), lookup(table, index + 1, c, "the table")
    steps = bits + c.number("fraction")
    y[...] = np.clip((low * ((1 << bits) - part) + high * part + (1 << (steps - 1))) >> steps, c.number("lo"), c.number("hi"))


def _softmax(memory: Memory, c: Command) -> None:
    dims, bits = c.vector("dims"), c.number("low_bits")
    x = memory.operand(c, "x", dims).astype(np.int64)
    d = x.max(2, keepdims=True) - x
    entries, high = c.number("entries"), c.pointer("high")
    low = memory.flat(c.core, c.number("low"), "uint32", entries if high is None else 1 << bits).astype(np.int64)
    if high is None:
        e = lookup(low, d, c, "low")
    else:
        upper = memory.flat(c.core, high, "uint32", entries).astype(np.int64)
        e = times(lookup(low, d & ((1 << bits) - 1), c, "low"), lookup(upper, d >> bits, c, "high")) >> 15
    total = e.sum(2, keepdims=True)
    if not np.all(total > 0):
        raise ModelError("SOFTMAX: the sum of exponentials is 0", code="NF-SIM-005")
    y = (times(2 * e, c.number("multiplier")) + total) // (2 * total)
    memory.operand(c, "y", dims)[...] = settle(y, c)


def _resize(memory: Memory, c: Command) -> None:
    dims, out = c.vector("x_dims"), (c.number("out_height"), c.number("out_width"))
    v = _signed(memory, c, "x", dims)
    for axis, name in enumerate(("rows", "columns")):
        table = memory.flat(c.core, c.number(name), "int32", out[axis] * 4).astype(np.int64)
        table = table.reshape(-1, out[axis], 4)
        samples = [_line(v[b], table[b % len(table)], axis, c) for b in range(v.shape[0])]
        v = np.stack(samples)
    shift = 2 * c.number("weight_bits") + c.number("shift")
    scaled = divided(times(v, c.number("multiplier")), shift, c.text("rounding"))
    memory.operand(c, "y", (*dims[:2], *out))[...] = settle(scaled, c)


def _line(v: Wide, table: Wide, axis: int, c: Command) -> Wide:
    """Weighted sum of two rows (axis 0) or columns (axis 1) of a sample [n, c, H, W]."""
    extent, origin = v.shape[2 + axis], c.vector("origin")[axis]
    total: Wide = np.zeros((), np.int64)
    for i in (0, 1):
        index = table[:, i] + origin
        if not (index.min() >= 0 and index.max() < extent):
            raise ModelError(
                f"RESIZE: {'rows' if axis == 0 else 'columns'} name {int(index.max())} of {extent}",
                code="NF-SIM-006",
            )
        weight = table[:, 2 + i].reshape(-1, 1) if axis == 0 else table[:, 2 + i]
        total = total + times(np.take(v, index, axis=2 + axis), weight)
    return total


def _barrier(memory: Memory, c: Command) -> None:
    return


KERNELS: dict[str, Callable[[Memory, Command], None]] = {
    "LOAD": _move, "STORE": _move, "COPY": _move, "FILL": _fill, "CONV": _conv, "MATMUL": _matmul, "REQUANT": _requant,
    "ADD": _add, "MUL": _mul, "DIV": _div, "MINMAX": _minmax, "PRELU": _prelu, "RESCALE": _rescale, "MAXPOOL": _maxpool,
    "AVGPOOL": _avgpool, "REDUCE": _reduce, "LUT": _lut, "SOFTMAX": _softmax, "RESIZE": _resize, "BARRIER": _barrier,
}  # fmt: skip
