"""Convolutions of bytes by 16-bit products that processors add up in pairs; columns are never laid out.

Operands are centred (their zero points taken off) into 16 bits; two factors that follow each other along K
share one 32-bit word. A padded plane has one part per phase of the stride, so that every tap is a run through
memory: its start in the plane is all that a product needs to know. The innermost tile is generated as vector
code, which no loop in Python's style becomes.
"""

from __future__ import annotations

from typing import Any

from llvmlite import binding, ir  # type: ignore[import-untyped]
from numba.core import types

from npuflow.base.compiled import borrowing
from npuflow.kernels.products.pair_planes import braid, plane, vector_at, weave
from npuflow.kernels.vector_loop import counted, intrinsic


def _lanes() -> int:
    """32-bit numbers in the widest vector of this processor that is worth using."""
    features = binding.get_host_cpu_features()
    return 16 if features.get("avx512bw") else 8 if features.get("avx2") else 4


LANES = _lanes()
WIDE = 2 * LANES                 # places that a tile of several rows covers
LONG = 4 * LANES                 # places that a tile of one row covers
DEEP = 256                       # pairs along K whose panel stays in the nearest cache


class _Tile:
    """Vector code of out[r, q] (+)= sum over k < n of both products of a[k * rows + r] and b[base[k] + q]."""

    def __init__(self, rows: int, vectors: int) -> None:
        self.rows, self.vectors = rows, vectors
        self.i32, self.i64 = ir.IntType(32), ir.IntType(64)
        self.vector = ir.VectorType(self.i32, LANES)

    def __call__(self, context: Any, builder: Any, signature: Any, args: Any) -> Any:
        def data(i: int) -> Any:
            return context.make_array(signature.args[i])(context, builder, args[i]).data

        a, b = builder.gep(data(0), [args[1]]), builder.gep(data(2), [args[3]])
        out, pitch = builder.gep(data(6), [args[7]]), args[8]
        places = [
            builder.bitcast(
                builder.gep(out, [builder.add(builder.mul(pitch, self.i64(r)), self.i64(v * LANES))]),
                self.vector.as_pointer(),
            )
            for r in range(self.rows)
            for v in range(self.vectors)
        ]
        nothing = ir.Constant(self.vector, None)
        before = [builder.select(args[9], builder.load(place, align=4), nothing) for place in places]
        base = data(4)

        def step(k: Any, sums: list[Any]) -> list[Any]:
            column = builder.gep(a, [builder.mul(k, self.i64(self.rows))])
            return self._step(builder, column, b, builder.gep(base, [k]), sums)

        for place, total in zip(places, counted(builder, args[5], before, step), strict=True):
            builder.store(total, place, align=4)
        return context.get_dummy_value()

    def _step(self, builder: Any, a: Any, b: Any, at: Any, sums: list[Any]) -> list[Any]:
        narrow, double = ir.VectorType(ir.IntType(16), 2 * LANES), ir.VectorType(self.i32, 2 * LANES)
        start = builder.gep(b, [builder.load(at)])
        pieces = []
        for v in range(self.vectors):
            place = builder.bitcast(builder.gep(start, [self.i64(v * LANES)]), self.vector.as_pointer())
            pieces.append(builder.sext(builder.bitcast(builder.load(place, align=4), narrow), double))
        unknown, whole = ir.Constant(self.vector, ir.Undefined), ir.Constant(double, ir.Undefined)
        first = ir.Constant(ir.VectorType(self.i32, LANES), [0] * LANES)
        even, odd = (ir.Constant(self.vector, [2 * i + j for i in range(LANES)]) for j in (0, 1))
        after = []
        for r in range(self.rows):
            pair = builder.insert_element(
                unknown, builder.load(builder.gep(a, [self.i64(r)]), align=4), self.i32(0)
            )
            factor = builder.sext(
                builder.bitcast(builder.shuffle_vector(pair, unknown, first), narrow), double
            )
            for v in range(self.vectors):
                # back ends know this as one instruction that multiplies 16-bit numbers and adds neighbours
                product = builder.mul(factor, pieces[v])
                both = [builder.shuffle_vector(product, whole, part) for part in (even, odd)]
                after.append(builder.add(sums[r * self.vectors + v], builder.add(*both)))
        return after


def _tile(rows: int, vectors: int) -> Any:
    code = _Tile(rows, vectors)

    @intrinsic
    def tile(
        typing: Any,
        a: Any,
        ao: Any,
        b: Any,
        bo: Any,
        base: Any,
        count: Any,
        out: Any,
        oo: Any,
        pitch: Any,
        keep: Any,
    ) -> Any:
        number = types.intp
        return types.void(a, number, b, number, base, number, out, number, number, types.boolean), code

    return tile


_six, _four, _two, _one = _tile(6, 2), _tile(4, 2), _tile(2, 2), _tile(1, 2)
_line = _tile(1, 4)
TILES = (6, 4, 2, 1)             # rows of a tile, largest first


@intrinsic
def _copy(typing: Any, out: Any, to: Any, source: Any, at: Any) -> Any:
    """out[to + i] = source[at + i] for one tile's width of 32-bit numbers, into 32 or 64 bits."""

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        kinds = [ir.VectorType(ir.IntType(signature.args[i].dtype.bitwidth), WIDE) for i in (0, 2)]
        pointers = [context.make_array(signature.args[i])(context, builder, args[i]).data for i in (0, 2)]
        values = builder.load(vector_at(builder, pointers[1], args[3], kinds[1]), align=4)
        if kinds[0].element.width > 32:
            values = builder.sext(values, kinds[0])
        builder.store(values, vector_at(builder, pointers[0], args[1], kinds[0]), align=4)
        return context.get_dummy_value()

    return types.void(out, types.intp, source, types.intp), code


@borrowing
def dense(  # type: ignore[no-untyped-def]
    x, x0, xb, xs, dims, flip, zero, groups, stride, origin, deep, wide, size, together, chunk,
    a, rows, base, planes, pairs, lines, panel, steps, out, pitch, acc, offsets, keep,
):
    """Sums of B * n samples, `together` of which lie side by side (then there are no
    columns beyond the output's width).

    `rows` names each block of output channels (first, how many, where its weights start in `a`),
    `base` where every pair of factors starts in `pairs`, which is `planes` seen as pairs; `chunk`
    output rows are finished at a time.
    """
    n, channels = dims[0], dims[1] // groups
    phases = stride[0] * stride[1] * deep * wide
    bare = stride == (1, 1) and xs[3] == 1 and min(origin) >= 0
    bare = bare and origin[0] + deep <= dims[2] and origin[1] + wide <= dims[3]
    outs = rows[-1, 0] + rows[-1, 1]
    lines[:] = 0                                                   # padding, which no plane writes
    for first in range(0, offsets.shape[0], together):
        count = min(together, offsets.shape[0] - first)
        for g in range(groups):
            for c in range(0, channels, 2):
                for t in range(count):
                    at = x0 + (first + t) // n * xb + (first + t) % n * xs[0] + (g * channels + c) * xs[1]
                    to = 2 * (c // 2 * together + t) * phases
                    if bare:                                       # the last of an odd number has no other
                        at += origin[0] * xs[2] + origin[1]
                        other = at + xs[1] if c + 1 < channels else at
                        braid(x, at, other, xs[2], deep, wide, flip, flip + zero, planes, to)
                        continue
                    plane(x, at, xs, dims, stride, origin, deep, wide, flip, zero, lines[0])
                    if c + 1 < channels:
                        plane(x, at + xs[1], xs, dims, stride, origin, deep, wide, flip, zero, lines[1])
                    weave(lines[0], lines[1], planes[to : to + 2 * phases])
            for y in range(0, size[0], chunk):
                run = (min(chunk, size[0] - y) - 1) * wide + size[1] if together == 1 else count * size[1]
                _products(
                    a, g * base.shape[0] * outs, rows, base, pairs, y * wide, run, panel, steps, out, pitch
                )
                for t in range(count):
                    for o in range(outs):
                        to = offsets[first + t] + ((g * outs + o) * size[0] + y) * size[1]
                        spread(
                            out,
                            o * pitch + t * size[1],
                            wide,
                            min(chunk, size[0] - y),
                            size[1],
                            acc,
                            to,
                            keep,
                        )


@borrowing
def depthwise(  # type: ignore[no-untyped-def]
    x, x0, xb, xs, dims, flip, zero, per, stride, origin, deep, wide, size, a, base, planes, pairs, lines,
    out, acc, offsets, keep,
):
    """One input channel per group, `per` outputs each: factors that follow each other along a row are the
    pairs. As many channels as there are `lines` go through each step together, so that none reads what was
    written the moment before."""
    n, channels, phases = dims[0], dims[1], stride[0] * stride[1] * deep * wide
    run, together = (size[0] - 1) * wide + size[1], lines.shape[0]
    pitch = (run + LONG - 1) // LONG * LONG
    lines[:] = 0                                                   # padding, which no plane writes
    for r in range(offsets.shape[0]):
        for first in range(0, channels, together):
            count = min(together, channels - first)
            for i in range(count):
                at = x0 + r // n * xb + r % n * xs[0] + (first + i) * xs[1]
                plane(x, at, xs, dims, stride, origin, deep, wide, flip, zero, lines[i])
            for i in range(count):
                weave(lines[i], lines[i, 1:], planes[2 * phases * i : 2 * phases * (i + 1)])
            for i in range(count * per):
                o, at = first * per + i, i // per * phases
                for q in range(0, run, LONG):
                    to = i * pitch + q
                    if run - q <= WIDE:
                        _one(a, o * base.shape[0], pairs, at + q, base, base.shape[0], out, to, 0, False)
                    else:
                        _line(a, o * base.shape[0], pairs, at + q, base, base.shape[0], out, to, 0, False)
            for i in range(count * per):
                to = offsets[r] + (first * per + i) * size[0] * size[1]
                spread(out, i * pitch, wide, size[0], size[1], acc, to, keep)


@borrowing
def _products(  # type: ignore[no-untyped-def]
    a, first, rows, base, pairs, start, run, panel, steps, out, pitch
):
    """out[o, q] for q < run, block by block: K in stretches, places in tiles."""
    for q in range(0, run, WIDE):
        for k in range(0, base.shape[0], DEEP):
            count = min(DEEP, base.shape[0] - k)
            for i in range(count):
                at = base[k + i] + start + q
                _copy(panel, i * WIDE, pairs, at)
            for r in range(rows.shape[0]):
                weights, to = first + rows[r, 2] + k * rows[r, 1], rows[r, 0] * pitch + q
                if rows[r, 1] == 6:
                    _six(a, weights, panel, 0, steps, count, out, to, pitch, k > 0)
                elif rows[r, 1] == 4:
                    _four(a, weights, panel, 0, steps, count, out, to, pitch, k > 0)
                elif rows[r, 1] == 2:
                    _two(a, weights, panel, 0, steps, count, out, to, pitch, k > 0)
                else:
                    _one(a, weights, panel, 0, steps, count, out, to, pitch, k > 0)


@borrowing
def spread(out, at, wide, height, width, acc, to, keep):  # type: ignore[no-untyped-def]
    """Rows of `width` out of every `wide` places, one after the other, into a sum or onto it."""
    for y in range(height):
        src, dst = out[at + y * wide : at + y * wide + width], acc[to + y * width : to + (y + 1) * width]
        if keep:
            for i in range(width):
                dst[i] += src[i]
        elif (height - 1 - y) * width < WIDE:
            for i in range(width):
                dst[i] = src[i]
        # in whole blocks: the next rows write again what is too much
        else:
            for q in range(0, width, WIDE):
                _copy(acc, to + y * width + q, out, at + y * wide + q)
