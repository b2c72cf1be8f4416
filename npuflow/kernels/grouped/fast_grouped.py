"""Binds products with weights in groups to compiled kernels.
Weights are laid out once as numbers, or as codes with whole scales.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from npuflow.base.compiled import compiled
from npuflow.hw.command import Command
from npuflow.hw.elements import ELEMENTS
from npuflow.kernels.floats import fast_floats, floats
from npuflow.kernels.grouped import grouped
from npuflow.kernels.operands import Bench, FlatOperand

Array = npt.NDArray[Any]
Step = Callable[[], None]
MOST = 1 << 62                            # of a sum of magnitudes


@compiled
def grouped_rows(numbers, a, zero, weight, size, sums):  # type: ignore[no-untyped-def]
    """acc = (acc if keep else 0) + a @ w: codes times their scale and sums of a times what is added to each
    weight of a group. `a`: where rows start, and the step within one; containers wrap."""
    (rows, step), (codes, scale, more), (acc, offsets, keep) = a, weight, sums
    n, k = codes.shape
    count = scale.shape[1]
    line, totals = np.empty(k, np.int64), np.empty(count, np.int64)
    for r in range(rows.shape[0]):
        for g in range(count):
            totals[g] = 0
        for i in range(k):
            line[i] = np.int64(numbers[rows[r] + i * step]) - zero
            totals[i // size] += line[i]
        for j in range(n):
            found = acc[offsets[r] + j] if keep else np.int64(0)
            for g in range(count):
                part = np.int64(0)
                for i in range(g * size, min(k, (g + 1) * size)):
                    part += line[i] * codes[j, i]
                found += part * scale[j, g] + totals[g] * more[j, g]
            acc[offsets[r] + j] = found


def matmul(bench: Bench, i: int, c: Command) -> Step | None:
    batch, m, k, n = (c.number(name) for name in ("batch", "m", "k", "n"))
    raw = _known(bench, i, c)
    if raw is None or c.text("acc_type") != "int64" or not min(batch, m, k, n):
        return None
    count = grouped.groups_of(c)
    codes = np.empty((n, k), np.int16)
    scale, more = (np.empty((n, count), np.int64) for _ in range(2))
    low, high = (v - c.number("a_zero") for v in ELEMENTS[c.text("a_type")].range)
    peak = 0.0
    for some, part in grouped.some_columns(raw, c):
        codes[some] = part.codes.reshape(len(part.codes), -1)[:, :k]
        scale[some] = grouped.whole(part.scale)
        least = part.minimum
        more[some] = -part.zero * scale[some] if least is None else grouped.whole(least)
        sizes = np.abs(part.fixed()[:, :k].astype(np.float64)).sum(1)
        peak = max(peak, float(sizes.max(initial=0.0)) * max(abs(low), abs(high)))
    if peak >= MOST:
        return None
    bench.grow(i, int(peak * 1.01) + 1, bool(c.number("accumulate")))
    a = bench.operand(i, c, "a")
    flat, first = bench.sum(i, c, batch * m * n)
    rows = (
        a.base + np.arange(bench.batch)[:, None, None] * a.sample
        + np.arange(batch)[:, None] * a.strides[0] + np.arange(m) * a.strides[1]
    )
    offsets = first[:, None] + np.arange(batch * m) * n
    return partial(
        grouped_rows, a.flat, (rows.reshape(-1).astype(np.int64), a.strides[2]), c.number("a_zero"),
        (codes, scale, more), c.number("group"),
        (flat, offsets.reshape(-1).astype(np.int64), bool(c.number("accumulate"))),
    )


def float_matmul(bench: Bench, i: int, c: Command) -> Step | None:
    batch, m, k, n = (c.number(name) for name in ("batch", "m", "k", "n"))
    kind, bias, raw = c.text("a_type"), fast_floats.known_bias(bench, i, c, n), _known(bench, i, c)
    if bias is None or raw is None or not fast_floats.usable(kind) or not min(batch, m, k, n):
        return None
    patterns = np.empty((k, n), np.uint16)
    for some, part in grouped.some_columns(raw, c):
        patterns[:, some] = floats.pattern(part.numbers()[:, :k], kind).T
    b = FlatOperand(patterns.reshape(-1), 0, 0, (0, n, 1))
    both, chunk = (bench.operand(i, c, "a"), b), min(c.number("chunk"), k)
    return fast_floats.product(bench, i, c, both, (batch, m, k, n), chunk, bias, kind)


def _known(bench: Bench, i: int, c: Command) -> Array | None:
    """The bytes of the weight, [column, group, byte], where they are known before the program runs."""
    shape = c.number("n"), grouped.groups_of(c), grouped.bytes_of(c)
    raw = bench.constant(i, c, "b", "uint8", int(np.prod(shape)))
    return None if raw is None else raw.reshape(shape)
