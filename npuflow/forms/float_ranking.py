"""Elements of floats in order: NaN comes first, and zeros of either sign are equal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import numpy as np

from npuflow.forms._rounded import real
from npuflow.hw.target import Numerics
from npuflow.ir.forms import FORMS, OperatorSpace
from npuflow.ir.lowering import Emitter, TileView
from npuflow.ir.op import OpContext
from npuflow.ir.types import Array
from npuflow.ops._ranking import RankingOp

FAR = 1e300  # stands for infinity where NaN comes first


@FORMS.entry
class FloatRanking(OperatorSpace):
    def compute(
        self, site: OpContext, inputs: Sequence[Array | None], numerics: Numerics
    ) -> tuple[Array, ...]:
        op, x, value = cast("RankingOp", site.op), inputs[0], real(site, inputs, 0)
        assert x is not None
        first = np.inf if op.largest else -np.inf
        at = op.order(np.where(np.isnan(value), first, np.clip(value, -FAR, FAR)))
        positions = site.outputs[op.counted].quant
        assert positions is not None
        found = at.astype(positions.dtype)
        return (np.take_along_axis(x, at, op.axis), found) if op.values else (found,)

    def lower(self, site: OpContext, tile: TileView, em: Emitter) -> None:
        cast("RankingOp", site.op).emit(site, tile, em, "FTOPK")
