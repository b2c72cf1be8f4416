"""The largest element of a window of floats."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from npuflow.forms._rounded import RoundedForm, bound_fields, finished, real
from npuflow.hw.target import Numerics
from npuflow.ir.forms import FORMS
from npuflow.ir.lowering import Emitter, TileView
from npuflow.ir.op import OpContext
from npuflow.ir.types import Array
from npuflow.ops._pool import pool_operands
from npuflow.ops._windows import taps


@FORMS.entry
class FloatMaxPool(RoundedForm):
    def compute(
        self, site: OpContext, inputs: Sequence[Array | None], numerics: Numerics
    ) -> tuple[Array, ...]:
        x = real(site, inputs, 0)
        best = np.stack([view for _, view in taps(x, site.op.windows(x.shape[2:]), -np.inf)]).max(0)
        return finished(site, best + 0.0)

    def lower(self, site: OpContext, tile: TileView, em: Emitter) -> None:
        spec = site.op.windows(site.shape(0)[2:])
        ends = {"count_lo": (0, 0), "count_hi": (1, 1)}
        fields = pool_operands(site, tile, spec)
        em.emit("FPOOL", **fields, **ends, maximum=1, **bound_fields(site, tile))
