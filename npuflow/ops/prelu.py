"""x where it is not negative, else slope * x; the slope broadcasts to x."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from npuflow.hw.numerics import multiplier_shift, requantize
from npuflow.hw.target import Numerics, Target
from npuflow.ir.forms import FORMS
from npuflow.ir.lowering import Emitter, TileView
from npuflow.ir.op import OPS, No, OpContext, OpSample, Yes, first_no, need
from npuflow.ir.space import Axis, IterationDomain
from npuflow.ir.types import Array, IntArray, TensorType
from npuflow.ops._broadcast import BinaryOp, operand, strided
from npuflow.ops._draw import draw
from npuflow.ops._requant import centred, clamp_bounds


@OPS.entry
@dataclass(frozen=True)
class PRelu(BinaryOp):
    onnx: ClassVar[str] = "PRelu"

    def forms(self) -> Mapping[str, Any]:
        return {"float": FORMS["float_elementwise"]}

    @property
    def lane(self) -> str:
        return "prelu"

    def infer(self, *types: TensorType | None) -> tuple[TensorType, ...]:
        assert types[0] is not None
        return (types[0],)

    def reference(self, *inputs: Array | None) -> tuple[Array, ...]:
        x, slope = inputs[0], inputs[1]
        assert x is not None and slope is not None
        return (np.where(x >= 0, x, x * slope).astype(x.dtype),)

    def prepare(self, site: OpContext, numerics: Numerics) -> dict[str, int | Array]:
        x, slope, y = site.quant(0), site.quant(1), site.out_quant
        ratio = x.scale[0] / y.scale[0]
        m, shift = multiplier_shift(ratio, numerics)
        # The negative side carries a sign, so it has 31 bits at most.
        signed = replace(numerics, multiplier_bits=min(numerics.multiplier_bits, 31))
        negative, negative_shift = multiplier_shift(ratio * slope.scale[0], signed)
        lo, hi = clamp_bounds(self.clip, y)
        sides = {
            "multiplier": int(m[0]),
            "shift": shift,
            "negative": int(negative[0]),
            "negative_shift": negative_shift,
        }
        return {**sides, "lo": lo, "hi": hi}

    def integer(
        self, site: OpContext, inputs: Sequence[IntArray | None], numerics: Numerics
    ) -> tuple[IntArray, ...]:
        x, slope = inputs[0], inputs[1]
        assert x is not None and slope is not None
        v, s, y = centred(x, site.quant(0)), centred(slope, site.quant(1)), site.out_quant
        end = y.zero_point[0], site.param("lo"), site.param("hi"), numerics.rounding
        above = requantize(v, site.param("multiplier"), site.param("shift"), *end)
        below = requantize(np.asarray(v * s), site.param("negative"), site.param("negative_shift"), *end)
        result = np.where(v >= 0, above, below)
        return (result.astype(y.dtype),)

    def accepts(self, site: OpContext, target: Target) -> Yes | No:
        rank = len(site.shape(0))
        return first_no(
            super().accepts(site, target),
            need(
                len(site.shape(1)) <= rank,
                f"a slope of shape {site.shape(1)} for an input of shape {site.shape(0)}",
            ),
        )

    def space(self, site: OpContext, numerics: Numerics) -> IterationDomain:
        out = site.out_shape
        axes = tuple(Axis(f"d{i}", size) for i, size in enumerate(out))
        inputs = (operand("x", site.shape(0), out), operand("slope", site.shape(1), out))
        return IterationDomain(axes, inputs, (operand("y", out, out),), ops=1)

    def lower(self, site: OpContext, tile: TileView, em: Emitter) -> None:
        y = tile.outputs[0]
        em.emit(
            "PRELU",
            **tile.input(0).as4("x"),
            **strided(tile.input(1), "slope", site.shape(1)),
            **y.as4("y"),
            dims=y.dims4(),
            x_zero=site.quant(0).zero_point[0],
            slope_zero=site.quant(1).zero_point[0],
            **{k: site.param(k) for k in ("multiplier", "negative", "shift", "negative_shift", "lo", "hi")},
            zero=site.out_quant.zero_point[0],
            rounding=em.numerics.rounding,
        )

    @classmethod
    def samples(cls, rng: np.random.Generator) -> Iterable[OpSample]:
        yield OpSample(cls(), (draw(rng, 1, 3, 4, 5), draw(rng, 3, 1, 1)), (1,))
        yield OpSample(cls(clip=(-0.25, 1.0)), (draw(rng, 2, 6), np.array([0.1], np.float32)), (1,))
        yield OpSample(cls(), (draw(rng, 2, 3, 4), draw(rng, 2, 3, 4)))
