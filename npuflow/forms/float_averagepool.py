"""Means over windows of floats: all positions of a window are one chunk."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import numpy as np

from npuflow.forms._rounded import RoundedForm, bound_fields, finished, real
from npuflow.hw.floats import sums
from npuflow.hw.target import Numerics
from npuflow.ir.forms import FORMS
from npuflow.ir.lowering import Emitter, TileView
from npuflow.ir.op import OpContext
from npuflow.ir.space import IterationDomain
from npuflow.ir.types import Array
from npuflow.ops._pool import pool_operands, pool_space
from npuflow.ops._windows import pair, taps
from npuflow.ops.averagepool import AveragePool


@FORMS.entry
class FloatAveragePool(RoundedForm):
    def compute(
        self, site: OpContext, inputs: Sequence[Array | None], numerics: Numerics
    ) -> tuple[Array, ...]:
        op, x = cast("AveragePool", site.op), real(site, inputs, 0)
        spec = op.windows(x.shape[2:])
        terms = np.stack([view for _, view in taps(x, spec)], -1)
        total = sums(terms, terms.shape[-1]).astype(np.float64)
        with np.errstate(all="ignore"):
            return finished(site, total / op.counts(spec))

    def space(self, site: OpContext, numerics: Numerics) -> IterationDomain:
        return pool_space(site, site.op.windows(site.shape(0)[2:]))

    def lower(self, site: OpContext, tile: TileView, em: Emitter) -> None:
        op, x = cast("AveragePool", site.op), tile.input(0)
        spec = op.windows(site.shape(0)[2:])
        counted = [[end - box[0] for end in op.counted(w)] for w, box in zip(spec, x.box[2:], strict=True)]
        ends = {"count_lo": pair([a for a, _ in counted], 0), "count_hi": pair([b for _, b in counted], 1)}
        fields = pool_operands(site, tile, spec)
        em.emit("FPOOL", **fields, **ends, maximum=0, **bound_fields(site, tile))
