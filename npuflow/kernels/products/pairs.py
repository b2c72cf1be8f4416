"""Convolutions of integers by 16-bit products that processors add up in pairs; columns are never laid out.

Operands are centred (their zero points taken off) into 16 bits; two factors that follow each other along K
share one 32-bit word. A padded plane has one part per phase of the stride, so that every tap is a run through
memory: its start in the plane is all that a product needs to know. The innermost tile is generated as vector
code, which no loop in Python's style becomes.
"""

from __future__ import annotations

from typing import Any

import numpy as np
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
def convolution(source, window, order, weights, space, panel, end):  # type: ignore[no-untyped-def]
    """Sums of B * n samples: planes of pairs, products of them with the weights, rows into the accumulator.

    - source: elements, where the first sample starts, steps of samples, of dimensions; extents; and how an
      element becomes a factor: bits that are turned, what is taken off, what stands outside the tile
    - window: stride, origin, inserted zeros, extents of a phase of a plane, and of the output
    - order: groups, how many of them are made together, samples that lie side by side (then there are no
      columns beyond the output's width), output rows that are finished at a time, and whether pairs are of
      neighbours along a row (a group has one channel) or of two channels
    - weights: pairs, blocks of output channels (first, how many, where their pairs start), and where every
      pair of factors starts in a plane
    - space: planes, the same as pairs, lines that become planes, sums under way and the pitch of their rows
    - panel: a panel of the planes and where its rows start; None: products read the planes as they lie
    - end: the accumulator, where samples start in it, whether it holds sums, what is added to those of a
      channel, and places to shift by
    """
    (groups, beside, together, chunk, alone), (a, rows, base) = order, weights
    (_, _, _, phase, size), (planes, pairs, lines, out, pitch) = window, space
    acc, offsets, keep, more, shift = end
    count, wide = window[0][0] * window[0][1] * phase[0] * phase[1], phase[1]
    outs, deep = rows[-1, 0] + rows[-1, 1], base.shape[0]
    lines[:] = source[5][2]                                        # padding, which no plane writes
    for first in range(0, offsets.shape[0], together):
        samples = min(together, offsets.shape[0] - first)
        for g in range(0, groups, beside):
            some = min(beside, groups - g)
            if alone:
                _neighbours(source, window, first, (g, some), planes, lines)
            else:
                _channels(source, window, (first, samples, together), (g, groups), planes, lines)
            for y in range(0, size[0], chunk):
                height = min(chunk, size[0] - y)
                run = (height - 1) * wide + size[1] if together == 1 else samples * size[1]
                for i in range(some):
                    start, result = i * count + y * wide, (out, i * outs * pitch, pitch)
                    own = (g + i) * outs * deep
                    if panel is None:
                        for o in range(outs):
                            for q in range(0, run, LONG):
                                at, to = own + o * deep, (i * outs + o) * pitch + q
                                if run - q <= WIDE:
                                    _one(a, at, pairs, start + q, base, deep, out, to, 0, False)
                                else:
                                    _line(a, at, pairs, start + q, base, deep, out, to, 0, False)
                    else:
                        _products(weights, own, pairs, start, run, panel, result)
                for t in range(samples):
                    for i in range(some * outs):
                        to = offsets[first + t] + ((g * outs + i) * size[0] + y) * size[1]
                        at = i * pitch + t * size[1]
                        add = more[g * outs + i]
                        if shift or add:
                            _shift(out, at, (height, wide, size[1]), acc, to, (keep, add, shift))
                        else:
                            _spread(out, at, wide, (height, size[1]), acc, to, keep)


@borrowing
def _channels(source, window, samples, group, planes, lines):  # type: ignore[no-untyped-def]
    """The planes of a group's channels, two and two, for samples that lie side by side."""
    (_, x0, xb, xs, dims, _), (stride, origin, insert, (deep, wide), _) = source, window
    (first, count, together), (g, groups) = samples, group
    n, channels, phases = dims[0], dims[1] // groups, stride[0] * stride[1] * deep * wide
    bare = stride == (1, 1) and insert == (1, 1) and xs[3] == 1 and min(origin) >= 0
    bare = bare and origin[0] + deep <= dims[2] and origin[1] + wide <= dims[3]
    for c in range(0, channels, 2):
        for t in range(count):
            at = x0 + (first + t) // n * xb + (first + t) % n * xs[0] + (g * channels + c) * xs[1]
            to = 2 * (c // 2 * together + t) * phases
            if bare:                                               # the last of an odd number has no other
                at += origin[0] * xs[2] + origin[1]
                other = at + xs[1] if c + 1 < channels else at
                braid(source, window, at, other, planes, to)
                continue
            plane(source, window, at, lines[0])
            if c + 1 < channels:
                plane(source, window, at + xs[1], lines[1])
            weave(lines[0], lines[1], planes[to : to + 2 * phases])


@borrowing
def _neighbours(source, window, sample, group, planes, lines):  # type: ignore[no-untyped-def]
    """The planes of channels that have a group each: the pairs are factors that follow each other along a
    row. As many as there are `lines` go through each step together, so that none reads what was written the
    moment before."""
    (_, x0, xb, xs, dims, _), (stride, _, _, (deep, wide), _) = source, window
    n, phases, (first, count) = dims[0], stride[0] * stride[1] * deep * wide, group
    for i in range(count):
        at = x0 + sample // n * xb + sample % n * xs[0] + (first + i) * xs[1]
        plane(source, window, at, lines[i])
    for i in range(count):
        weave(lines[i], lines[i, 1:], planes[2 * phases * i : 2 * phases * (i + 1)])


@borrowing
def _products(weights, first, pairs, start, run, panels, result):  # type: ignore[no-untyped-def]
    """out[o, q] for q < run, block by block: K in stretches, places in tiles."""
    (a, rows, base), (panel, steps), (out, begin, pitch) = weights, panels, result
    for q in range(0, run, WIDE):
        for k in range(0, base.shape[0], DEEP):
            count = min(DEEP, base.shape[0] - k)
            for i in range(count):
                at = base[k + i] + start + q
                _copy(panel, i * WIDE, pairs, at)
            for r in range(rows.shape[0]):
                own, to = first + rows[r, 2] + k * rows[r, 1], begin + rows[r, 0] * pitch + q
                if rows[r, 1] == 6:
                    _six(a, own, panel, 0, steps, count, out, to, pitch, k > 0)
                elif rows[r, 1] == 4:
                    _four(a, own, panel, 0, steps, count, out, to, pitch, k > 0)
                elif rows[r, 1] == 2:
                    _two(a, own, panel, 0, steps, count, out, to, pitch, k > 0)
                else:
                    _one(a, own, panel, 0, steps, count, out, to, pitch, k > 0)


@borrowing
def _spread(out, at, wide, size, acc, to, keep):  # type: ignore[no-untyped-def]
    """Rows of `width` out of every `wide` places, one after the other, into a sum or onto it."""
    height, width = size
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


@borrowing
def _shift(out, at, size, acc, to, how):  # type: ignore[no-untyped-def]
    """The same of (sum + more) * 2^shift."""
    (height, wide, width), (keep, more, shift) = size, how
    for y in range(height):
        src, dst = out[at + y * wide : at + y * wide + width], acc[to + y * width : to + (y + 1) * width]
        if keep:
            for i in range(width):
                dst[i] += (np.int64(src[i]) + more) << shift
        else:
            for i in range(width):
                dst[i] = (np.int64(src[i]) + more) << shift
