"""Arithmetic on floats, element by element: on two operands, or on any number one after the other."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from npuflow.forms._rounded import Real, RoundedForm, bound_fields, finished, real, result
from npuflow.hw.floats import encoded, rounded
from npuflow.hw.target import Numerics
from npuflow.ir.forms import FORMS
from npuflow.ir.lowering import Emitter, TileView
from npuflow.ir.op import OpContext
from npuflow.ir.space import IterationDomain
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
ALONE: Mapping[str, Callable[[Real], Any]] = {"abs": np.abs, "neg": np.negative, "square": np.square}
"""Operations of one number that may follow."""


@FORMS.entry
class FloatElementwise(RoundedForm):
    """An operation of FARITH, and operations of FUNARY that follow it, each rounded."""

    def compute(
        self, site: OpContext, inputs: Sequence[Array | None], numerics: Numerics
    ) -> tuple[Array, ...]:
        value, (operation, *then) = real(site, inputs, 0), site.op.lane.split()
        with np.errstate(all="ignore"):
            for i in range(min(1, len(inputs) - 1), len(inputs)):  # one operand alone is taken with itself
                value = FUNCTIONS[operation](value, real(site, inputs, i))
            for name in then:
                value = ALONE[name](rounded(value, result(site)))
        return finished(site, np.broadcast_to(value, site.out_shape))

    def space(self, site: OpContext, numerics: Numerics) -> IterationDomain | None:
        found, more = super().space(site, numerics), len(site.op.lane.split()) - 1
        return replace(found, ops=found.ops + more) if found is not None and more else found

    def lower(self, site: OpContext, tile: TileView, em: Emitter) -> None:
        y, count, (operation, *then) = tile.outputs[0], len(site.inputs), site.op.lane.split()
        a, last = strided(tile.input(0), "a", site.shape(0)), bound_fields(site, tile)
        low, high = (int(encoded(end, result(site))) for end in (-np.inf, np.inf))
        free: dict[str, object] = {"low": low, "high": high}
        for i in range(min(1, count - 1), count):
            b = strided(tile.input(i), "b", site.shape(i))
            em.emit(
                "FARITH",
                **a,
                **b,
                **y.as4("y"),
                dims=y.dims4(),
                op=operation,
                **(free if then else last),
            )
            a = y.as4("a")
        for at, name in enumerate(then, 1):
            ends = last if at == len(then) else free
            em.emit("FUNARY", **y.as4("x"), **y.as4("y"), dims=y.dims4(), op=name, **ends)
