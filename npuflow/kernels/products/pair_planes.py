"""Bytes of a tile as 16-bit factors: padded planes, and words of two factors that follow each other along K.

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

BLOCK = 16                       # numbers copied together where more than needed may be
BYTE, NARROW, WORD = ir.IntType(8), ir.IntType(16), ir.IntType(32)


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


def _widen(step: int) -> Any:
    """Code of line[to + i] = (x[at + step * i] ^ flip) - less for the first `count` places of one block of
    bytes, 0 for the others."""

    @intrinsic
    def widen(typing: Any, line: Any, to: Any, x: Any, at: Any, flip: Any, less: Any, count: Any) -> Any:
        def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            raw, wide = ir.VectorType(BYTE, step * BLOCK), ir.VectorType(NARROW, BLOCK)
            pointers = [context.make_array(signature.args[i])(context, builder, args[i]).data for i in (0, 2)]
            found = builder.load(vector_at(builder, pointers[1], args[3], raw), align=1)
            indices = ir.Constant(ir.VectorType(WORD, BLOCK), [step * i for i in range(BLOCK)])
            found = builder.zext(builder.shuffle_vector(found, ir.Constant(raw, ir.Undefined), indices), wide)
            found = builder.xor(found, _every(builder, args[4], BLOCK))
            found = builder.sub(found, _every(builder, args[5], BLOCK))
            place = ir.Constant(wide, list(range(BLOCK)))
            known = builder.icmp_signed("<", place, _every(builder, args[6], BLOCK))
            found = builder.select(known, found, ir.Constant(wide, None))
            builder.store(found, vector_at(builder, pointers[0], args[1], wide), align=2)
            return context.get_dummy_value()

        return types.void(line, types.intp, x, types.intp, types.intp, types.intp, types.intp), code

    return widen


_bytes, _evens = _widen(1), _widen(2)


@intrinsic
def _braid(
    typing: Any, planes: Any, to: Any, x: Any, first: Any, second: Any, flip: Any, less: Any
) -> Any:
    """planes[to + 2 * i + j] = (x[(first, second)[j] + i] ^ flip) - less for one block of both."""

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        raw, wide = ir.VectorType(BYTE, BLOCK), ir.VectorType(NARROW, 2 * BLOCK)
        out, source = (
            context.make_array(signature.args[i])(context, builder, args[i]).data for i in (0, 2)
        )
        parts = [builder.load(vector_at(builder, source, args[i], raw), align=1) for i in (3, 4)]
        turns = ir.Constant(
            ir.VectorType(WORD, 2 * BLOCK), [i + j * BLOCK for i in range(BLOCK) for j in (0, 1)]
        )
        found = builder.zext(builder.shuffle_vector(*parts, turns), wide)
        found = builder.xor(found, _every(builder, args[5], 2 * BLOCK))
        found = builder.sub(found, _every(builder, args[6], 2 * BLOCK))
        builder.store(found, vector_at(builder, out, args[1], wide), align=2)
        return context.get_dummy_value()

    number = types.intp
    return types.void(planes, number, x, number, number, number, number), code


@borrowing
def braid(x, first, second, row, deep, wide, flip, less, planes, to):  # type: ignore[no-untyped-def]
    """Two planes without padding as words: planes[to + 2 * (r * wide + q)] = x - zero of the first, the next
    of the second. A block may write 15 words beyond its row."""
    last = max(first, second) + (deep - 1) * row + (wide + BLOCK - 1) // BLOCK * BLOCK
    whole = last <= x.shape[0]                                     # blocks end inside the memory
    for _ in range(deep):
        if whole:
            for q in range(0, wide, BLOCK):
                _braid(planes, to + 2 * q, x, first + q, second + q, flip, less)
        else:
            for q in range(wide):
                planes[to + 2 * q] = np.int16(x[first + q] ^ flip) - less
                planes[to + 2 * q + 1] = np.int16(x[second + q] ^ flip) - less
        to, first, second = to + 2 * wide, first + row, second + row


@borrowing
def plane(x, at, xs, dims, stride, origin, deep, wide, flip, zero, line):  # type: ignore[no-untyped-def]
    """line[phase][r, c] = x - zero at row r * stride + phase + origin; x are bytes, `flip` their sign bit.
    Places outside the tile are left as they are: the line holds zeros there."""
    to, less = 0, flip + zero
    for p in range(stride[0]):
        above, below = inside(p + origin[0], stride[0], dims[2], deep)
        for f in range(stride[1]):
            left = f + origin[1]
            lo, hi = inside(left, stride[1], dims[3], wide)
            for r in range(above, below):
                y = r * stride[0] + p + origin[0]
                at_row = at + y * xs[2] + (left + lo * stride[1]) * xs[3]
                _row(x, at_row, stride[1] * xs[3], flip, less, line, to + r * wide + lo, hi - lo)
            to += deep * wide


@borrowing
def _row(x, at, step, flip, less, line, to, count):  # type: ignore[no-untyped-def]
    whole = at + (count + BLOCK) * step <= x.shape[0]              # blocks end inside the memory
    if step == 1 and whole:
        for q in range(0, count, BLOCK):
            _bytes(line, to + q, x, at + q, flip, less, min(count - q, BLOCK))
    elif step == 2 and whole:
        for q in range(0, count, BLOCK):
            _evens(line, to + q, x, at + 2 * q, flip, less, min(count - q, BLOCK))
    else:
        for q in range(count):
            line[to + q] = np.int16(x[at + q * step] ^ flip) - less


@borrowing
def weave(first, second, out):  # type: ignore[no-untyped-def]
    for i in range(out.shape[0] // 2):
        out[2 * i] = first[i]
        out[2 * i + 1] = second[i]
