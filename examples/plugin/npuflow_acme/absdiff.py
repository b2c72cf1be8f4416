"""The distance between two tensors' elements: |a - b|."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from npuflow.hw.numerics import multiplier_shift, requantize
from npuflow.hw.target import Numerics, Target
from npuflow.ir.lowering import Emitter, TileView
from npuflow.ir.op import OPS, No, OnnxCall, Op, OpContext, OpSample, Yes, first_no, need
from npuflow.ir.space import Axis, DimMap, IterationDomain, Operand
from npuflow.ir.types import Array, IntArray, TensorType


@OPS.entry
@dataclass(frozen=True)
class AbsDiff(Op):
    """Both operands have the shape of the result."""

    onnx: ClassVar[str] = "AbsDiff"
    domain: ClassVar[str] = "acme"
    elementwise: ClassVar[bool] = True

    # --- the source format: what runtimes that lack the operator compute instead
    def to_onnx(self, site: OpContext) -> OnnxCall:
        return OnnxCall("AbsDiff", domain="acme", body="AbsDiff (a, b) => (y) { d = Sub(a, b) y = Abs(d) }")

    # --- floats
    def infer(self, *types: TensorType | None) -> tuple[TensorType, ...]:
        a, b = types
        assert a is not None and b is not None
        if a.shape != b.shape:
            raise ValueError(f"shapes {a.shape} and {b.shape} differ")
        return (a,)

    def reference(self, *inputs: Array | None) -> tuple[Array, ...]:
        a, b = inputs
        assert a is not None and b is not None
        return (np.abs(a - b),)

    # --- integers: y = clamp(R(|(a - za) * ma - (b - zb) * mb| / 2^n) + zy)
    def prepare(self, site: OpContext, numerics: Numerics) -> dict[str, int | Array]:
        y = site.out_quant
        ratios = [site.quant(i).scale[0] / y.scale[0] for i in (0, 1)]
        (a, b), shift = multiplier_shift(ratios, numerics, signed=True)
        return {"a_multiplier": int(a), "b_multiplier": int(b), "shift": shift, "lo": y.lo, "hi": y.hi}

    def integer(
        self, site: OpContext, inputs: Sequence[IntArray | None], numerics: Numerics
    ) -> tuple[IntArray, ...]:
        a, b = inputs
        assert a is not None and b is not None
        left = (a.astype(np.int64) - site.quant(0).zero_point[0]) * site.param("a_multiplier")
        right = (b.astype(np.int64) - site.quant(1).zero_point[0]) * site.param("b_multiplier")
        y, shift = site.out_quant, site.param("shift")
        bounds = y.zero_point[0], site.param("lo"), site.param("hi")
        return (requantize(np.abs(left - right), 1, shift, *bounds, numerics.rounding).astype(y.dtype),)

    # --- the target
    def accepts(self, site: OpContext, target: Target) -> Yes | No:
        rank = len(site.out_shape)
        return first_no(
            need(rank <= 4, f"rank {rank} > 4"),
            need(target.numerics.multiplier_bits > 1, "the target has no multipliers"),
            need(site.outputs[0].type.dtype == "float32", f"dtype {site.outputs[0].type.dtype}"),
            need(all(c is None for c in site.consts), "an operand is a constant"),
        )

    def space(self, site: OpContext, numerics: Numerics) -> IterationDomain:
        axes = tuple(Axis(f"d{i}", size) for i, size in enumerate(site.out_shape))
        maps = tuple(DimMap(axis.name) for axis in axes)
        a, b, y = (Operand(name, site.out_shape, maps) for name in "aby")
        return IterationDomain(axes, (a, b), (y,), ops=1)

    def lower(self, site: OpContext, tile: TileView, em: Emitter) -> None:
        y = tile.outputs[0]
        em.emit(
            "ACME_ABSDIFF",
            **tile.input(0).as4("a"),
            **tile.input(1).as4("b"),
            **y.as4("y"),
            dims=y.dims4(),
            a_zero=site.quant(0).zero_point[0],
            b_zero=site.quant(1).zero_point[0],
            zero=site.out_quant.zero_point[0],
            **{key: site.param(key) for key in ("a_multiplier", "b_multiplier", "shift", "lo", "hi")},
            rounding=em.numerics.rounding,
        )

    # --- what the published suite judges it by
    @classmethod
    def samples(cls, rng: np.random.Generator) -> Iterable[OpSample]:
        for shape in ((1, 3, 4, 5), (2, 7), (9,)):
            a, b = (rng.standard_normal(shape).astype(np.float32) for _ in range(2))
            yield OpSample(cls(), (a, 3 * b))
