"""Sums of products of floats bound to compiled kernels: weights and terms are laid out once."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from npuflow.hw.command import Command
from npuflow.kernels.floats import float_panels, float_products, float_sums, floats
from npuflow.kernels.floats.float_lanes import LANES, LONG, TILES, WIDE, halves
from npuflow.kernels.floats.float_panels import Panels, of_matrix, shared
from npuflow.kernels.operands import Bench, FlatOperand
from npuflow.kernels.products.fast_convolutions import simple

Array = npt.NDArray[Any]
Step = Callable[[], None]
DIGITS = {"float16": 11, "bfloat16": 8}
NO_BIAS = np.zeros(0, np.float32)


def usable(*names: str) -> bool:
    """Whether there are kernels for these types."""
    return all(n not in DIGITS or n == "bfloat16" or halves() for n in names) and trusted()


@cache
def trusted() -> bool:
    """Whether the tiles of this machine are exact: sums that cancel, ties, wide ranges of exponents."""
    rng = np.random.default_rng(3)
    for rows, deep, wide in ((15, 70, 100), (1, 5, 30)):
        a = rng.normal(size=(rows, deep)) * 2.0 ** rng.integers(-30, 30, (rows, deep)) ** rng.integers(0, 2)
        b = rng.normal(size=(deep, wide))
        b[-1], a[:, -1] = -b[0], a[:, 0]
        a, b = (floats.real(floats.pattern(v, "bfloat16"), "bfloat16") for v in (a, b))
        want = floats.dot(a, b, 16, np.zeros((), np.float32))
        one_row = _product(a[:1], b, 16, known=True)
        if not np.array_equal(_product(a, b, 16), want) or not np.array_equal(one_row, want[:1]):
            return False
    return True


def _product(a: Array, b: Array, chunk: int, known: bool = False) -> Array:
    """a @ b by the kernel of matrices, or of a second one that is known."""
    (m, k), n = a.shape, b.shape[1]
    left, right = floats.pattern(a, "bfloat16"), floats.pattern(b, "bfloat16")
    acc = np.empty(m * n, np.float32)
    lefts = left.reshape(-1), (np.arange(m) * k)[None], 1, False
    rights = right.reshape(-1), np.zeros(1, np.int64), (n, 1), False
    room = space(lambda _, dtype, shape: np.empty(shape, dtype), m, min(chunk, k))
    weights, tables = (np.empty(m * k), tiles(m, k)), chunk_tables(m, k, chunk)
    more = (m, k, n), chunk, 8, np.empty(k), weights, *tables, room, acc, (np.arange(m) * n)[None]
    if known:
        float_panels.product(of_matrix(right.reshape(k, n), chunk, False), lefts, *more, (NO_BIAS, False))
    else:
        float_products.matrices(lefts, rights, *more, (NO_BIAS, False))
    return acc.reshape(m, n)


def space(scratch: Callable[..., Array], rows: int, chunk: int) -> tuple[Array, ...]:
    """See `float_sums`."""
    places = float_sums.PLACES
    return (
        scratch("float panel", "float64", (chunk * places,)),
        np.arange(chunk) * places,
        *(scratch(f"float {name}", "int64", (places,)) for name in ("high", "low")),
        scratch("float norms", "float64", (places,)),
        scratch("float sums", "float32", (rows * places,)),
        *unclear(scratch, chunk),
    )


def unclear(scratch: Callable[..., Array], chunk: int) -> tuple[Array, Array]:
    """Where sums are settled that tiles leave open: those of a tile and the terms of one, and digits."""
    room = max(TILES[0] * WIDE, LONG) + chunk
    digits = float_sums.LIMBS + room // LANES  # and masks of open lanes
    return scratch("float tile", "float64", (room,)), scratch("float limbs", "int64", (digits,))


def chunk_tables(rows: int, k: int, chunk: int) -> tuple[Array, Array]:
    """Ranges of exponents and norms of rows, for every chunk."""
    chunks = max(1, -(-k // chunk))
    return np.zeros((chunks, rows), np.int64), np.zeros((chunks, rows))


def tiles(rows: int, k: int) -> Array:
    """Tiles of rows, largest first: first row, rows, where its numbers start."""
    table, at = [], 0
    while at < rows:
        size = next(t for t in TILES if t <= rows - at)
        table.append((at, size, at * k))
        at += size
    return np.array(table, np.int64)


def known_bias(bench: Bench, i: int, c: Command, count: int) -> Array | None:
    """Known biases, none if there are none; None: they are not known."""
    if c.number("accumulate") or c.pointer("bias") is None:
        return NO_BIAS
    return bench.constant(i, c, "bias", "float32", count)


def convolution(bench: Bench, i: int, c: Command) -> Step | None:
    kind, groups, out = c.text("x_type"), c.number("groups"), c.number("out_channels")
    per, taps = c.vector("x_dims")[1] // groups, prod(c.vector("kernel"))
    bias, raw = known_bias(bench, i, c, out), bench.constant(i, c, "w", "uint16", out * per * taps)
    if (
        c.vector("insert") != (1, 1)
        or kind != c.text("w_type")
        or bias is None
        or raw is None
        or min(c.vector("x_dims")) == 0
        or not usable(kind)
    ):
        return None
    weight = floats.real(raw, kind).reshape(groups, out // groups, per, taps)
    chunk = c.number("chunk")
    if per == 1 and groups > 1 and chunk >= taps:
        return _depthwise(bench, i, c, weight.reshape(out, taps), bias)
    return _dense(bench, i, c, weight, bias)


def _dense(bench: Bench, i: int, c: Command, weight: Array, bias: Array) -> Step:
    groups, outs, per, taps = weight.shape
    at = floats.order(per, taps, c.number("block"), c.number("taps"))
    rows = weight.reshape(groups, outs, per * taps)[..., at]
    x = bench.operand(i, c, "x")
    return dense(bench, i, c, x, rows, places(c, at // taps, at % taps), c.number("chunk"), bias)


def places(c: Command, channel: Array, tap: Array) -> Array:
    """Where the terms of a sum lie in the input: channel, row, column."""
    width, (dh, dw) = c.vector("kernel")[1], c.vector("dilation")
    return np.stack([channel, tap // width * dh, tap % width * dw], 1).astype(np.int64)


def dense(
    bench: Bench,
    i: int,
    c: Command,
    x: FlatOperand,
    rows: Array,
    terms: Array,
    most: int,
    bias: Array,
) -> Step:
    """A convolution by its weights [group, output, k] and where every k lies (see `places`), at `most` so
    many to a chunk."""
    groups, outs, k = rows.shape
    chunk, kind = min(most, k), c.text("x_type")
    s = simple(c, x)
    table = tiles(outs, k)
    parts = [rows[:, f : f + n].transpose(0, 2, 1).reshape(groups, -1) for f, n, _ in table.tolist()]
    chunks = [rows[..., b : b + chunk] for b in range(0, k, chunk)]
    with np.errstate(all="ignore"):
        left = np.stack([np.sqrt(np.square(v).sum(-1)) for v in chunks], 1)
    flat, first = bench.sum(i, c, s.dims[0] * groups * outs * prod(s.size))
    return partial(
        float_products.convolution,
        (x.flat, (0, *s.strides[1:]), s.dims, kind == "float16"),
        (groups, s.stride[1]),
        *_runs(s, x, bench.batch, groups * outs, first),
        terms,
        chunk,
        DIGITS[kind],
        (np.ascontiguousarray(np.concatenate(parts, 1)), table),
        np.stack([_spreads(v) for v in chunks], 1),
        left,
        space(bench.scratch, outs, chunk),
        flat,
        prod(s.size),
        (bias, bool(c.number("accumulate"))),
    )


def _spreads(rows: Array) -> Array:
    """The range of exponents of every row."""
    high, low = float_sums.exponents(rows)
    return np.maximum(high - low, 0) >> 52


def _runs(s: Any, x: FlatOperand, batch: int, outs: int, first: Array) -> tuple[Array, Array]:
    """Rows of results, cut where panels end; see `float_sums.convolution`."""
    (height, width), places = s.size, float_sums.PLACES
    total = batch * s.dims[0] * height * width
    cuts = np.union1d(np.arange(0, total, width), np.arange(0, total, places))
    lengths = np.diff(cuts, append=total)
    column, row = cuts % width, cuts // width % height
    sample, n = np.divmod(cuts // (width * height), s.dims[0])
    runs = np.stack(
        [
            x.base + s.skip + sample * x.sample + n * s.strides[0],
            row * s.stride[0] + s.origin[0],
            column * s.stride[1] + s.origin[1],
            lengths,
            cuts % places,
            first[sample] + n * outs * height * width + row * width + column,
        ],
        1,
    )
    parts = np.searchsorted(cuts, np.arange(0, total, places))
    return runs.astype(np.int64), np.append(parts, len(cuts)).astype(np.int64)


def _depthwise(bench: Bench, i: int, c: Command, weight: Array, bias: Array) -> Step:
    kind, x = c.text("x_type"), bench.operand(i, c, "x")
    s = simple(c, x)
    (out, count), (deep, wide) = weight.shape, s.deep
    flat, first = bench.sum(i, c, s.dims[0] * out * prod(s.size))
    samples, area = np.arange(s.dims[0]), prod(s.size)
    starts = x.base + s.skip + np.arange(bench.batch)[:, None] * x.sample + samples * s.strides[0]
    plane = bench.scratch("float plane", "float64", (s.plane + s.size[0] * wide + LONG,))
    plane[...] = 0.0  # what lies behind it is read, and used for nothing
    room = (
        plane,
        bench.scratch("float bounds", "float64", (LONG,)),
        bench.scratch("float line", "float32", (s.size[0] * wide + LONG,)),
        *unclear(bench.scratch, count),
    )
    with np.errstate(all="ignore"):
        left = np.abs(weight).sum(1)
    return partial(
        float_products.depthwise,
        (x.flat, (0, *s.strides[1:]), s.dims, kind == "float16"),
        starts.reshape(-1),
        (s.stride, s.origin, deep, wide, s.size, out // s.dims[1]),
        DIGITS[kind],
        weight.reshape(-1),
        np.array(s.taps(), np.int64),
        _spreads(weight),
        left,
        room,
        flat,
        (first[:, None] + samples * out * area).reshape(-1),
        (bias, bool(c.number("accumulate"))),
    )


def matmul(bench: Bench, i: int, c: Command) -> Step | None:
    batch, m, k, n = (c.number(name) for name in ("batch", "m", "k", "n"))
    kind, bias = c.text("a_type"), known_bias(bench, i, c, n)
    if bias is None or kind != c.text("b_type") or not usable(kind) or not min(m, k, n):
        return None
    (a, b), chunk = (bench.operand(i, c, "a"), bench.operand(i, c, "b")), min(c.number("chunk"), k)
    if batch == 1 and b.strides[1:] in ((n, 1), (1, k)):
        raw = bench.constant(i, c, "b", "uint16", k * n)
        if raw is not None:
            matrix = raw.reshape(k, n) if b.strides[2] == 1 else raw.reshape(n, k).T
            about = "matrix", k, n, b.strides[1:], chunk, kind
            right = shared(raw, about, partial(of_matrix, matrix, chunk, kind == "float16"))
            return panelled(bench, i, c, a, right, (1, m, k, n), bias)
    return product(bench, i, c, (a, b), (batch, m, k, n), chunk, bias, kind)


def _rooms(bench: Bench, kind: str, rows: int, k: int, chunk: int) -> tuple[Any, ...]:
    """What kernels of products take of rows [rows, k]: terms of a chunk, digits, and their scratch arrays."""
    row = bench.scratch("float row", "float64", (k,))
    many = bench.scratch("float rows", "float64", (rows * k,)), tiles(rows, k)
    return chunk, DIGITS[kind], row, many, *chunk_tables(rows, k, chunk), space(bench.scratch, rows, chunk)


def panelled(
    bench: Bench, i: int, c: Command, a: FlatOperand, right: Panels, sizes: tuple[int, ...], bias: Array
) -> Step:
    """Products of matrices [batch, m, k] and one [k, n] that is known."""
    (batch, m, k, n), rows = sizes, bench.batch * sizes[0] * sizes[1]
    flat, first = bench.sum(i, c, batch * m * n)
    sample, each, row = np.arange(bench.batch)[:, None, None], np.arange(batch)[:, None], np.arange(m)
    chunk, kind = min(c.number("chunk"), k), c.text("a_type")
    lefts = a.base + sample * a.sample + each * a.strides[0] + row * a.strides[1]
    sums = first[:, None, None] + each * (m * n) + row * n
    return partial(
        float_panels.product,
        right,
        (a.flat, lefts.reshape(1, rows).astype(np.int64), a.strides[2], kind == "float16"),
        (rows, k, n),
        *_rooms(bench, kind, rows, k, chunk),
        flat,
        sums.reshape(1, rows).astype(np.int64),
        (bias, bool(c.number("accumulate"))),
    )


def product(
    bench: Bench,
    i: int,
    c: Command,
    operands: tuple[FlatOperand, FlatOperand],
    sizes: tuple[int, int, int, int],
    chunk: int,
    bias: Array,
    kind: str = "bfloat16",
) -> Step:
    """A product of matrices [batch, m, k] and [batch, k, n], the command's operands or what was made of
    them."""
    (a, b), (batch, m, k, n), half = operands, sizes, kind == "float16"
    flat, first = bench.sum(i, c, batch * m * n)
    each, sample = np.arange(batch)[:, None], np.arange(bench.batch)[:, None, None]
    lefts = a.base + sample * a.sample + each * a.strides[0] + np.arange(m) * a.strides[1]
    rights = (b.base + sample * b.sample + each * b.strides[0]).reshape(-1)
    sums = first[:, None, None] + each * (m * n) + np.arange(m) * n
    if b.sample == 0 and batch == 1:  # one matrix for all samples
        rights, m = rights[:1], m * bench.batch
    lefts, sums = (v.reshape(-1, m).astype(np.int64) for v in (lefts, sums))
    return partial(
        float_products.matrices,
        (a.flat, lefts, a.strides[2], half),
        (b.flat, rights.astype(np.int64), b.strides[1:], half),
        (m, k, n),
        *_rooms(bench, kind, m, k, chunk),
        flat,
        sums,
        (bias, bool(c.number("accumulate"))),
    )
