"""Binds products in blocks to the compiled kernels of floats.
Weights are laid out once as numbers, activations are converted to blocks before each product.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from npuflow.base.compiled import borrowing
from npuflow.hw.command import Command
from npuflow.hw.elements import ELEMENTS
from npuflow.kernels.blocks import blocks
from npuflow.kernels.floats import fast_floats, float_products, floats
from npuflow.kernels.operands import Bench, FlatOperand

LENGTHS = np.array([int(i).bit_length() for i in range(256)], np.int64)  # bits of a significand


@borrowing
def order(magnitude, lengths):  # type: ignore[no-untyped-def]
    """The biased exponent of a pattern without its sign, of subnormal numbers 0 or less; -300 of zero."""
    field = magnitude >> 7
    if field > 0:
        return field
    return lengths[magnitude] - 7 if magnitude > 0 else -300


@borrowing
def element(pattern, unit, top, lengths):  # type: ignore[no-untyped-def]
    """The pattern of the nearest multiple of 2^(unit - 134), ties to even, at most the one by `top`."""
    magnitude = pattern & 0x7FFF
    field = magnitude >> 7
    digits = (magnitude & 127) | (128 if field > 0 else 0)
    down = min(unit - max(field, 1), 12)
    kept = digits >> down
    half, rest = (1 << down) >> 1, digits & ((1 << down) - 1)
    if rest > half or (rest == half and half > 0 and kept & 1 == 1):
        kept += 1
    kept = min(kept, top)
    if kept == 0:
        return 0
    lead = lengths[kept] - 1
    exponent = unit + lead - 7
    found = kept << (unit - 1)  # below the least normal number
    if exponent >= 1:
        found = (exponent << 7) | ((kept << (7 - lead)) & 127)
    return found | (pattern & 0x8000)


@borrowing
def convert_rows(x, xo, xs, y, yo, ys, shape, kind, lengths):  # type: ignore[no-untyped-def]
    """Every place r has a line of groups * per elements from x[xo[r]] on, `xs` apart. A group is converted
    block by block; in y it has `deep` elements, zeros behind its own. `kind`: elements of a block, bits of
    one, elements that share a micro-exponent (0: none do), the least exponent."""
    groups, per, deep = shape
    size, bits, pair, least = kind
    top = (1 << (bits - 1)) - 1
    for g in range(groups):
        for first in range(0, deep, size):
            count, whole = min(size, per - first), min(size, deep - first)
            for r in range(xo.shape[0]):
                at, to = xo[r] + (g * per + first) * xs, yo[r] + (g * deep + first) * ys
                most = 0
                for k in range(count):
                    most = max(most, int(x[at + k * xs]) & 0x7FFF)
                for k in range(count, whole):
                    y[to + k * ys] = 0
                if most >= 0x7F80:
                    for k in range(count):
                        y[to + k * ys] = 0x7FC0
                    continue
                exponent = max(order(most, lengths), least)
                step = pair if pair > 0 else count
                for begin in range(0, count, step):
                    unit, end = exponent + 9 - bits, min(begin + step, count)
                    larger = 0
                    for k in range(begin, end):
                        larger = max(larger, int(x[at + k * xs]) & 0x7FFF)
                    if pair > 0 and larger > 0 and order(larger, lengths) < exponent:
                        unit -= 1
                    for k in range(begin, end):
                        y[to + k * ys] = element(int(x[at + k * xs]), unit, top, lengths)


Array = npt.NDArray[Any]
Step = Callable[[], None]
OUTSIDE = -(1 << 30)  # a row that no tile has: reads as 0


def convolution(bench: Bench, i: int, c: Command) -> Step | None:
    kind, groups, out = c.text("w_type"), c.number("groups"), c.number("out_channels")
    per, taps, size = c.vector("x_dims")[1] // groups, prod(c.vector("kernel")), blocks.size_of(kind)
    count = -(-per // size)
    weight = _weight(bench, i, c, "w", kind, out * count * taps)
    bias = fast_floats.known_bias(bench, i, c, out)
    odd = c.vector("insert") != (1, 1) or min(c.vector("x_dims")) == 0
    if weight is None or bias is None or odd or not fast_floats.usable("bfloat16"):
        return None
    rows = weight.reshape(groups, out // groups, -1)
    block, tap, inner = (v.reshape(-1) for v in np.indices((count, taps, size)))
    channel = block * size + inner
    terms = fast_floats.places(c, channel, tap)
    terms[channel >= per] = (0, OUTSIDE, 0)
    x, before = _converted(bench, bench.operand(i, c, "x"), c.vector("x_dims"), 1, groups, kind, per)
    return _after(before, fast_floats.dense(bench, i, c, x, rows, terms, size, bias))


def matmul(bench: Bench, i: int, c: Command) -> Step | None:
    batch, m, k, n = (c.number(name) for name in ("batch", "m", "k", "n"))
    kind = c.text("b_type")
    size = blocks.size_of(kind)
    count = -(-k // size)
    weight = _weight(bench, i, c, "b", kind, n * count)
    bias = fast_floats.known_bias(bench, i, c, n)
    if weight is None or bias is None or not fast_floats.usable("bfloat16"):
        return None
    right = np.ascontiguousarray(blocks.matrix(weight, n, bool(c.number("columns"))))
    patterns = floats.pattern(right, "bfloat16")
    if not np.array_equal(floats.real(patterns, "bfloat16"), right, equal_nan=True):
        return None  # scales near the ends of their range
    flat, first = bench.sum(i, c, batch * m * n)
    rows, deep = bench.batch * batch * m, count * size
    a, before = _converted(bench, bench.operand(i, c, "a"), (batch, m, k), 2, 1, kind, deep)
    sums = (first[:, None] + np.arange(batch * m) * n).reshape(1, -1).astype(np.int64)
    chunk = min(size, deep)
    product = partial(
        float_products.matrices,
        (a.flat, (np.arange(rows) * deep)[None], 1, False),
        (patterns.reshape(-1), np.zeros(1, np.int64), (n, 1), False),
        (rows, deep, n),
        chunk,
        fast_floats.DIGITS["bfloat16"],
        bench.scratch("float row", "float64", (deep,)),
        (bench.scratch("float rows", "float64", (rows * deep,)), fast_floats.tiles(rows, deep)),
        *fast_floats.chunk_tables(rows, deep, chunk),
        fast_floats.space(bench.scratch, rows, chunk),
        flat,
        sums,
        (bias, bool(c.number("accumulate"))),
    )
    return _after(before, product)


def pairs(bench: Bench, i: int, c: Command) -> Step | None:
    batch, m, k, n = (c.number(name) for name in ("batch", "m", "k", "n"))
    kind, bias = c.text("held_type"), fast_floats.known_bias(bench, i, c, n)
    size = blocks.size_of(kind)
    if bias is None or not fast_floats.usable("bfloat16") or not min(m, k, n):
        return None
    deep = -(-k // size) * size
    a, first = _converted(bench, bench.operand(i, c, "a"), (batch, m, k), 2, 1, kind, deep)
    other = bench.operand(i, c, "b")
    b, second = _converted(bench, other, (batch, k, n), 1, 1, kind, deep, "others in blocks")
    product = fast_floats.product(bench, i, c, (a, b), (batch, m, deep, n), size, bias)
    return _after(first, _after(second, product))


def _weight(bench: Bench, i: int, c: Command, name: str, kind: str, count: int) -> Array | None:
    """The numbers of blocks that are known, [block, element]."""
    raw = bench.constant(i, c, name, "uint8", count * ELEMENTS[kind].block_bytes)
    return None if raw is None else blocks.numbers(raw.reshape(count, -1), kind)


def _converted(
    bench: Bench,
    x: FlatOperand,
    dims: tuple[int, ...],
    axis: int,
    groups: int,
    kind: str,
    deep: int,
    place: str = "activations in blocks",
) -> tuple[FlatOperand, Step]:
    """The activations as the array takes them, in space of their own, and what puts them there. A group has
    `deep` places along the axis that is summed; those behind its elements are 0."""
    shape = (*dims[:axis], groups * deep, *dims[axis + 1 :])
    made = bench.scratch(place, "uint16", (bench.batch, *shape))
    sizes = [prod(shape[d:]) for d in range(len(shape) + 1)]
    row = ELEMENTS[kind]
    assert row.block is not None
    found = FlatOperand(made.reshape(-1), 0, sizes[0], tuple(sizes[1:]))
    if not row.block.both:
        return found, partial(_copied, bench, x, dims, axis, made)
    lines = (*dims[:axis], *dims[axis + 1 :])

    def places(sample: int, strides: Sequence[int]) -> Array:
        """Where every line along the axis starts."""
        kept = (*strides[:axis], *strides[axis + 1 :])
        steps = zip((sample, *kept), np.indices((bench.batch, *lines)), strict=True)
        return np.asarray(sum(step * at for step, at in steps)).reshape(-1).astype(np.int64)

    convert = partial(
        convert_rows,
        x.flat,
        x.base + places(x.sample, x.strides),
        x.strides[axis],
        made.reshape(-1),
        places(sizes[0], sizes[1:]),
        sizes[axis + 1],
        (groups, dims[axis] // groups, deep),
        (row.block.size, row.bits, row.block.pair, 127 + row.block.least),
        LENGTHS,
    )
    return found, convert


def _copied(bench: Bench, x: FlatOperand, dims: tuple[int, ...], axis: int, made: Array) -> None:
    """Activations that stay as they are, with zeros behind the elements of the axis."""
    steps = tuple(x.flat.itemsize * s for s in (x.sample, *x.strides))
    source = np.lib.stride_tricks.as_strided(x.flat[x.base :], (bench.batch, *dims), steps, writeable=False)
    short = [(0, 0)] * made.ndim
    short[axis + 1] = (0, made.shape[axis + 1] - dims[axis])
    made[...] = np.pad(source, short)


def _after(before: Step, step: Step) -> Step:
    def both() -> None:
        before()
        step()

    return both
