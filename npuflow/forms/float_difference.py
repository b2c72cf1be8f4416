"""|a - b| of floats: a difference, rounded, and its size."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from npuflow.forms._rounded import RoundedForm, bound_fields, finished, real, result
from npuflow.hw.floats import encoded, rounded
from npuflow.hw.target import Numerics
from npuflow.ir.forms import FORMS
from npuflow.ir.lowering import Emitter, TileView
from npuflow.ir.op import OpContext
from npuflow.ir.space import IterationDomain
from npuflow.ir.types import Array
from npuflow.ops._broadcast import strided


@FORMS.entry
class FloatDifference(RoundedForm):
    def compute(
        self, site: OpContext, inputs: Sequence[Array | None], numerics: Numerics
    ) -> tuple[Array, ...]:
        with np.errstate(all="ignore"):
            difference = rounded(real(site, inputs, 0) - real(site, inputs, 1), result(site))
        return finished(site, np.abs(difference))

    def space(self, site: OpContext, numerics: Numerics) -> IterationDomain | None:
        found = site.op.space(site, numerics)
        return None if found is None else replace(found, ops=2)

    def lower(self, site: OpContext, tile: TileView, em: Emitter) -> None:
        y = tile.outputs[0]
        a, b = (strided(tile.input(i), name, site.shape(i)) for i, name in enumerate("ab"))
        low, high = (int(encoded(end, result(site))) for end in (-np.inf, np.inf))
        em.emit("FARITH", **a, **b, **y.as4("y"), dims=y.dims4(), op="sub", low=low, high=high)
        em.emit("FUNARY", **y.as4("x"), **y.as4("y"), dims=y.dims4(), op="abs", **bound_fields(site, tile))
