"""Commands on floats that work element by element or along windows, bound to compiled kernels."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from npuflow.hw.command import Command
from npuflow.hw.elements import ELEMENTS
from npuflow.kernels import fast
from npuflow.kernels.floats import float_rows, floats
from npuflow.kernels.floats.fast_floats import DIGITS, unclear, usable
from npuflow.kernels.operands import Bench, walk

Array = npt.NDArray[Any]
Step = Callable[[], None]
INFINITE = {"float16": (0xFC00, 0x7C00), "bfloat16": (0xFF80, 0x7F80)}


def _ends(c: Command) -> tuple[np.uint16, np.uint16]:
    return np.uint16(c.number("low")), np.uint16(c.number("high"))


def _rows(bench: Bench, i: int, c: Command, *names: str) -> tuple[list[tuple[Any, ...]], int]:
    """Of each operand its elements, the offsets of its rows and its step; the length of a row."""
    operands = [bench.operand(i, c, name) for name in names]
    length, offsets, steps = fast.rows(bench, c.vector("dims"), *operands)
    return [(o.flat, at, s) for o, at, s in zip(operands, offsets, steps, strict=True)], length


def _block(bench: Bench, name: str, size: int = float_rows.BLOCK) -> Array:
    return bench.scratch(f"float {name}", "float64", (size,))


def rounding(bench: Bench, i: int, c: Command) -> Step | None:
    kind, dims, axis = c.text("y_type"), c.vector("dims"), c.number("channel_axis")
    if not usable(kind):
        return None
    ends = []
    for single, several in (("low", "lows"), ("high", "highs")):
        if c.pointer(several) is None:
            ends.append(np.full(dims[axis], c.number(single), np.uint16))
            continue
        known = bench.constant(i, c, several, "uint16", dims[axis])
        if known is None:
            return None
        ends.append(known.copy())
    flat, starts = bench.sum(i, c, prod(dims))
    y = bench.operand(i, c, "y")
    dense = tuple(prod(dims[d + 1 :]) for d in range(4))
    sample = int(starts[1] - starts[0]) if bench.batch > 1 else 0
    shared = all(len(set(e.tolist())) <= 1 for e in ends)
    strides = ((sample, *dense), (y.sample, *y.strides))
    length, (ao, yo), steps, kept = walk((bench.batch, *dims), strides, -1 if shared else 1 + axis)
    if not len(kept) or (steps[0] != 1 and length > 1):
        return None
    return partial(
        float_rows.round_rows,
        (flat, ao + starts[0]),
        (y.flat, yo + y.base, steps[1], kind == "float16"),
        length,
        kept,
        c.number("divisor"),
        tuple(ends),
        _block(bench, "one"),
    )


def arithmetic(bench: Bench, i: int, c: Command) -> Step | None:
    kinds = [c.text(f"{name}_type") for name in "aby"]
    if not usable(*kinds):
        return None
    operands, length = _rows(bench, i, c, *"aby")
    parts = [(*o, kind == "float16") for o, kind in zip(operands, kinds, strict=True)]
    op, room = float_rows.OPERATIONS.index(c.text("op")), (_block(bench, "one"), _block(bench, "two"))
    return partial(float_rows.arith_rows, *parts, length, op, _ends(c), room)


def unary(bench: Bench, i: int, c: Command) -> Step | None:
    kinds = [c.text(f"{name}_type") for name in "xy"]
    if not usable(*kinds):
        return None
    (x, y), length = _rows(bench, i, c, *"xy")
    halves, op = [kind == "float16" for kind in kinds], float_rows.ALONE.index(c.text("op"))
    parts = (*x, halves[0]), (*y, halves[1])
    return partial(float_rows.unary_rows, *parts, length, op, _ends(c), _block(bench, "one"))


def cast(bench: Bench, i: int, c: Command) -> Step | None:
    source, target = c.text("x_type"), c.text("y_type")
    if not usable(source, target):
        return None
    (x, y), length = _rows(bench, i, c, *"xy")
    scale = float(np.uint32(c.number("factor")).view(np.float32)), c.number("zero")
    wide, made, block = source == "float16", target == "float16", _block(bench, "one")
    if ELEMENTS[source].kind == "int":
        return partial(float_rows.from_codes, x, (*y, made), length, scale, _ends(c), block)
    if ELEMENTS[target].kind == "int":
        ends = c.number("low"), c.number("high")
        return partial(float_rows.to_codes, (*x, wide), y, length, scale, ends, block)
    return partial(float_rows.cast_rows, (*x, wide), (*y, made), length, _ends(c), block)


def table(bench: Bench, i: int, c: Command, every: Array) -> Step:
    """`every`: the result of each pattern."""
    (x, y), length = _rows(bench, i, c, *"xy")
    return partial(float_rows.table_rows, x, every, y, length)


def reduction(bench: Bench, i: int, c: Command) -> Step | None:
    kind, dims = c.text("x_type"), c.vector("dims")
    if not usable(kind) or not prod(dims):
        return None
    gone = [d for d in range(4) if c.number("axes") >> d & 1]
    x = bench.operand(i, c, "x")

    def places(axes: list[int]) -> Array:
        found = np.zeros(1, np.int64)
        for d in axes:
            found = (found[:, None] + np.arange(dims[d]) * x.strides[d]).reshape(-1)
        return found

    kept = places([d for d in range(4) if d not in gone])
    flat, starts = bench.sum(i, c, len(kept))
    return partial(
        float_rows.reduce_rows,
        (x.flat, x.base + np.arange(bench.batch) * x.sample, kind == "float16", DIGITS[kind]),
        places(gone),
        bool(c.number("maximum")),
        (flat, starts, bool(c.number("accumulate"))),
        kept,
        c.number("chunk"),
        tuple(unclear(bench.scratch, c.number("chunk"))),
    )


def pool(bench: Bench, i: int, c: Command) -> Step | None:
    kinds = c.text("x_type"), c.text("y_type")
    if not usable(*kinds):
        return None
    x, y = (bench.operand(i, c, n) for n in "xy")
    shape = (c.vector("kernel"), c.vector("stride"), c.vector("dilation"), c.vector("origin"))
    size = (c.number("out_height"), c.number("out_width"))
    longest = max(c.vector("x_dims")[3], prod(shape[0]))
    return partial(
        float_rows.pool_rows,
        (*x.parts, c.vector("x_dims"), kinds[0] == "float16", DIGITS[kinds[0]]),
        (*y.parts, kinds[1] == "float16"),
        bench.batch,
        (*shape, size),
        (c.vector("count_lo"), c.vector("count_hi"), bool(c.number("maximum"))),
        _ends(c),
        (_block(bench, "one", size[1]), *unclear(bench.scratch, longest)),
    )


@cache
def _exponential(kind: str) -> Array:
    """The float32 nearest to exp(-d), for every pattern d."""
    with np.errstate(all="ignore"):
        distance = floats.real(np.arange(1 << 16, dtype=np.uint16), kind).astype(np.longdouble)
        return floats.single(np.exp(-distance).astype(np.float32))


def softmax(bench: Bench, i: int, c: Command) -> Step | None:
    kinds = c.text("x_type"), c.text("y_type")
    if not usable(*kinds):
        return None
    x, y = (bench.operand(i, c, n) for n in "xy")
    rows = c.vector("dims")[1]
    return partial(
        float_rows.softmax_rows,
        (*x.parts, kinds[0] == "float16"),
        (*y.parts, kinds[1] == "float16"),
        bench.batch,
        c.vector("dims"),
        c.number("chunk"),
        tuple(np.uint16(v) for v in INFINITE[kinds[1]]),
        (
            _exponential(kinds[1]),
            _block(bench, "one", rows),
            bench.scratch("float patterns", "uint16", (rows,)),
            unclear(bench.scratch, 0)[1],
        ),
    )


def resize(bench: Bench, i: int, c: Command) -> Step | None:
    kinds, dims = (c.text("x_type"), c.text("y_type")), c.vector("x_dims")
    if not usable(*kinds):
        return None
    tables = []
    for axis, name in enumerate(("rows", "columns")):
        size = c.number("out_height" if axis == 0 else "out_width")
        known = bench.constant(i, c, name, "int32", 4 * size)
        if known is None:
            return None
        table = known.reshape(size, 4).astype(np.int64)
        table[:, :2] += c.vector("origin")[axis]
        if not size or table[:, :2].min() < 0 or table[:, :2].max() >= dims[2 + axis]:
            return None
        tables.append(table)
    largest = [int(np.abs(t[:, 2:]).max()) for t in tables]
    if max(largest) > 1 << c.number("weight_bits"):
        return None
    digits = (largest[0] * largest[1]).bit_length() + DIGITS[kinds[0]]
    x, y = (bench.operand(i, c, n) for n in "xy")
    return partial(
        float_rows.resize_rows,
        (*x.parts, dims, kinds[0] == "float16"),
        (*y.parts, kinds[1] == "float16"),
        bench.batch,
        tuple(tables),
        (0.25 ** c.number("weight_bits"), digits),
        _ends(c),
        (_block(bench, "one", c.number("out_width")), *unclear(bench.scratch, 4)),
    )
