"""Vector code of float products: tiles of float64 sums, rounded to float32 where a bound allows it.
The bound of their error shows that nothing else can be the exact sum's nearest. It also turns bits of numbers
into numbers of bits.
"""

from __future__ import annotations

import platform
from collections.abc import Callable
from typing import Any

from llvmlite import binding, ir  # type: ignore[import-untyped]
from numba.core import types

from npuflow.kernels.vector_loop import counted, intrinsic

FEATURES = binding.get_host_cpu_features()
F32, F64, I16, I32, I64 = ir.FloatType(), ir.DoubleType(), ir.IntType(16), ir.IntType(32), ir.IntType(64)
LANES = 8 if FEATURES.get("avx512f") else 4 if FEATURES.get("avx") else 2
VECTORS = 3
WIDE = VECTORS * LANES  # places that a tile covers
LONG = 4 * LANES  # places that a tile of one row covers
TILES = (8, 4, 2, 1) if LANES == 8 else (4, 2, 1)  # rows of a tile, largest first
FUSED = bool(FEATURES.get("fma"))
EXPONENT = 0x7FF0000000000000  # the exponent's field of a float64
NOTHING = 0x7FFFFFFFFFFFFFFF  # no exponent


def halves() -> bool:
    """Whether the processor converts float16."""
    return bool(FEATURES.get("f16c")) or platform.machine() in ("aarch64", "arm64")


class _Tile:
    """Vector code of s[r, q] = sum over k < n of a[k * rows + r] * b[base[k] + q] in float64 (b: numbers, or
    patterns of bfloat16) and of
    total[r, q] += float32(s[r, q]). No sum is off by more than left[r] * scale * right[q]: where
    one of them may round to another number, that is not added. Then `raw` gets the sums, `masks` for every
    vector which of its lanes are open, and 1 is returned."""

    def __init__(self, rows: int, vectors: int) -> None:
        self.rows, self.vectors = rows, vectors
        self.wide, self.single = ir.VectorType(F64, LANES), ir.VectorType(F32, LANES)

    def __call__(self, context: Any, builder: Any, signature: Any, args: Any) -> Any:
        def at(i: int) -> Any:
            """An array from the element that the next argument names."""
            data = context.make_array(signature.args[i])(context, builder, args[i]).data
            return builder.gep(data, [args[i + 1]])

        sums = self._loop(builder, at(0), at(2), at(4), args[6])
        left, right, total, raw, masks = at(7), at(10), at(12), at(15), at(17)
        right_at = [self._load(builder, right, v * LANES, F64) for v in range(self.vectors)]
        found, unsure, doubt = [], [], None
        for r in range(self.rows):
            factor = self._every(builder, builder.fmul(builder.load(builder.gep(left, [I64(r)])), args[9]))
            for v in range(self.vectors):
                value, reach = sums[r * self.vectors + v], builder.fmul(factor, right_at[v])
                below, above = (
                    builder.fptrunc(step(value, reach), self.single) for step in (builder.fsub, builder.fadd)
                )
                open_ = builder.fcmp_unordered("!=", below, above)
                doubt = open_ if doubt is None else builder.or_(doubt, open_)
                found.append(below)
                unsure.append(open_)
        some = builder.icmp_signed("!=", builder.bitcast(doubt, ir.IntType(LANES)), ir.IntType(LANES)(0))
        clean, unclear, done = (builder.append_basic_block(name) for name in ("clean", "unclear", "done"))
        builder.cbranch(some, unclear, clean)
        for block, whole in ((clean, True), (unclear, False)):
            builder.position_at_end(block)
            for k, value in enumerate(found):
                r, v = divmod(k, self.vectors)
                place = builder.gep(total, [builder.add(builder.mul(args[14], I64(r)), I64(v * LANES))])
                place = builder.bitcast(place, self.single.as_pointer())
                plus = builder.fadd(value, ir.Constant(self.single, [0.0] * LANES))  # a zero is +0
                before = builder.load(place, align=4)
                after = builder.fadd(before, plus)
                builder.store(after if whole else builder.select(unsure[k], before, after), place, align=4)
            if not whole:
                for k, value in enumerate(sums):
                    place = builder.bitcast(builder.gep(raw, [I64(k * LANES)]), self.wide.as_pointer())
                    builder.store(value, place, align=8)
                    mask = builder.zext(builder.bitcast(unsure[k], ir.IntType(LANES)), I64)
                    builder.store(mask, builder.gep(masks, [I64(k)]))
            builder.branch(done)
        builder.position_at_end(done)
        return builder.zext(some, I64)

    def _load(self, builder: Any, start: Any, at: int, kind: Any) -> Any:
        place = builder.bitcast(builder.gep(start, [I64(at)]), ir.VectorType(kind, LANES).as_pointer())
        return builder.load(place, align=kind.get_abi_size(binding.create_target_data("")))

    def _numbers(self, builder: Any, start: Any, at: int) -> Any:
        if start.type.pointee != I16:
            return self._load(builder, start, at, F64)
        patterns, single = ir.VectorType(I16, LANES), ir.VectorType(I32, LANES)
        place = builder.bitcast(builder.gep(start, [I64(at)]), patterns.as_pointer())
        bits = builder.zext(builder.load(place, align=2), single)
        bits = builder.shl(bits, ir.Constant(single, [16] * LANES))
        return builder.fpext(builder.bitcast(bits, self.single), self.wide)

    def _every(self, builder: Any, number: Any) -> Any:
        unknown = ir.Constant(self.wide, ir.Undefined)
        one = builder.insert_element(unknown, number, I32(0))
        return builder.shuffle_vector(one, unknown, ir.Constant(ir.VectorType(I32, LANES), [0] * LANES))

    def _loop(self, builder: Any, a: Any, b: Any, base: Any, count: Any) -> list[Any]:
        def step(k: Any, sums: list[Any]) -> list[Any]:
            line = builder.gep(b, [builder.load(builder.gep(base, [k]))])
            pieces = [self._numbers(builder, line, v * LANES) for v in range(self.vectors)]
            column, after = builder.gep(a, [builder.mul(k, I64(self.rows))]), []
            for r in range(self.rows):
                factor = self._every(builder, builder.load(builder.gep(column, [I64(r)])))
                for v in range(self.vectors):
                    after.append(self._added(builder, factor, pieces[v], sums[r * self.vectors + v]))
            return after

        zero = ir.Constant(self.wide, [0.0] * LANES)
        return counted(builder, count, [zero] * (self.rows * self.vectors), step)

    def _added(self, builder: Any, a: Any, b: Any, total: Any) -> Any:
        """Products of 16-bit floats are exact: fused or not, the sum is the same."""
        if not FUSED:
            return builder.fadd(builder.fmul(a, b), total)
        kind = ir.FunctionType(self.wide, [self.wide] * 3)
        name = f"llvm.fma.v{LANES}f64"
        known = builder.module.globals.get(name)
        return builder.call(known or ir.Function(builder.module, kind, name), [a, b, total])


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
        first: Any,
        count: Any,
        left: Any,
        lo: Any,
        scale: Any,
        right: Any,
        ro: Any,
        total: Any,
        to: Any,
        pitch: Any,
        raw: Any,
        wo: Any,
        masks: Any,
        mo: Any,
    ) -> Any:
        i, real = types.intp, types.float64
        return types.int64(
            a, i, b, i, base, i, i, left, i, real, right, i, total, i, i, raw, i, masks, i
        ), code

    return tile


eight, four, two, one = (_tile(rows, VECTORS) for rows in (8, 4, 2, 1))
line = _tile(1, 4)


def _scalar(source: Any, target: Any, steps: Callable[[Any, Any], Any]) -> Any:
    """A function of one number of a numba type; vectors of it come by themselves in loops."""

    @intrinsic
    def function(typing: Any, value: Any) -> Any:
        def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            return steps(builder, args[0])

        return target(source), code

    return function


bits64 = _scalar(types.float64, types.int64, lambda b, v: b.bitcast(v, I64))
real64 = _scalar(types.int64, types.float64, lambda b, v: b.bitcast(v, F64))


class _Each:
    """for i in range(n): `body` of the places i steps from where each operand starts, in the place of slices
    of arrays. Arguments: array and first place of each, n, and what `body` gets besides; the step of the
    last operand comes first there unless it is 1."""

    def __init__(self, operands: int, body: Callable[..., None], apart: bool = False) -> None:
        self.operands, self.body, self.apart = operands, body, apart

    def __call__(self, context: Any, builder: Any, signature: Any, args: Any) -> Any:
        starts = []
        for k in range(0, 2 * self.operands, 2):
            data = context.make_array(signature.args[k])(context, builder, args[k]).data
            starts.append(builder.gep(data, [args[k + 1]]))
        count, more, before = args[2 * self.operands], args[2 * self.operands + 1 :], builder.block
        head, body, done = (builder.append_basic_block(name) for name in ("each", "body", "after"))
        builder.branch(head)
        builder.position_at_end(head)
        i = builder.phi(I64)
        builder.cbranch(builder.icmp_signed("<", i, count), body, done)
        builder.position_at_end(body)
        places = [builder.gep(start, [i]) for start in starts]
        if self.apart:
            places[-1] = builder.gep(starts[-1], [builder.mul(i, more[0])])
        self.body(builder, places, *more[self.apart :])
        for value, block in ((I64(0), before), (builder.add(i, I64(1)), builder.block)):
            i.add_incoming(value, block)
        builder.branch(head)
        builder.position_at_end(done)
        return context.get_dummy_value()


def _each(operands: int, body: Callable[..., None], *more: Any, apart: bool = False) -> Any:
    """The function of compiled code; `more` are the types of what `body` gets besides."""
    i = types.intp
    rest = (i, *((i,) if apart else ()), *more)
    return _taking(2 * operands + len(rest), operands, rest, _Each(operands, body, apart))


def _taking(count: int, operands: int, rest: tuple[Any, ...], code: _Each) -> Any:
    """numba takes functions of a fixed number of arguments alone."""

    def typed(*args: Any) -> Any:
        arrays = [kind for array in args[: 2 * operands : 2] for kind in (array, types.intp)]
        return types.void(*arrays, *rest), code

    made: dict[int, Callable[..., Any]] = {
        4: lambda typing, a, b, c, d: typed(a, b, c, d),
        5: lambda typing, a, b, c, d, e: typed(a, b, c, d, e),
        6: lambda typing, a, b, c, d, e, f: typed(a, b, c, d, e, f),
        7: lambda typing, a, b, c, d, e, f, g: typed(a, b, c, d, e, f, g),
        8: lambda typing, a, b, c, d, e, f, g, h: typed(a, b, c, d, e, f, g, h),
    }
    return intrinsic(made[count])


def _widened(pattern: Callable[[Any, Any], Any]) -> Callable[[Any, list[Any]], None]:
    def body(builder: Any, places: list[Any]) -> None:
        number = builder.fpext(pattern(builder, builder.load(places[1])), F64)
        builder.store(number, places[0])

    return body


def _brain(builder: Any, pattern: Any) -> Any:
    return builder.bitcast(builder.shl(builder.zext(pattern, I32), I32(16)), F32)


def _half(builder: Any, pattern: Any) -> Any:
    return builder.fpext(builder.bitcast(pattern, ir.HalfType()), F32)


def _one_nan(builder: Any, places: list[Any]) -> None:
    value = builder.load(places[1])
    known = builder.fcmp_ordered("==", value, value)
    builder.store(builder.select(known, value, ir.Constant(F32, float("nan"))), places[0])


def _same(builder: Any, places: list[Any]) -> None:
    builder.store(builder.load(places[1]), places[0])


def _reached(builder: Any, places: list[Any]) -> None:
    field = builder.and_(builder.bitcast(builder.load(places[2]), I64), I64(EXPONENT))
    high, low = builder.load(places[0]), builder.load(places[1])
    builder.store(builder.select(builder.icmp_signed(">", field, high), field, high), places[0])
    field = builder.select(builder.icmp_signed("==", field, I64(0)), I64(NOTHING), field)
    builder.store(builder.select(builder.icmp_signed("<", field, low), field, low), places[1])


def _squared(builder: Any, places: list[Any]) -> None:
    value = builder.load(places[1])
    builder.store(builder.fadd(builder.load(places[0]), builder.fmul(value, value)), places[0])


def _filled(builder: Any, places: list[Any], value: Any) -> None:
    builder.store(value, places[0])


def _odd(builder: Any, value: Any) -> Any:
    """Bits of the float32 toward zero, the last one set where anything was lost: a second rounding then sees
    on which side of a tie a float64 lies."""
    near = builder.fptrunc(value, F32)
    sizes = []
    for number in (builder.fpext(near, F64), value):
        sizes.append(builder.and_(builder.bitcast(number, I64), I64(NOTHING)))
    beyond = builder.icmp_unsigned(">", *sizes)
    bits = builder.sub(builder.bitcast(near, I32), builder.zext(beyond, I32))
    exact = builder.fcmp_ordered("==", builder.fpext(builder.bitcast(bits, F32), F64), value)
    return builder.or_(bits, builder.zext(builder.not_(exact), I32))


def _narrowed(half: bool) -> Callable[..., None]:
    """Patterns of numbers, rounded once and clamped; bounds are patterns too. NaN stays NaN."""
    widened, quiet = (_half, 0x7E00) if half else (_brain, 0x7FC0)

    def body(builder: Any, places: list[Any], low: Any, high: Any) -> None:
        value = builder.load(places[0])
        bits = builder.bitcast(value, I32) if value.type == F32 else _odd(builder, value)
        if half:
            pattern = builder.bitcast(builder.fptrunc(builder.bitcast(bits, F32), ir.HalfType()), I16)
        else:
            last = builder.and_(builder.lshr(bits, I32(16)), I32(1))
            up = builder.add(builder.add(bits, I32(0x7FFF)), last)
            pattern = builder.trunc(builder.lshr(up, I32(16)), I16)
        pattern = builder.select(builder.fcmp_unordered("uno", value, value), I16(quiet), pattern)
        number = widened(builder, pattern)
        for order, bound in (("<", low), (">", high)):
            end = widened(builder, bound)
            beyond = builder.fcmp_ordered(order, number, end)
            pattern, number = builder.select(beyond, bound, pattern), builder.select(beyond, end, number)
        builder.store(pattern, places[1])

    return body


brain, half = _scalar(types.uint16, types.float32, _brain), _scalar(types.uint16, types.float32, _half)
brains, brains_apart = _each(2, _widened(_brain)), _each(2, _widened(_brain), apart=True)
halves_, halves_apart = _each(2, _widened(_half)), _each(2, _widened(_half), apart=True)
copied, settled, squared = _each(2, _same), _each(2, _one_nan), _each(2, _squared)
reached = _each(3, _reached)
"""The largest and the smallest exponent field at every place so far; zeros have none."""
filled, filled_single = _each(1, _filled, types.float64), _each(1, _filled, types.float32)
to_brains, to_brains_apart = (
    _each(2, _narrowed(False), types.uint16, types.uint16, apart=apart) for apart in (False, True)
)
to_halves, to_halves_apart = (
    _each(2, _narrowed(True), types.uint16, types.uint16, apart=apart) for apart in (False, True)
)
