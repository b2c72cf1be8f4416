"""Binds products with weights in groups to compiled kernels.
Weights are laid out once as numbers, or as codes with whole scales.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
from llvmlite import ir  # type: ignore[import-untyped]
from numba.core import types

from npuflow.base.compiled import compiled
from npuflow.hw.command import Command
from npuflow.hw.elements import ELEMENTS
from npuflow.kernels.floats import fast_floats, float_panels
from npuflow.kernels.grouped import grouped
from npuflow.kernels.operands import Bench
from npuflow.kernels.vector_loop import I64, counted, intrinsic

Array = npt.NDArray[Any]
Step = Callable[[], None]
MOST = 1 << 62                            # of a sum of magnitudes
PIECE = 32                                # codes of a group that are multiplied together
ROWS = 4                                  # rows that a column is read for at once
WORD = ir.IntType(32)
HALVES = [ir.Constant(ir.VectorType(WORD, PIECE // 2), list(range(j, PIECE, 2))) for j in (0, 1)]


class _Tile:
    """Vector code of out[r] = sum over pieces p < count of scale[p] * (row r's piece p @ column's piece p).
    Rows have 16 bits, columns 8, scales and sums 64."""

    def __init__(self, rows: int) -> None:
        self.rows = rows

    def __call__(self, context: Any, builder: Any, signature: Any, args: Any) -> Any:
        b, pairs = builder, ir.VectorType(I64, PIECE // 2)
        data = [context.make_array(signature.args[i])(context, b, args[i]).data for i in (0, 2, 4, 7)]
        lines, codes, scales = (b.gep(data[k], [args[i]]) for k, i in enumerate((1, 3, 5)))
        nothing = ir.Constant(ir.VectorType(WORD, PIECE // 2), None)

        def numbers(start: Any, at: Any) -> Any:
            place = b.gep(start, [at])
            found = b.load(b.bitcast(place, ir.VectorType(start.type.pointee, PIECE).as_pointer()), align=1)
            return b.sext(found, ir.VectorType(WORD, PIECE))

        def step(p: Any, sums: list[Any]) -> list[Any]:
            at = b.mul(p, I64(PIECE))
            column, unknown = numbers(codes, at), ir.Constant(pairs, ir.Undefined)
            one = b.insert_element(unknown, b.load(b.gep(scales, [p])), WORD(0))
            factor = b.shuffle_vector(one, unknown, nothing)
            after = []
            for r, total in enumerate(sums):
                # back ends know this as one instruction that multiplies 16-bit numbers and adds neighbours
                product = b.mul(numbers(lines, b.add(at, b.mul(args[6], I64(r * PIECE)))), column)
                both = [b.shuffle_vector(product, product, half) for half in HALVES]
                after.append(b.add(total, b.mul(b.sext(b.add(*both), pairs), factor)))
            return after

        before = [ir.Constant(pairs, None)] * self.rows
        name = f"llvm.vector.reduce.add.v{PIECE // 2}i64"
        known = b.module.globals.get(name)
        reduce = known or ir.Function(b.module, ir.FunctionType(I64, [pairs]), name)
        for r, total in enumerate(counted(b, args[6], before, step)):
            b.store(b.call(reduce, [total]), b.gep(data[3], [I64(r)]))
        return context.get_dummy_value()


def _tile(rows: int) -> Any:
    code = _Tile(rows)

    @intrinsic
    def tile(
        typing: Any, lines: Any, row: Any, codes: Any, column: Any, scales: Any, first: Any, count: Any,
        out: Any,
    ) -> Any:
        i = types.intp
        return types.void(lines, i, codes, i, scales, i, i, out), code

    return tile


_four, _one = _tile(ROWS), _tile(1)


@compiled
def grouped_rows(numbers, a, zeros, weight, size, sums, pieced):  # type: ignore[no-untyped-def]
    """acc = (acc if keep else 0) + a @ w: codes times their scale and sums of a times what is added to each
    weight of a group. `a`: where rows start, the step within one, and how many; containers wrap. `zeros`: the
    zero point, and an offset with which a row fits 16 bits. `pieced`: groups are whole pieces, each with its
    scale; rows are multiplied with the offset taken off, and `rest` has, for each column, the difference of
    the sums that the zero point would have given."""
    (rows, step, k), (codes, scale, more, rest), (acc, offsets, keep) = a, weight, sums
    (n, wide), count, per = codes.shape, more.shape[1], scale.shape[1] // more.shape[1]
    line, short = np.zeros((ROWS, wide), np.int64), np.zeros((ROWS, wide), np.int16)
    totals, found = np.empty((ROWS, count), np.int64), np.zeros(ROWS, np.int64)
    flat, columns, scales = short.reshape(-1), codes.reshape(-1), scale.reshape(-1)
    for first in range(0, rows.shape[0], ROWS):
        some = min(ROWS, rows.shape[0] - first)
        totals[:] = 0
        for r in range(some):
            for i in range(k):
                number = np.int64(numbers[rows[first + r] + i * step])
                line[r, i], short[r, i] = number - zeros[0], number - zeros[1]
                totals[r, i // size] += line[r, i]
        for j in range(n):
            if pieced and some == ROWS:
                _four(flat, 0, columns, j * wide, scales, j * count * per, count * per, found)
            elif pieced:
                for r in range(some):
                    _one(flat, r * wide, columns, j * wide, scales, j * count * per, count * per, found[r:])
            else:
                for r in range(some):
                    found[r] = 0
                    for g in range(count):
                        part = np.int64(0)
                        for i in range(g * size, (g + 1) * size):
                            part += line[r, i] * codes[j, i]
                        found[r] += part * scale[j, g]
            for r in range(some):
                to = offsets[first + r] + j
                total = found[r] + rest[j]
                if keep:
                    total += acc[to]
                for g in range(count):
                    total += totals[r, g] * more[j, g]
                acc[to] = total


def matmul(bench: Bench, i: int, c: Command) -> Step | None:
    batch, m, k, n = (c.number(name) for name in ("batch", "m", "k", "n"))
    raw = _known(bench, i, c)
    if raw is None or c.text("acc_type") != "int64" or not min(batch, m, k, n):
        return None
    count, size = grouped.groups_of(c), c.number("group")
    codes, rest = np.zeros((n, count * size), np.int8), np.zeros(n, np.int64)
    scale, more = (np.empty((n, count), np.int64) for _ in range(2))
    zero, kind = c.number("a_zero"), ELEMENTS[c.text("a_type")]
    low, high = (v - zero for v in kind.range)
    half = 0 if kind.signed or kind.bits < 16 else 1 << 15
    pieced = size % PIECE == 0 and kind.bits <= 16
    middle = 128 if c.text("b_type") == "uint8" else 0
    peak = 0.0
    for some, part in grouped.some_columns(raw, c):
        codes[some, :k] = part.codes.reshape(len(part.codes), -1)[:, :k] - middle
        scale[some] = grouped.whole(part.scale)
        if pieced:
            own = codes[some].reshape(-1, count, size).sum(2, dtype=np.int64)
            rest[some] = (half - zero) * (own * scale[some]).sum(1)
        least = part.minimum
        more[some] = (middle - part.zero) * scale[some]
        if least is not None:
            more[some] += grouped.whole(least)
        sizes = np.abs(part.fixed()[:, :k].astype(np.float64)).sum(1)
        peak = max(peak, float(sizes.max(initial=0.0)) * max(abs(low), abs(high)))
    if peak >= MOST:
        return None
    if pieced:
        scale = np.repeat(scale, size // PIECE, axis=1)
    bench.grow(i, int(peak * 1.01) + 1, bool(c.number("accumulate")))
    a = bench.operand(i, c, "a")
    flat, first = bench.sum(i, c, batch * m * n)
    rows = (
        a.base + np.arange(bench.batch)[:, None, None] * a.sample
        + np.arange(batch)[:, None] * a.strides[0] + np.arange(m) * a.strides[1]
    )
    offsets = first[:, None] + np.arange(batch * m) * n
    return partial(
        grouped_rows, a.flat, (rows.reshape(-1).astype(np.int64), a.strides[2], k), (zero, half),
        (codes, scale, more, rest), size,
        (flat, offsets.reshape(-1).astype(np.int64), bool(c.number("accumulate"))), pieced,
    )


def float_matmul(bench: Bench, i: int, c: Command) -> Step | None:
    batch, m, k, n = (c.number(name) for name in ("batch", "m", "k", "n"))
    kind, bias, raw = c.text("a_type"), fast_floats.known_bias(bench, i, c, n), _known(bench, i, c)
    if bias is None or raw is None or not fast_floats.usable(kind) or not min(batch, m, k, n):
        return None
    b, offset, zero = ELEMENTS[c.text("b_type")], grouped.OFFSETS.index(c.text("offset")), c.number("zero")
    chunk, about = min(c.number("chunk"), k), ((b.bits, b.signed), offset, 0 if offset else zero)
    made = partial(float_panels.of_groups, raw, k, chunk, kind == "float16", *about)
    right = float_panels.shared(raw, ("groups", raw.shape, k, chunk, kind, *about), made)
    return fast_floats.panelled(bench, i, c, bench.operand(i, c, "a"), right, (batch, m, k, n), bias)


def _known(bench: Bench, i: int, c: Command) -> Array | None:
    """The bytes of the weight, [column, group, byte], where they are known before the program runs."""
    shape = c.number("n"), grouped.groups_of(c), grouped.bytes_of(c)
    raw = bench.constant(i, c, "b", "uint8", int(np.prod(shape)))
    return None if raw is None else raw.reshape(shape)
