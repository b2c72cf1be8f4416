"""Codes of one type put into another: for an operand that must be narrower than its tensor."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from npuflow.hw.numerics import requantize
from npuflow.hw.target import Numerics, Target
from npuflow.ir.forms import FORMS
from npuflow.ir.lowering import Emitter, TileView
from npuflow.ir.op import OPS, No, OnnxCall, OpContext, Yes, need
from npuflow.ir.scaled import along, places, steps_of
from npuflow.ir.space import IterationDomain, Operand
from npuflow.ir.types import Array, FloatType, IntArray
from npuflow.ops._boundary import UnchangedOp
from npuflow.ops._requant import centred, per_channel, requant_params
from npuflow.ops._table import elementwise_axes


@OPS.entry
@dataclass(frozen=True)
class Requantize(UnchangedOp):
    onnx: ClassVar[str] = "Identity"
    retypes: ClassVar[bool] = True

    def forms(self) -> Mapping[str, Any]:
        return {"float": FORMS["float_cast"]}

    def to_onnx(self, site: OpContext) -> OnnxCall:
        return OnnxCall(self.onnx)

    def prepare(self, site: OpContext, numerics: Numerics) -> dict[str, int | Array]:
        return requant_params(site, np.divide(*steps_of(site)), numerics)

    def integer(
        self, site: OpContext, inputs: Sequence[IntArray | None], numerics: Numerics
    ) -> tuple[IntArray, ...]:
        x, y = inputs[0], site.out_quant
        assert x is not None
        m = per_channel(site, "multiplier", along(site))
        n, bounds = site.param("shift"), (site.param("lo"), site.param("hi"))
        return (
            requantize(centred(x, site.quant(0)), m, n, y.zero_point[0], *bounds, numerics.rounding).astype(
                y.dtype
            ),
        )

    def copies(self, site: OpContext) -> bool:
        same = not isinstance(site.out_quant, FloatType) and site.quant(0) == site.out_quant
        plain = same and "multiplier" in site.params
        return plain and (site.param("multiplier"), site.param("shift")) == (1, 0)

    def accepts(self, site: OpContext, target: Target) -> Yes | No:
        return need(len(site.out_shape) <= 4, f"rank {len(site.out_shape)} > 4")

    def space(self, site: OpContext, numerics: Numerics) -> IterationDomain:
        axes, maps = elementwise_axes(site.out_shape)
        return IterationDomain(
            axes, (Operand("x", site.out_shape, maps),), (Operand("y", site.out_shape, maps),), ops=1
        )

    def lower(self, site: OpContext, tile: TileView, em: Emitter) -> None:
        numbers = {k: site.param(k) for k in ("shift", "lo", "hi")}
        numbers["x_zero"], numbers["zero"] = site.quant(0).zero_point[0], site.out_quant.zero_point[0]
        for x, y, at in places(site, tile, "multipliers"):
            m = site.param("multiplier") if at is None else int(site.array("multipliers")[at])
            em.emit(
                "RESCALE", **x.as4("x"), **y.as4("y"), dims=y.dims4(), multiplier=m, **numbers,
                rounding=em.numerics.rounding,
            )
