"""From codes to floats, from floats to codes, or between float types; the factor is a float32."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from npuflow.forms._rounded import bounds
from npuflow.hw.floats import decoded, encoded
from npuflow.hw.target import Numerics
from npuflow.ir.forms import FORMS, OperatorSpace
from npuflow.ir.lowering import Emitter, TileView
from npuflow.ir.op import OpContext
from npuflow.ir.types import Array, FloatType


@FORMS.entry
class FloatCast(OperatorSpace):
    def prepare(self, site: OpContext, numerics: Numerics) -> dict[str, int | Array]:
        source, target = site.quant(0), site.out_quant
        params: dict[str, int | Array] = {"factor": _word(1.0), "zero": 0}
        if not isinstance(source, FloatType):
            params = {"factor": _word(source.scale[0]), "zero": source.zero_point[0]}
        if not isinstance(target, FloatType):
            ends = {"low": target.lo, "high": target.hi}
            return {"factor": _word(1.0 / target.scale[0]), "zero": target.zero_point[0], **ends}
        return {**params, **bounds(site)}

    def compute(
        self, site: OpContext, inputs: Sequence[Array | None], numerics: Numerics
    ) -> tuple[Array, ...]:
        x, source, target = inputs[0], site.quant(0), site.out_quant
        assert x is not None
        factor, zero = _number(site.param("factor")), site.param("zero")
        value = decoded(x, source.element) if isinstance(source, FloatType) else (x.astype(np.float64) - zero)
        if isinstance(target, FloatType):
            return (encoded(value * factor, target.element),)
        known = np.where(np.isnan(value), 0.0, np.clip(value * factor, -(2.0**40), 2.0**40))
        codes = np.rint(known).astype(np.int64) + zero
        return (np.clip(codes, target.lo, target.hi).astype(target.dtype),)

    def lower(self, site: OpContext, tile: TileView, em: Emitter) -> None:
        numbers = {name: site.param(name) for name in ("factor", "zero", "low", "high")}
        for x, y in zip(tile.input(0).quads(), tile.outputs[0].quads(), strict=True):
            em.emit("FCAST", **x.as4("x"), **y.as4("y"), dims=y.dims4(), **numbers)


def _word(value: float) -> int:
    """The pattern of a float32."""
    return int(np.float32(value).view(np.uint32))


def _number(word: int) -> float:
    return float(np.uint32(word).view(np.float32))
