"""Vector code for sums of byte products that end as codes: tiles of convolutions with channels innermost.

Activations are unsigned bytes, four of a place after each other in one 32-bit word; weights are signed.
Processors with VNNI add the four products of every word exactly, nothing saturates. The sums never leave the
registers: bias, multiplier, rounding and clamp follow at once. Other processors run the simulator's kernels.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
from llvmlite import binding, ir  # type: ignore[import-untyped]
from numba.core import types
from numba.extending import intrinsic as _made

LANES = 16                       # 32-bit numbers of a vector
I8, I32, I64 = ir.IntType(8), ir.IntType(32), ir.IntType(64)


@cache
def available() -> bool:
    """Whether this processor adds four byte products into 32 bits in vectors of any width."""
    features = binding.get_host_cpu_features()
    return all(features.get(name) for name in ("avx512bw", "avx512vl", "avx512dq", "avx512vnni"))


def intrinsic(function: Callable[..., Any]) -> Any:
    """A function of compiled code that writes its own vector code."""
    made: Any = _made(function)
    return made


def vector(kind: Any, count: int) -> Any:
    return ir.VectorType(kind, count)


def splat(builder: Any, number: Any, count: int) -> Any:
    kind = vector(number.type, count)
    one = builder.insert_element(ir.Constant(kind, ir.Undefined), number, I32(0))
    zeros = ir.Constant(vector(I32, count), [0] * count)
    return builder.shuffle_vector(one, ir.Constant(kind, ir.Undefined), zeros)


def every(kind: Any, value: int, count: int) -> Any:
    return ir.Constant(vector(kind, count), [value] * count)


def called(builder: Any, name: str, result: Any, *args: Any) -> Any:
    """A call of an LLVM intrinsic."""
    function_type = ir.FunctionType(result, [a.type for a in args])
    module = builder.module
    known = module.globals.get(name)
    return builder.call(known or ir.Function(module, function_type, name), args)


def load(builder: Any, start: Any, at: Any, kind: Any) -> Any:
    """A vector that starts at an element, at any alignment."""
    align = kind.element.width // 8
    place = builder.gep(start, [at]) if at is not None else start
    return builder.load(builder.bitcast(place, kind.as_pointer()), align=align)


def dot(builder: Any, total: Any, words: Any, weights: Any, count: int) -> Any:
    """total + the four products of unsigned bytes by signed ones in every word."""
    kind = vector(I32, count)
    return called(builder, f"llvm.x86.avx512.vpdpbusd.{32 * count}", kind, total, words, weights)


class _Codes:
    """Vector code from sums to codes for `count` lanes.

    `narrow` (32 bits) holds per vector bias, multiplier, lo, hi; 2^31 was added to the bias, so that a sum is
    an unsigned number times the multiplier. `wide` (64 bits) holds per vector what takes that off again, for
    even lanes, then odd ones. `flags`: shift, zero, 1 for roundings other than half_up, what is added, the
    mask of the quotient's last bit, the mask of a negative product's correction.
    """

    def __init__(self, builder: Any, narrow: Any, wide: Any, flags: Any, count: int) -> None:
        self.builder, self.narrow, self.wide, self.count = builder, narrow, wide, count
        self.half = count // 2
        self.numbers = [builder.load(builder.gep(flags, [I64(k)])) for k in range(6)]

    def made(self, sums: list[tuple[Any, Any]]) -> list[Any]:
        """Codes as 32-bit vectors of (sum, index of its vector in the tables)."""
        builder = self.builder
        usual = builder.icmp_signed("==", self.numbers[2], I64(0))
        blocks = [builder.append_basic_block(name) for name in ("usual", "other", "codes")]
        builder.cbranch(usual, blocks[0], blocks[1])
        results = []
        for block, plain in zip(blocks[:2], (True, False), strict=True):
            builder.position_at_end(block)
            results.append(([self._code(s, at, plain) for s, at in sums], builder.block))
            builder.branch(blocks[2])
        builder.position_at_end(blocks[2])
        found = []
        for k in range(len(sums)):
            phi = builder.phi(vector(I32, self.count))
            for codes, block in results:
                phi.add_incoming(codes[k], block)
            found.append(phi)
        return found

    def _code(self, total: Any, at: Any, plain: bool) -> Any:
        b, n, half = self.builder, self.count, self.half
        shift, zero = self.numbers[0], self.numbers[1]
        start, pair = b.mul(at, I64(4 * n)), vector(I64, half)

        def table(k: int) -> Any:
            return load(b, self.narrow, b.add(start, I64(k * n)), vector(I32, n))

        unsigned = b.bitcast(b.add(total, table(0)), pair)
        factor = b.bitcast(table(1), pair)
        low, up = every(I64, 0xFFFFFFFF, half), every(I64, 32, half)
        parts = []
        for k in (0, 1):
            u, m = (b.lshr(v, up) if k else b.and_(v, low) for v in (unsigned, factor))
            base = load(b, self.wide, b.add(b.mul(at, I64(n)), I64(k * half)), pair)
            product = b.add(b.mul(u, m), base)
            added = b.add(product, splat(b, self.numbers[3], half))
            if not plain:
                last = b.and_(b.ashr(product, splat(b, shift, half)), splat(b, self.numbers[4], half))
                sign = b.and_(b.ashr(product, every(I64, 63, half)), splat(b, self.numbers[5], half))
                added = b.add(added, b.add(last, sign))
            parts.append(b.ashr(added, splat(b, shift, half)))
        whole = b.bitcast(b.or_(b.and_(parts[0], low), b.shl(parts[1], up)), vector(I32, n))
        for k, order in ((2, "<"), (3, ">")):
            bound = table(k)
            whole = b.select(b.icmp_signed(order, whole, bound), bound, whole)
        return b.add(whole, splat(b, b.trunc(zero, I32), n))


def _data(context: Any, builder: Any, signature: Any, args: Any, i: int) -> Any:
    return context.make_array(signature.args[i])(context, builder, args[i]).data


class _Loop:
    """for k in range(count): sums = body(k, sums)."""

    def __init__(self, builder: Any, count: Any, sums: list[Any]) -> None:
        self.builder, self.first, self.start = builder, sums, builder.block
        head, body, self.done = (builder.append_basic_block(name) for name in ("head", "body", "done"))
        self.head = head
        builder.branch(head)
        builder.position_at_end(head)
        self.k, self.sums = builder.phi(I64), [builder.phi(s.type) for s in sums]
        builder.cbranch(builder.icmp_signed("<", self.k, count), body, self.done)
        builder.position_at_end(body)

    def end(self, after: list[Any]) -> list[Any]:
        builder, block = self.builder, self.builder.block
        for phi, first, next_ in [
            (self.k, I64(0), builder.add(self.k, I64(1))), *zip(self.sums, self.first, after, strict=True)
        ]:
            phi.add_incoming(first, self.start)
            phi.add_incoming(next_, block)
        builder.branch(self.head)
        builder.position_at_end(self.done)
        return self.sums


def _dense(rows: int, vectors: int) -> Any:
    """A tile of `rows` places by `vectors` * 16 output channels.

    x[x0 + base[first + r] + at[k]..] are the words; w[w0..] the weights, [k, vectors, 16]; `vec` the index of
    the first vector in the tables, `last` how many channels the last vector has; y[y0 + r * pitch..].
    """

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        x, base, at, w, narrow, wide, flags, y = (
            _data(context, builder, signature, args, i) for i in (0, 2, 4, 6, 8, 9, 10, 13)
        )
        x = builder.gep(x, [args[1]])
        starts = [
            builder.gep(x, [builder.load(builder.gep(base, [builder.add(args[3], I64(r))]))])
            for r in range(rows)
        ]
        w, kind = builder.gep(w, [args[7]]), vector(I32, LANES)
        flip = builder.trunc(builder.load(builder.gep(flags, [I64(6)])), I32)
        loop = _Loop(builder, args[5], [ir.Constant(kind, None)] * (rows * vectors))
        step = builder.load(builder.gep(at, [loop.k]))
        row = builder.mul(loop.k, I64(vectors * LANES))
        weights = [load(builder, w, builder.add(row, I64(v * LANES)), kind) for v in range(vectors)]
        after = []
        for r in range(rows):
            place = builder.bitcast(builder.gep(starts[r], [step]), I32.as_pointer())
            words = splat(builder, builder.xor(builder.load(place, align=1), flip), LANES)
            for v in range(vectors):
                after.append(dot(builder, loop.sums[r * vectors + v], words, weights[v], LANES))
        sums = loop.end(after)
        named = [(s, builder.add(args[11], I64(k % vectors))) for k, s in enumerate(sums)]
        codes = _Codes(builder, narrow, wide, flags, LANES).made(named)
        whole, part = vector(I8, LANES), vector(ir.IntType(1), LANES)
        lanes = ir.Constant(kind, list(range(LANES)))
        mask = builder.icmp_signed("<", lanes, splat(builder, builder.trunc(args[12], I32), LANES))
        for k, code in enumerate(codes):
            r, v = divmod(k, vectors)
            to = builder.add(args[14], builder.add(builder.mul(args[15], I64(r)), I64(v * LANES)))
            place = builder.bitcast(builder.gep(y, [to]), whole.as_pointer())
            made = builder.trunc(code, whole)
            if v < vectors - 1:
                builder.store(made, place, align=1)
            else:
                assert mask.type == part
                called(builder, "llvm.masked.store.v16i8.p0", ir.VoidType(), made, place, I32(1), mask)
        return context.get_dummy_value()

    @intrinsic
    def tile(
        typing: Any, x: Any, x0: Any, base: Any, first: Any, at: Any, count: Any, w: Any, w0: Any,
        narrow: Any, wide: Any, flags: Any, vec: Any, last: Any, y: Any, y0: Any, pitch: Any,
    ) -> Any:
        i = types.intp
        return types.void(x, i, base, i, at, i, w, i, narrow, wide, flags, i, i, y, i, i), code

    return tile


six_four, eight_three, eight_two, eight_one = _dense(6, 4), _dense(8, 3), _dense(8, 2), _dense(8, 1)
one_four, one_three, one_two, one_one = (_dense(1, v) for v in (4, 3, 2, 1))


def _weave(b: Any, one: Any, two: Any, width: int, size: int) -> tuple[Any, Any]:
    """Units of `size` bytes of two vectors in turn, within each 16 bytes: of their lower and upper half."""
    kind = vector(ir.IntType(8 * size), width // size)
    parts = [b.bitcast(v, kind) for v in (one, two)]
    per, found = 16 // size, []
    for upper in (0, per // 2):
        order = []
        for start in range(0, width // size, per):
            for i in range(per // 2):
                order += [start + upper + i, width // size + start + upper + i]
        found.append(b.shuffle_vector(*parts, ir.Constant(vector(I32, len(order)), order)))
    return found[0], found[1]


def _depthwise(rows: int, quarter: int) -> Any:
    """A tile of `rows` places by 16 * quarter channels, each with taps of its own, four taps at a time.

    x[x0 + base[first + r] + at[4 * k + t]..] are the bytes of tap t; they are woven into words of four taps,
    in four vectors, whose channels `woven` names. w[w0..] are the weights, [k, vector, lane].
    """
    width, lanes = 16 * quarter, 4 * quarter

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        b = builder
        x, base, at, w, narrow, wide, flags, y = (
            _data(context, builder, signature, args, i) for i in (0, 2, 4, 6, 8, 9, 10, 12)
        )
        x = b.gep(x, [args[1]])
        starts = [b.gep(x, [b.load(b.gep(base, [b.add(args[3], I64(r))]))]) for r in range(rows)]
        w, kind = b.gep(w, [args[7]]), vector(I32, lanes)
        flip = splat(b, b.trunc(b.load(b.gep(flags, [I64(6)])), I8), width)
        loop = _Loop(b, args[5], [ir.Constant(kind, None)] * (4 * rows))
        steps = [b.load(b.gep(at, [b.add(b.mul(loop.k, I64(4)), I64(t))])) for t in range(4)]
        row = b.mul(loop.k, I64(4 * lanes))
        weights = [load(b, w, b.add(row, I64(j * lanes)), kind) for j in range(4)]
        after = []
        for r in range(rows):
            taps = [b.xor(load(b, starts[r], step, vector(I8, width)), flip) for step in steps]
            pairs = [_weave(b, taps[t], taps[t + 1], width, 1) for t in (0, 2)]
            words = [v for upper in (0, 1) for v in _weave(b, pairs[0][upper], pairs[1][upper], width, 2)]
            for j in range(4):
                after.append(dot(b, loop.sums[4 * r + j], b.bitcast(words[j], kind), weights[j], lanes))
        sums = loop.end(after)
        named = [(s, b.add(args[11], I64(k % 4))) for k, s in enumerate(sums)]
        codes = _Codes(b, narrow, wide, flags, lanes).made(named)
        place = woven(quarter).reshape(-1).tolist()
        order = ir.Constant(vector(I32, width), [place.index(c) for c in range(width)])
        for r in range(rows):
            small = [b.trunc(c, vector(I8, lanes)) for c in codes[4 * r : 4 * r + 4]]
            every_one = ir.Constant(vector(I32, 2 * lanes), list(range(2 * lanes)))
            halves = [b.shuffle_vector(small[j], small[j + 1], every_one) for j in (0, 2)]
            to = b.gep(y, [b.add(args[13], b.mul(args[14], I64(r)))])
            b.store(b.shuffle_vector(*halves, order), b.bitcast(to, vector(I8, width).as_pointer()), align=1)
        return context.get_dummy_value()

    @intrinsic
    def tile(
        typing: Any, x: Any, x0: Any, base: Any, first: Any, at: Any, count: Any, w: Any, w0: Any,
        narrow: Any, wide: Any, flags: Any, vec: Any, y: Any, y0: Any, pitch: Any,
    ) -> Any:
        i = types.intp
        return types.void(x, i, base, i, at, i, w, i, narrow, wide, flags, i, y, i, i), code

    return tile


def woven(quarter: int) -> npt.NDArray[np.int64]:
    """[4, 4 * quarter]: the channel of every lane of the four vectors of a depthwise tile."""
    lane = np.arange(4 * quarter)
    return lane // 4 * 16 + lane % 4 + 4 * np.arange(4)[:, None]


deep_64, deep_32, deep_16 = _depthwise(4, 4), _depthwise(4, 2), _depthwise(4, 1)
single_64, single_32, single_16 = _depthwise(1, 4), _depthwise(1, 2), _depthwise(1, 1)
