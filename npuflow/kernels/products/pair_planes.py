"""Elements of a tile as 16-bit factors: padded planes, and words of two that follow each other along K.

Blocks of 16 are made together: what a block writes beyond its row is written again by the next row, or is a
zero where zeros belong.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]
from numba.core import types

from npuflow.base.compiled import borrowing
from npuflow.kernels.compiled import inside
from npuflow.kernels.vector_loop import intrinsic

_tuple: Any = types.UniTuple
SIGNS = _tuple(types.intp, 3)
BLOCK = 16                       # numbers copied together where more than needed may be
NARROW, WORD = ir.IntType(16), ir.IntType(32)


def vector_at(builder: Any, pointer: Any, at: Any, kind: Any) -> Any:
    """A pointer to a vector that starts at an element."""
    return builder.bitcast(builder.gep(pointer, [at]), kind.as_pointer())


def _every(builder: Any, number: Any, lanes: int) -> Any:
    """A number, shortened to 16 bits, in all lanes."""
    kind = ir.VectorType(NARROW, lanes)
    one = builder.insert_element(ir.Constant(kind, ir.Undefined), builder.trunc(number, NARROW), WORD(0))
    return builder.shuffle_vector(
        one, ir.Constant(kind, ir.Undefined), ir.Constant(ir.VectorType(WORD, lanes), [0] * lanes)
    )


def _elements(array: Any, count: int) -> Any:
    """A vector of elements of an array of bytes, or of 16-bit numbers."""
    return ir.VectorType(ir.IntType(array.dtype.bitwidth), count)


def _wide(builder: Any, found: Any, wide: Any) -> Any:
    return builder.zext(found, wide) if found.type != wide else found


def _widen(step: int) -> Any:
    """Code of line[to + i] = (x[at + step * i] ^ flip) - less for the first `count` places of one block,
    `fill` for the others, which is 0 of bytes. `signs`: flip, less, fill."""

    @intrinsic
    def widen(typing: Any, line: Any, to: Any, x: Any, at: Any, signs: Any, count: Any) -> Any:
        def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            raw, wide = _elements(signature.args[2], step * BLOCK), ir.VectorType(NARROW, BLOCK)
            flip, less, fill = (builder.extract_value(args[4], k) for k in range(3))
            pointers = [context.make_array(signature.args[i])(context, builder, args[i]).data for i in (0, 2)]
            found = builder.load(vector_at(builder, pointers[1], args[3], raw), align=1)
            indices = ir.Constant(ir.VectorType(WORD, BLOCK), [step * i for i in range(BLOCK)])
            found = builder.shuffle_vector(found, ir.Constant(raw, ir.Undefined), indices)
            found = builder.xor(_wide(builder, found, wide), _every(builder, flip, BLOCK))
            found = builder.sub(found, _every(builder, less, BLOCK))
            place = ir.Constant(wide, list(range(BLOCK)))
            known = builder.icmp_signed("<", place, _every(builder, args[5], BLOCK))
            beyond = _every(builder, fill, BLOCK) if raw.element == NARROW else ir.Constant(wide, None)
            found = builder.select(known, found, beyond)
            builder.store(found, vector_at(builder, pointers[0], args[1], wide), align=2)
            return context.get_dummy_value()

        return types.void(line, types.intp, x, types.intp, SIGNS, types.intp), code

    return widen


_beside, _evens = _widen(1), _widen(2)


@intrinsic
def _braid(typing: Any, planes: Any, to: Any, x: Any, first: Any, second: Any, signs: Any) -> Any:
    """planes[to + 2 * i + j] = (x[(first, second)[j] + i] ^ flip) - less for one block of both. `signs`: as
    above."""

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        raw, wide = _elements(signature.args[2], BLOCK), ir.VectorType(NARROW, 2 * BLOCK)
        flip, less = (builder.extract_value(args[5], k) for k in range(2))
        out, source = (
            context.make_array(signature.args[i])(context, builder, args[i]).data for i in (0, 2)
        )
        parts = [builder.load(vector_at(builder, source, args[i], raw), align=1) for i in (3, 4)]
        turns = ir.Constant(
            ir.VectorType(WORD, 2 * BLOCK), [i + j * BLOCK for i in range(BLOCK) for j in (0, 1)]
        )
        found = _wide(builder, builder.shuffle_vector(*parts, turns), wide)
        found = builder.xor(found, _every(builder, flip, 2 * BLOCK))
        found = builder.sub(found, _every(builder, less, 2 * BLOCK))
        builder.store(found, vector_at(builder, out, args[1], wide), align=2)
        return context.get_dummy_value()

    number = types.intp
    return types.void(planes, number, x, number, number, SIGNS), code


@borrowing
def braid(source, window, first, second, planes, to):  # type: ignore[no-untyped-def]
    """Two planes without padding as words: planes[to + 2 * (r * wide + q)] is the factor of the first, the
    next of the second. A block may write 15 words beyond its row."""
    (x, _, _, xs, _, signs), (_, _, _, (deep, wide), _) = source, window
    row, (flip, less, _) = xs[2], signs
    last = max(first, second) + (deep - 1) * row + (wide + BLOCK - 1) // BLOCK * BLOCK
    whole = last <= x.shape[0]                                     # blocks end inside the memory
    for _ in range(deep):
        if whole:
            for q in range(0, wide, BLOCK):
                _braid(planes, to + 2 * q, x, first + q, second + q, signs)
        else:
            for q in range(wide):
                planes[to + 2 * q] = np.int16(x[first + q] ^ flip) - less
                planes[to + 2 * q + 1] = np.int16(x[second + q] ^ flip) - less
        to, first, second = to + 2 * wide, first + row, second + row


@borrowing
def plane(source, window, at, line):  # type: ignore[no-untyped-def]
    """line[phase][r, c] = (x ^ flip) - less at row r * stride + phase + origin. Places outside the tile, and
    those between its rows and columns where zeros are inserted, are left as they are: the line holds what
    belongs there."""
    (x, _, _, xs, dims, signs), (stride, origin, insert, (deep, wide), _) = source, window
    to, plain = 0, insert == (1, 1)
    high, long = (dims[2] - 1) * insert[0] + 1, (dims[3] - 1) * insert[1] + 1
    for p in range(stride[0]):
        above, below = inside(p + origin[0], stride[0], high, deep)
        for f in range(stride[1]):
            left = f + origin[1]
            lo, hi = inside(left, stride[1], long, wide)
            for r in range(above, below):
                y = r * stride[0] + p + origin[0]
                if plain:
                    start = at + y * xs[2] + (left + lo * stride[1]) * xs[3]
                    _row(x, start, stride[1] * xs[3], signs, line, to + r * wide + lo, hi - lo)
                elif y % insert[0] == 0:
                    row, columns = (to + r * wide, lo, hi), (left, stride[1], insert[1])
                    _apart(x, at + y // insert[0] * xs[2], xs[3], signs, line, row, columns)
            to += deep * wide


@borrowing
def _apart(x, at, step, signs, line, places, window):  # type: ignore[no-untyped-def]
    """Places of a row between whose columns zeros are inserted."""
    (to, lo, hi), (left, stride, insert) = places, window
    for q in range(lo, hi):
        place = left + q * stride
        if place % insert == 0:
            line[to + q] = np.int16(x[at + place // insert * step] ^ signs[0]) - signs[1]


@borrowing
def _row(x, at, step, signs, line, to, count):  # type: ignore[no-untyped-def]
    whole = at + (count + BLOCK) * step <= x.shape[0]              # blocks end inside the memory
    if step == 1 and whole:
        for q in range(0, count, BLOCK):
            _beside(line, to + q, x, at + q, signs, min(count - q, BLOCK))
    elif step == 2 and whole:
        for q in range(0, count, BLOCK):
            _evens(line, to + q, x, at + 2 * q, signs, min(count - q, BLOCK))
    else:
        for q in range(count):
            line[to + q] = np.int16(x[at + q * step] ^ signs[0]) - signs[1]


@borrowing
def weave(first, second, out):  # type: ignore[no-untyped-def]
    for i in range(out.shape[0] // 2):
        out[2 * i] = first[i]
        out[2 * i + 1] = second[i]
