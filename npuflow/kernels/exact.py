"""Arithmetic of the exact path, which needs no compiled kernel. Nothing here comes
from hw.numerics, on purpose."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from npuflow.base.errors import ModelError
from npuflow.hw.command import Command
from npuflow.hw.elements import ELEMENTS, Element
from npuflow.kernels.memory import SimulatedMemory

Wide = npt.NDArray[Any]      # int64, or Python integers (object) where products may not fit
LIMIT = 1 << 62


def times(v: Wide, m: Any) -> Wide:
    """v * m with no overflow: int64 while the largest product fits, Python integers beyond."""
    m = np.asarray(m)
    if v.dtype != object and m.dtype != object and _peak(v) * _peak(m) < LIMIT:
        return np.asarray(v.astype(np.int64) * m.astype(np.int64))
    return np.asarray(v.astype(object) * m.astype(object))


def plus(a: Wide, b: Wide) -> Wide:
    """a + b with no overflow."""
    if a.dtype != object and b.dtype != object and _peak(a) + _peak(b) < LIMIT:
        return np.asarray(a + b)
    return np.asarray(a.astype(object) + b.astype(object))


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
        # rest is above, at or below one half as it compares with den - rest
        other = den - rest
        tie = {"half_up": rest == rest, "half_away": num >= 0, "half_even": quotient % 2 == 1}[rounding]
        up = (rest > other) | ((rest == other) & tie)
    return np.asarray(quotient + up)


def settle(v: Wide, c: Command, lo: Any = None, hi: Any = None) -> Wide:
    """clamp(v + zero, lo, hi) as int64."""
    low, high = (c.number("lo") if lo is None else lo), (c.number("hi") if hi is None else hi)
    shifted = v + c.number("zero") if "zero" in c.fields else v
    return np.asarray(np.minimum(np.maximum(shifted, low), high).astype(np.int64))


def signed(memory: SimulatedMemory, c: Command, name: str, dims: tuple[int, ...]) -> Wide:
    """An operand minus its zero point, as int64."""
    return memory.operand(c, name, dims).astype(np.int64) - c.number(f"{name}_zero")


def finish(memory: SimulatedMemory, c: Command, dims: tuple[int, ...], v: Wide) -> None:
    memory.operand(c, "y", dims)[...] = settle(divided(v, c.number("shift"), c.text("rounding")), c)


def windows(x: Wide, c: Command) -> Wide:
    """x [.., H, W] gathered to [.., kh, kw, oh, ow]; where the window leaves the tile, 0."""
    insert = c.vector("insert") if "insert" in c.fields else (1, 1)
    out = (c.number("out_height"), c.number("out_width"))
    for axis in (0, 1):
        index, inside = positions(
            c, axis, x.shape[-2 + axis] if axis == 0 else x.shape[-1], out[axis], insert[axis]
        )
        if axis == 0:
            x = np.where(inside[:, :, None], x[..., np.where(inside, index, 0), :], 0)      # [.., kh, oh, W]
        else:
            # [.., kh, oh, kw, ow]
            x = np.where(inside, x[..., np.where(inside, index, 0)], 0)
    return np.moveaxis(x, -2, -3)


def positions(
    c: Command, axis: int, extent: int, out: int, insert: int = 1
) -> tuple[Wide, npt.NDArray[np.bool_]]:
    """Tile coordinates [kernel, out] of a window along one axis, and which of them the tile has."""
    kernel, stride = c.vector("kernel")[axis], c.vector("stride")[axis]
    at = (
        np.arange(kernel)[:, None] * c.vector("dilation")[axis]
        + np.arange(out) * stride
        + c.vector("origin")[axis]
    )
    index = at // insert
    return index, (at % insert == 0) & (index >= 0) & (index < extent)


def named(index: Wide, extent: int, c: Command, axis: int) -> None:
    """A fault where a table names a row (axis 0) or column that the tile does not have."""
    if not (index.min() >= 0 and index.max() < extent):
        raise ModelError(
            f"{c.opcode}: {'rows' if axis == 0 else 'columns'} name {int(index.max())} of {extent}",
            code="NF-SIM-006",
        )


def matmul(a: Wide, b: Wide) -> Wide:
    """Exact integer a @ b: float64 where no partial sum can reach 2^53, else Python integers."""
    if a.shape[-1] * max(1, _peak(a)) * max(1, _peak(b)) < 1 << 53:
        return np.asarray((a.astype(np.float64) @ b.astype(np.float64)).astype(np.int64))
    return np.asarray(np.matmul(a.astype(object), b.astype(object)))


def accumulate(memory: SimulatedMemory, c: Command, dims: tuple[int, ...], value: Wide) -> None:
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


def zeros(memory: SimulatedMemory, c: Command, name: str, count: int) -> Wide:
    at = c.pointer(f"{name}_zeros")
    if at is None:
        return np.full((1, count), c.number(f"{name}_zero"), np.int64)
    return memory.flat(c.core, at, "int32", count).astype(np.int64)


def packed(memory: SimulatedMemory, c: Command, name: str, at: Wide) -> Wide:
    """Elements of a packed operand at places `at`, counted from its address: [B, *at.shape]."""
    kind = ELEMENTS[c.text(f"{name}_type")]
    if kind.sparse is not None:
        return _sparse(memory, c, name, at, kind)
    first, last = int(at.min()) * kind.bits, (int(at.max()) + 1) * kind.bits
    raw = memory.flat(c.core, c.number(name) + first // 8, "uint8", -(-last // 8) - first // 8).astype(
        np.int64
    )
    code = np.zeros((len(raw), *at.shape), np.int64)
    for k in range(kind.bits):
        place = at * kind.bits + k - first // 8 * 8
        code |= (raw[:, place // 8] >> (place % 8) & 1) << k
    return code - ((code >> (kind.bits - 1)) << kind.bits) if kind.signed else code


def _sparse(memory: SimulatedMemory, c: Command, name: str, at: Wide, kind: Element) -> Wide:
    """Elements of which only some are stored, behind them their places; a place that is stored twice counts
    twice."""
    assert kind.sparse is not None
    kept, of = kind.sparse
    size = kept * (kind.bits + kind.place_bits)
    raw = memory.flat(c.core, c.number(name), "uint8", -(-(int(at.max()) // of + 1) * size // 8))
    stream = np.unpackbits(np.ascontiguousarray(raw), axis=1, bitorder="little")

    def field(first: Wide, width: int) -> Wide:
        return np.asarray(sum(stream[:, first + k].astype(np.int64) << k for k in range(width)))

    start, found = at // of * size, np.zeros((len(raw), *at.shape), np.int64)
    for k in range(kept):
        code = field(start + k * kind.bits, kind.bits)
        code = code - ((code >> (kind.bits - 1)) << kind.bits) if kind.signed else code
        place = field(start + kept * kind.bits + k * kind.place_bits, kind.place_bits)
        found += np.where(place == at % of, code, 0)
    return found


def lookup(table: Wide, index: Wide, c: Command, what: str) -> Wide:
    """table[b, index[b]], an index outside being the program's fault."""
    if index.size and not (index.min() >= 0 and index.max() < table.shape[-1]):
        raise ModelError(
            f"{c.opcode}: index {int(index.min())}..{int(index.max())} into {what} of {table.shape[-1]} "
            "entries",
            code="NF-SIM-004",
        )
    if table.shape[0] == 1:
        return np.asarray(table[0][index])
    return np.asarray(np.take_along_axis(table, index.reshape(index.shape[0], -1), 1).reshape(index.shape))
