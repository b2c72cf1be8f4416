"""TOSA tensors in the making: operators, constants, and the integer arithmetic that commands are made of.

Codes of unsigned types are held less half their range, in the signed type of that width: TOSA computes in
signed integers. Everything between two codes is 32 bits wide.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np

from npuflow.export_tosa.file import TosaNetwork, TosaOperator, TosaShape, TosaTensor
from npuflow.hw.elements import ELEMENTS
from npuflow.ir.types import Array

SINGLE_ROUND, IGNORE = 1, 1              # numbers of modes in TOSA's schema
HELD = {"int8": "int8", "uint8": "int8", "int16": "int16", "uint16": "int16", "int32": "int32"}
LESS = {"uint8": 1 << 7, "uint16": 1 << 15}
INT32, ONE = 1 << 31, 1 << 30
CODES = 18                                # bits beyond any code of 16 and its zero point


class TosaRefusal(Exception):
    """A layer that TOSA's integer profile has no exact form for, with the reason."""


@dataclass(frozen=True)
class TosaValue:
    """A tensor by its name."""

    name: str
    shape: tuple[int, ...]
    dtype: str


def held(dtype: str) -> str:
    """The type of TOSA that holds codes of a type."""
    if dtype not in HELD:
        raise TosaRefusal(f"numbers of the type {dtype}")
    return HELD[dtype]


def less(dtype: str) -> int:
    """What is subtracted from codes of a type."""
    return LESS.get(dtype, 0)


@dataclass
class TosaTensors:
    """All tensors and operators of a network, in order."""

    tensors: list[TosaTensor] = field(default_factory=list)
    shapes: list[TosaShape] = field(default_factory=list)
    operators: list[TosaOperator] = field(default_factory=list)
    _constants: dict[tuple[Any, ...], TosaValue] = field(default_factory=dict)
    _shapes: dict[tuple[int, ...], str] = field(default_factory=dict)

    def new(self, shape: Sequence[int], dtype: str, data: Array | None = None, name: str = "") -> TosaValue:
        own = TosaValue(name or f"t{len(self.tensors)}", tuple(int(d) for d in shape), dtype)
        self.tensors.append(TosaTensor(own.name, own.shape, dtype, data))
        return own

    def op(
        self, name: str, inputs: Sequence[TosaValue | str], shape: Sequence[int], dtype: str, **more: Any
    ) -> TosaValue:
        """An operator with one result."""
        made = self.new(shape, dtype)
        names = tuple(one if isinstance(one, str) else one.name for one in inputs)
        self.operators.append(TosaOperator(name, names, (made.name,), more))
        return made

    def const(self, values: Any, dtype: str) -> TosaValue:
        """A constant; equal ones are one."""
        array = np.asarray(values).astype(dtype)
        key = dtype, array.shape, array.tobytes()
        if key not in self._constants:
            own = self.new(array.shape, dtype, array)
            self.operators.append(TosaOperator("CONST", (), (own.name,)))
            self._constants[key] = own
        return self._constants[key]

    def number(self, value: int, like: TosaValue) -> TosaValue:
        """A constant that broadcasts with a tensor, and has its type."""
        return self.const(np.full((1,) * len(like.shape), value), like.dtype)

    def numbers(self, values: Sequence[int]) -> str:
        """A constant shape."""
        key = tuple(int(v) for v in values)
        if key not in self._shapes:
            name = f"s{len(self.shapes)}"
            self.shapes.append(TosaShape(name, key))
            self.operators.append(TosaOperator("CONST_SHAPE", (), (name,)))
            self._shapes[key] = name
        return self._shapes[key]

    def network(self, inputs: Sequence[TosaValue], outputs: Sequence[TosaValue]) -> TosaNetwork:
        return TosaNetwork(
            tuple(self.tensors), tuple(self.shapes), tuple(self.operators),
            tuple(one.name for one in inputs), tuple(one.name for one in outputs),
        )

    # --- shapes
    def reshape(self, x: TosaValue, shape: Sequence[int]) -> TosaValue:
        shape = tuple(int(d) for d in shape)
        return x if x.shape == shape else self.op("RESHAPE", [x, self.numbers(shape)], shape, x.dtype)

    def transpose(self, x: TosaValue, perm: Sequence[int]) -> TosaValue:
        if tuple(perm) == tuple(range(len(perm))):
            return x
        shape = tuple(x.shape[p] for p in perm)
        moving = [p for p in perm if x.shape[p] > 1]
        if moving == sorted(moving):
            return self.reshape(x, shape)
        return self.op("TRANSPOSE", [x], shape, x.dtype, perms=tuple(perm))

    def cut(self, x: TosaValue, start: Sequence[int], size: Sequence[int]) -> TosaValue:
        if tuple(size) == x.shape:
            return x
        return self.op("SLICE", [x, self.numbers(start), self.numbers(size)], size, x.dtype)

    def pad(self, x: TosaValue, pads: Sequence[tuple[int, int]], code: int) -> TosaValue:
        """`pads`: before and behind, by dimension."""
        if not any(map(any, pads)):
            return x
        shape = [d + a + b for d, (a, b) in zip(x.shape, pads, strict=True)]
        flat = self.numbers([n for pair in pads for n in pair])
        return self.op("PAD", [x, flat, self.const([code], x.dtype)], shape, x.dtype)

    def broadcast(self, x: TosaValue, shape: Sequence[int]) -> TosaValue:
        times = [want // have for want, have in zip(shape, x.shape, strict=True)]
        return x if tuple(shape) == x.shape else self.op("TILE", [x, self.numbers(times)], shape, x.dtype)

    def concat(self, parts: Sequence[TosaValue], axis: int) -> TosaValue:
        if len(parts) == 1:
            return parts[0]
        shape = list(parts[0].shape)
        shape[axis] = sum(p.shape[axis] for p in parts)
        return self.op("CONCAT", parts, shape, parts[0].dtype, axis=axis)

    def pick(self, table: TosaValue, index: TosaValue) -> TosaValue:
        """Elements of a flat tensor by indices of any shape."""
        rows = self.reshape(table, (1, prod(table.shape), 1))
        places = self.reshape(index, (1, prod(index.shape)))
        found = self.op("GATHER", [rows, places], (1, prod(index.shape), 1), table.dtype)
        return self.reshape(found, index.shape)

    # --- arithmetic in 32 bits
    def two(
        self, name: str, a: TosaValue, b: TosaValue | int, dtype: str = "int32", **more: Any
    ) -> TosaValue:
        """Of two tensors that broadcast, or of a tensor and a number."""
        if isinstance(b, int):
            b = self.number(b, a)
        shape = [max(p, q) for p, q in zip(a.shape, b.shape, strict=True)]
        operands = [a, b, self.const([0], "int8")] if name == "MUL" else [a, b]
        more |= {"nan_mode": IGNORE} if name in ("MAXIMUM", "MINIMUM") else {}
        return self.op(name, operands, shape, dtype, **more)

    def add(self, a: TosaValue, b: TosaValue | int) -> TosaValue:
        return a if b == 0 and isinstance(b, int) else self.two("ADD", a, b)

    def mul(self, a: TosaValue, b: TosaValue | int) -> TosaValue:
        return a if b == 1 and isinstance(b, int) else self.two("MUL", a, b)

    def sub(self, a: TosaValue, b: TosaValue) -> TosaValue:
        return self.two("SUB", a, b)

    def down(self, a: TosaValue, n: int) -> TosaValue:
        """Floor of a / 2^n."""
        return a if n == 0 else self.two("ARITHMETIC_RIGHT_SHIFT", a, n, round=False)

    def clamped(self, a: TosaValue, lo: Any, hi: Any) -> TosaValue:
        """Bounds: numbers, or tensors that broadcast."""
        made = self.two("MAXIMUM", a, lo)
        return self.two("MINIMUM", made, hi)

    def where(self, condition: TosaValue, a: TosaValue, b: TosaValue) -> TosaValue:
        shape = np.broadcast_shapes(condition.shape, a.shape, b.shape)
        return self.op("SELECT", [condition, a, b], shape, a.dtype)

    def cast(self, x: TosaValue, dtype: str) -> TosaValue:
        return x if x.dtype == dtype else self.op("CAST", [x], x.shape, dtype)

    def centred(self, x: TosaValue, zero: int) -> TosaValue:
        """Held codes less a zero point, in 32 bits."""
        if x.dtype != "int8" or not -128 <= zero <= 127:
            return self.add(self.cast(x, "int32"), -zero)
        return self.rescale(x, [ONE], 30, "int32", zero, 0)

    def rescale(
        self, x: TosaValue, m: Sequence[int] | Array, n: int, dtype: str, x_zero: int = 0, zero: int = 0
    ) -> TosaValue:
        """(x - x_zero) * m / 2^n, rounded half up, plus zero; several multipliers are those of the last
        dimension."""
        many = np.asarray(m)
        inputs = [
            x, self.const(many, "int32"), self.const(np.full(many.shape, n), "int8"),
            self.const([x_zero], x.dtype), self.const([zero], dtype),
        ]
        return self.op(
            "RESCALE", inputs, x.shape, dtype, scale32=True, rounding_mode=SINGLE_ROUND,
            per_channel=many.size > 1, input_unsigned=False, output_unsigned=False,
        )

    def scaled(self, x: TosaValue, m: Any, n: int, peak: int, rounding: str) -> TosaValue:
        """R(x * m / 2^n) of numbers of 32 bits that are at most `peak`."""
        many, n = factors(m, n, peak, rounding)
        if rounding == "half_up":
            return self.rescale(x, many, n, "int32")
        size = self.rescale(self.op("ABS", [x], x.shape, "int32"), many, n, "int32")
        zero = self.number(0, x)
        return self.where(self.two("GREATER", zero, x, "bool"), self.sub(zero, size), size)

    def codes(self, x: TosaValue, zero: int, lo: Any, hi: Any, dtype: str) -> TosaValue:
        """Numbers of 32 bits plus a zero point within bounds (numbers, or arrays of the last dimension), as
        held codes."""
        shift, rank = less(dtype), len(x.shape)
        ends = [
            bound - shift if isinstance(bound, int)
            else self.const((np.asarray(bound) - shift).reshape((1,) * (rank - 1) + (-1,)), "int32")
            for bound in (lo, hi)
        ]
        return self.cast(self.clamped(self.add(x, zero - shift), *ends), held(dtype))

    def clip(self, x: TosaValue, lo: int, hi: int, dtype: str) -> TosaValue:
        """Held codes within bounds."""
        least, most = ELEMENTS[dtype].range
        if lo <= least and hi >= most:
            return x
        low, high = max(lo, least) - less(dtype), min(hi, most) - less(dtype)
        ends = {
            "min_val": np.array([low], x.dtype).tobytes(), "max_val": np.array([high], x.dtype).tobytes(),
        }
        return self.op("CLAMP", [x], x.shape, x.dtype, **ends, nan_mode=IGNORE)

    def finished(
        self, x: TosaValue, c: Any, m: Any, n: int, peak: int, lo: Any = None, hi: Any = None
    ) -> TosaValue:
        """What most commands end with: clamp(R(x * m / 2^n) + zero, lo, hi) as codes of `y_type`."""
        lo, hi = c["lo"] if lo is None else lo, c["hi"] if hi is None else hi
        dtype, zero = c["y_type"], c["zero"] - less(c["y_type"])
        whole = isinstance(lo, int) and isinstance(hi, int)
        x, peak = self._within(x, m, n, peak)
        if c["rounding"] == "half_up" and held(dtype) == "int8" and -128 <= zero <= 127 and whole:
            many, n = factors(m, n, peak, "half_up")
            return self.clip(self.rescale(x, many, n, "int8", 0, zero), lo, hi, dtype)
        return self.codes(self.scaled(x, m, n, peak, c["rounding"]), c["zero"], lo, hi, dtype)

    def _within(self, x: TosaValue, m: Any, n: int, peak: int) -> tuple[TosaValue, int]:
        """Numbers whose product leaves 32 bits are clamped first: beyond the bound every result saturates."""
        many = np.atleast_1d(np.asarray(m, np.int64))
        least, beyond = int(many.min()), 1 << (CODES + max(n, 0))
        if n < 0 or least < 1 or (peak * int(many.max()) >> n) + 1 < INT32 or peak * least < beyond:
            return x, peak
        most = beyond // least + 1
        return self.clamped(x, -most, most), most


def factors(m: Any, n: int, peak: int, rounding: str) -> tuple[Array, int]:
    """Multipliers and shift as RESCALE takes them, whose value must stay below 2^(n-1)."""
    if rounding not in ("half_up", "half_away"):
        raise TosaRefusal(f"rounding {rounding}: RESCALE rounds half up")
    many = np.atleast_1d(np.asarray(m, np.int64)).reshape(-1)
    if many.min() < 0:
        raise TosaRefusal("a negative multiplier")
    while many.max() < ONE and many.max() and n < 62:
        many, n = many * 2, n + 1
    while many.max() >= INT32:
        if (many & 1).any():
            raise TosaRefusal("a multiplier of more than 31 bits")
        many, n = many // 2, n - 1
    if not 2 <= n <= 62:
        raise TosaRefusal(f"a shift by {n}: RESCALE has 2 to 62")
    if peak >= 1 << (n - 1) or peak >= INT32 or (peak * int(many.max()) >> n) + 1 >= INT32:
        raise TosaRefusal("numbers beyond 32 bits")
    return many, n
