"""Movers of data on patterns of floats: they go through as they are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from npuflow.hw.target import Numerics
from npuflow.ir.lowering import Emitter, TileView
from npuflow.ir.op import Op, Site
from npuflow.ir.space import Space
from npuflow.ir.types import Array


@dataclass(frozen=True)
class Moved(Op):
    """What the operator does with integers, it does with patterns."""

    floats: ClassVar[bool] = True

    def float_prepare(self, site: Site, numerics: Numerics) -> dict[str, int | Array]:
        return site.op.prepare(site, numerics)

    def float_compute(
        self, site: Site, inputs: Sequence[Array | None], numerics: Numerics
    ) -> tuple[Array, ...]:
        return site.op.integer(site, inputs, numerics)

    def float_space(self, site: Site, numerics: Numerics) -> Space | None:
        return self.space(site, numerics)

    def float_lower(self, site: Site, tile: TileView, em: Emitter) -> None:
        self.lower(site, tile, em)
