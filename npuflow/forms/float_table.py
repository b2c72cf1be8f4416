"""Functions of one float: an operation of FUNARY, or a table."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from npuflow.forms._cut_table import PARTS, CutTable, cut
from npuflow.forms._rounded import bound_fields, bounds, finished, pointwise, real, result
from npuflow.hw.floats import encoded
from npuflow.hw.target import Numerics
from npuflow.ir.forms import FORMS, OperatorForm
from npuflow.ir.lowering import Emitter, TileView
from npuflow.ir.op import Op, OpContext
from npuflow.ir.space import IterationDomain, whole
from npuflow.ir.types import Array


@FORMS.entry
class FloatTable(OperatorForm):
    """A function that is no operation of the lanes has a table of the results of the numbers between which it
    varies, computed in float64 and rounded once. Both have the same bits."""

    def table(self, op: Op, number: str) -> int:
        return 0 if op.lane else _bytes(op, number)

    def prepare(self, site: OpContext, numerics: Numerics) -> dict[str, int | Array]:
        if site.op.lane:
            return bounds(site)
        source = site.inputs[0]
        assert source is not None
        return cut(site.op.f, lambda y: finished(site, y)[0], source.number, result(site)).params()

    def compute(
        self, site: OpContext, inputs: Sequence[Array | None], numerics: Numerics
    ) -> tuple[Array, ...]:
        if site.op.lane:
            with np.errstate(all="ignore"):
                return finished(site, site.op.f(real(site, inputs, 0)))
        x, source = inputs[0], site.inputs[0]
        assert x is not None and source is not None
        return (CutTable.of(site.params).results(source.number, result(site))[x],)

    def space(self, site: OpContext, numerics: Numerics) -> IterationDomain:
        return pointwise(site, *(() if site.op.lane else (whole("table", site.array("table").shape),)))

    def lower(self, site: OpContext, tile: TileView, em: Emitter) -> None:
        x, y = tile.input(0), tile.outputs[0]
        if site.op.lane:
            given = {**x.as4("x"), **y.as4("y"), "dims": y.dims4()}
            em.emit("FUNARY", **given, op=site.op.lane, **bound_fields(site, tile))
            return
        table = tile.params["table"].address
        parts = {name: (site.param(name), site.param(f"{name}_negative")) for name in PARTS}
        em.emit("FLUT", **x.as4("x"), **y.as4("y"), dims=y.dims4(), table=table, **parts)


@lru_cache(maxsize=256)
def _bytes(op: Op, number: str) -> int:
    """Of its table in a type."""
    return cut(op.f, lambda y: encoded(y, number), number, number).bytes
