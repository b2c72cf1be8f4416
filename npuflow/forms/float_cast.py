"""From codes to floats, from floats to codes, or between float types; the factor is a float32."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from npuflow.forms._rounded import bounds
from npuflow.hw.floats import decoded, encoded
from npuflow.hw.target import Numerics
from npuflow.ir.forms import FORMS, OperatorSpace
from npuflow.ir.lowering import Emitter, TileView
from npuflow.ir.op import OpContext
from npuflow.ir.scaled import along, places, steps_of
from npuflow.ir.types import Array, FloatType


@FORMS.entry
class FloatCast(OperatorSpace):
    def prepare(self, site: OpContext, numerics: Numerics) -> dict[str, int | Array]:
        source, target = site.quant(0), site.out_quant
        params: dict[str, int | Array] = {"factor": _word(1.0), "zero": 0}
        if not isinstance(source, FloatType):
            params = {**_words(steps_of(site)[0]), "zero": source.zero_point[0]}
        if not isinstance(target, FloatType):
            ends = {"low": target.lo, "high": target.hi}
            return {**_words(1.0 / steps_of(site)[1]), "zero": target.zero_point[0], **ends}
        return {**params, **bounds(site)}

    def compute(
        self, site: OpContext, inputs: Sequence[Array | None], numerics: Numerics
    ) -> tuple[Array, ...]:
        x, source, target = inputs[0], site.quant(0), site.out_quant
        assert x is not None
        many, zero = "factors" in site.params, site.param("zero")
        held = np.asarray(site.array("factors") if many else site.param("factor"), np.uint32)
        factor = held.view(np.float32).astype(np.float64).reshape(along(site) if many else ())
        value = decoded(x, source.element) if isinstance(source, FloatType) else (x.astype(np.float64) - zero)
        if isinstance(target, FloatType):
            return (encoded(value * factor, target.element),)
        known = np.where(np.isnan(value), 0.0, np.clip(value * factor, -(2.0**40), 2.0**40))
        codes = np.rint(known).astype(np.int64) + zero
        return (np.clip(codes, target.lo, target.hi).astype(target.dtype),)

    def lower(self, site: OpContext, tile: TileView, em: Emitter) -> None:
        numbers = {name: site.param(name) for name in ("zero", "low", "high")}
        for x, y, at in places(site, tile, "factors"):
            factor = site.param("factor") if at is None else int(site.array("factors")[at])
            em.emit("FCAST", **x.as4("x"), **y.as4("y"), dims=y.dims4(), factor=factor, **numbers)


def _word(value: float) -> int:
    """The pattern of a float32."""
    return int(np.float32(value).view(np.uint32))


def _words(values: npt.NDArray[np.float64]) -> dict[str, int | Array]:
    """`factor`, or, one for each index, `factors`."""
    if len(values) == 1:
        return {"factor": _word(float(values[0]))}
    return {"factors": values.astype(np.float32).view(np.uint32)}
