"""Movers of data on patterns of floats: they go through as they are."""

from __future__ import annotations

from collections.abc import Sequence

from npuflow.hw.target import Numerics
from npuflow.ir.forms import FORMS, OperatorSpace
from npuflow.ir.lowering import Emitter, TileView
from npuflow.ir.op import OpContext
from npuflow.ir.types import Array


@FORMS.entry
class FloatMove(OperatorSpace):
    """What the operator does with integers, it does with patterns."""

    def prepare(self, site: OpContext, numerics: Numerics) -> dict[str, int | Array]:
        return site.op.prepare(site, numerics)

    def compute(
        self, site: OpContext, inputs: Sequence[Array | None], numerics: Numerics
    ) -> tuple[Array, ...]:
        return site.op.integer(site, inputs, numerics)

    def lower(self, site: OpContext, tile: TileView, em: Emitter) -> None:
        site.op.lower(site, tile, em)
