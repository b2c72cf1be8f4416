"""Bases of the element-wise operators that come in pairs: sums and differences, products and
quotients, minima and maxima."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any, ClassVar

import numpy as np

from npuflow.hw.numerics import multiplier_shift, requantize
from npuflow.hw.target import Numerics, Target
from npuflow.ir.forms import FORMS
from npuflow.ir.lowering import Emitter, TileView
from npuflow.ir.op import No, OpContext, OpSample, Yes, first_no, need
from npuflow.ir.space import Axis, IterationDomain
from npuflow.ir.types import Array, IntArray, Span, TensorType
from npuflow.ops._broadcast import BinaryOp, broadcast_shape, operand, operand_multipliers, strided
from npuflow.ops._draw import draw
from npuflow.ops._requant import centred, clamp_bounds


@dataclass(frozen=True)
class SumOp(BinaryOp):
    """a + sign * b: each operand has a multiplier of its own, the sum is rounded once."""

    sums: ClassVar[bool] = True
    sign: ClassVar[int] = 1

    def forms(self) -> Mapping[str, Any]:
        return {"float": FORMS["float_elementwise"]}

    def reference(self, *inputs: Array | None) -> tuple[Array, ...]:
        a, b = inputs[0], inputs[1]
        assert a is not None and b is not None
        return (np.asarray(a + b if self.sign > 0 else a - b),)

    def whole_result(self, site: OpContext, spans: Sequence[Span | None], output: int) -> Span | None:
        return corners(lambda a, b: a + self.sign * b, *spans)

    def prepare(self, site: OpContext, numerics: Numerics) -> dict[str, int | Array]:
        y = site.out_quant
        a, b = (site.quant(i).scale[0] / y.scale[0] for i in (0, 1))
        (a_multiplier, b_multiplier), shift = operand_multipliers([a, self.sign * b], numerics)
        lo, hi = clamp_bounds(self.clip, y)
        return {
            "a_multiplier": a_multiplier,
            "b_multiplier": b_multiplier,
            "shift": shift,
            "lo": lo,
            "hi": hi,
        }

    def total(self, site: OpContext, inputs: Sequence[IntArray | None]) -> IntArray:
        """The sum before it is rounded."""
        a, b = inputs[0], inputs[1]
        assert a is not None and b is not None
        # 17-bit differences times 31-bit multipliers: the sum fits int64.
        left = centred(a, site.quant(0)) * site.param("a_multiplier")
        return np.asarray(left + centred(b, site.quant(1)) * site.param("b_multiplier"))

    def integer(
        self, site: OpContext, inputs: Sequence[IntArray | None], numerics: Numerics
    ) -> tuple[IntArray, ...]:
        y = site.out_quant
        result = requantize(
            self.total(site, inputs),
            1,
            site.param("shift"),
            y.zero_point[0],
            site.param("lo"),
            site.param("hi"),
            numerics.rounding,
        )
        return (result.astype(y.dtype),)

    def lower(self, site: OpContext, tile: TileView, em: Emitter) -> None:
        numbers = {k: site.param(k) for k in ("a_multiplier", "b_multiplier", "shift", "lo", "hi")}
        em.emit("ADD", **binary_operands(site, tile), **numbers, rounding=em.numerics.rounding)


@dataclass(frozen=True)
class RatioOp(BinaryOp):
    """A product or a quotient of both operands' centred codes, with one multiplier."""

    opcode: ClassVar[str] = ""

    def forms(self) -> Mapping[str, Any]:
        return {"float": FORMS["float_elementwise"]}

    def ratio(self, a: float, b: float) -> float:
        """The scale of the result, from those of the operands."""
        raise NotImplementedError

    def prepare(self, site: OpContext, numerics: Numerics) -> dict[str, int | Array]:
        a, b, y = site.quant(0), site.quant(1), site.out_quant
        m, shift = multiplier_shift(self.ratio(a.scale[0], b.scale[0]) / y.scale[0], numerics)
        lo, hi = clamp_bounds(self.clip, y)
        return {"multiplier": int(m[0]), "shift": shift, "lo": lo, "hi": hi}

    def lower(self, site: OpContext, tile: TileView, em: Emitter) -> None:
        numbers = {k: site.param(k) for k in ("multiplier", "shift", "lo", "hi")}
        em.emit(self.opcode, **binary_operands(site, tile), **numbers, rounding=em.numerics.rounding)


def corners(f: Callable[[int, int], int], a: Span | None, b: Span | None) -> Span | None:
    """The range of a function that is monotone in each of two whole numbers."""
    if a is None or b is None:
        return None
    found = [f(x, y) for x in a for y in b]
    return min(found), max(found)


def binary_operands(site: OpContext, tile: TileView) -> dict[str, object]:
    """The fields of the operands and the result of a command on two operands."""
    y = tile.outputs[0]
    return {
        **strided(tile.input(0), "a", site.shape(0)),
        **strided(tile.input(1), "b", site.shape(1)),
        **y.as4("y"),
        "dims": y.dims4(),
        "a_zero": site.quant(0).zero_point[0],
        "b_zero": site.quant(1).zero_point[0],
        "zero": site.out_quant.zero_point[0],
    }


@dataclass(frozen=True)
class ExtremumOp(BinaryOp):
    """Minimum or maximum of any number of operands on one common scale."""

    maximum: ClassVar[bool] = True
    shares_scale: ClassVar[bool] = True
    picks: ClassVar[bool] = True

    def forms(self) -> Mapping[str, Any]:
        return {"float": FORMS["float_elementwise"]}

    def infer(self, *types: TensorType | None) -> tuple[TensorType, ...]:
        known = [t for t in types if t is not None]
        return (TensorType(broadcast_shape(*(t.shape for t in known)), known[0].dtype),)

    def reference(self, *inputs: Array | None) -> tuple[Array, ...]:
        known = [a for a in inputs if a is not None]
        return (np.array(reduce(np.maximum if self.maximum else np.minimum, known)),)

    def whole_result(self, site: OpContext, spans: Sequence[Span | None], output: int) -> Span | None:
        known, pick = [s for s in spans if s is not None], max if self.maximum else min
        return (pick(s[0] for s in known), pick(s[1] for s in known)) if len(known) == len(spans) else None

    def accepts(self, site: OpContext, target: Target) -> Yes | No:
        rank = len(site.out_shape)
        return first_no(
            need(rank <= 4, f"rank {rank} > 4"),
            need(any(c is None for c in site.consts), "all operands are constants"),
            need(min(site.out_shape, default=1) > 0, f"an empty tensor {site.out_shape}"),
            need(site.outputs[0].type.dtype == "float32", f"dtype {site.outputs[0].type.dtype}"),
        )

    def prepare(self, site: OpContext, numerics: Numerics) -> dict[str, int | Array]:
        lo, hi = clamp_bounds(self.clip, site.out_quant)
        return {"lo": lo, "hi": hi}

    def integer(
        self, site: OpContext, inputs: Sequence[IntArray | None], numerics: Numerics
    ) -> tuple[IntArray, ...]:
        (y,) = self.reference(*inputs)
        return (np.clip(y.astype(np.int64), site.param("lo"), site.param("hi")).astype(site.out_quant.dtype),)

    def space(self, site: OpContext, numerics: Numerics) -> IterationDomain:
        out = site.out_shape
        axes = tuple(Axis(f"d{i}", size) for i, size in enumerate(out))
        inputs = tuple(operand(f"x{i}", site.shape(i), out) for i in range(len(site.inputs)))
        return IterationDomain(axes, inputs, (operand("y", out, out),), ops=max(len(inputs) - 1, 1))

    def lower(self, site: OpContext, tile: TileView, em: Emitter) -> None:
        y, count = tile.outputs[0], len(site.inputs)
        bounds = {"lo": site.param("lo"), "hi": site.param("hi"), "maximum": int(self.maximum)}
        a = strided(tile.input(0), "a", site.shape(0))
        for i in range(min(1, count - 1), count):        # one operand alone is compared with itself
            b = strided(tile.input(i), "b", site.shape(i))
            em.emit("MINMAX", **a, **b, **y.as4("y"), dims=y.dims4(), **bounds)
            a = y.as4("a")                               # clamping early is harmless: both are monotone

    @classmethod
    def samples(cls, rng: np.random.Generator) -> Iterable[OpSample]:
        yield from super().samples(rng)
        yield OpSample(cls(), (draw(rng, 2, 3), draw(rng, 3), draw(rng, 2, 1)))
        yield OpSample(cls(clip=(0.0, 1.0)), (draw(rng, 2, 3),))
