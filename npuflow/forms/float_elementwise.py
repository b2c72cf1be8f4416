"""Arithmetic on floats, element by element: on two operands, or on any number one after the other."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from npuflow.forms._rounded import Real, RoundedForm, bound_fields, finished, real
from npuflow.hw.target import Numerics
from npuflow.ir.forms import FORMS
from npuflow.ir.lowering import Emitter, TileView
from npuflow.ir.op import OpContext
from npuflow.ir.types import Array
from npuflow.ops._broadcast import strided


def _extremum(largest: bool) -> Callable[[Real, Real], Any]:
    def chosen(a: Real, b: Real) -> Any:
        first = a > b if largest else a < b
        return np.where(np.isnan(a) | (first & ~np.isnan(b)), a, b)

    return chosen


FUNCTIONS: Mapping[str, Callable[[Real, Real], Any]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "div": lambda a, b: a / b,
    "min": _extremum(False),
    "max": _extremum(True),
    "prelu": lambda a, b: np.where(a < 0, a * b, a),
}


@FORMS.entry
class FloatElementwise(RoundedForm):
    """An operation of FARITH."""

    def compute(
        self, site: OpContext, inputs: Sequence[Array | None], numerics: Numerics
    ) -> tuple[Array, ...]:
        value, operation = real(site, inputs, 0), FUNCTIONS[site.op.lane]
        with np.errstate(all="ignore"):
            for i in range(min(1, len(inputs) - 1), len(inputs)):  # one operand alone is taken with itself
                value = operation(value, real(site, inputs, i))
        return finished(site, np.broadcast_to(value, site.out_shape))

    def lower(self, site: OpContext, tile: TileView, em: Emitter) -> None:
        y, count = tile.outputs[0], len(site.inputs)
        a = strided(tile.input(0), "a", site.shape(0))
        for i in range(min(1, count - 1), count):
            b = strided(tile.input(i), "b", site.shape(i))
            em.emit(
                "FARITH",
                **a,
                **b,
                **y.as4("y"),
                dims=y.dims4(),
                op=site.op.lane,
                **bound_fields(site, tile),
            )
            a = y.as4("a")
