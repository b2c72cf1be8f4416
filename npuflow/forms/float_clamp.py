"""min(max(x, lo), hi) in floats; NaN stays NaN."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from npuflow.forms._rounded import bound_fields, bounds, finished, pointwise, real
from npuflow.hw.target import Numerics
from npuflow.ir.forms import FORMS, OperatorForm
from npuflow.ir.lowering import Emitter, TileView
from npuflow.ir.op import OpContext
from npuflow.ir.space import IterationDomain
from npuflow.ir.types import Array


@FORMS.entry
class FloatClamp(OperatorForm):
    """The ends are what the operator's function makes of infinities."""

    def prepare(self, site: OpContext, numerics: Numerics) -> dict[str, int | Array]:
        return bounds(site, *_ends(site))

    def compute(
        self, site: OpContext, inputs: Sequence[Array | None], numerics: Numerics
    ) -> tuple[Array, ...]:
        return finished(site, real(site, inputs, 0), *_ends(site))

    def space(self, site: OpContext, numerics: Numerics) -> IterationDomain:
        return pointwise(site)

    def lower(self, site: OpContext, tile: TileView, em: Emitter) -> None:
        x, y = tile.input(0), tile.outputs[0]
        em.emit("FCAST", **x.as4("x"), **y.as4("y"), dims=y.dims4(), **bound_fields(site, tile))


def _ends(site: OpContext) -> tuple[float, float]:
    """The clamp that is the operator."""
    lo, hi = site.op.f(np.array([-np.inf, np.inf])).tolist()
    return lo, hi
