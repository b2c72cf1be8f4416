"""Images of floats at another size: the four weighted places of a result are one chunk."""

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
from npuflow.ir.types import Array
from npuflow.ops.resize import Resize


@FORMS.entry
class FloatResize(RoundedForm):
    """Weights are those of the integer form; a place with the weight 0 is no part of the sum."""

    def prepare(self, site: OpContext, numerics: Numerics) -> dict[str, int | Array]:
        return {**super().prepare(site, numerics), **site.op.prepare(site, numerics)}

    def compute(
        self, site: OpContext, inputs: Sequence[Array | None], numerics: Numerics
    ) -> tuple[Array, ...]:
        x, bits = real(site, inputs, 0), cast("Resize", site.op).weight_bits()
        rows, columns = (site.array(name).astype(np.int64) for name in ("rows", "columns"))
        terms = []
        for i, j in np.ndindex(2, 2):
            weight = np.ldexp((rows[:, 2 + i, None] * columns[:, 2 + j]).astype(np.float64), -2 * bits)
            with np.errstate(all="ignore"):
                product = x[:, :, rows[:, i]][..., columns[:, j]] * weight
            terms.append(np.where(weight == 0, 0.0, product))
        return finished(site, sums(np.stack(terms, -1), 4))

    def lower(self, site: OpContext, tile: TileView, em: Emitter) -> None:
        x, y = tile.input(0), tile.outputs[0]
        em.emit(
            "FRESIZE",
            **x.as4("x"),
            x_dims=x.extent,
            **y.as4("y"),
            out_height=y.extent[2],
            out_width=y.extent[3],
            rows=tile.params["rows"].address,
            columns=tile.params["columns"].address,
            origin=(-x.box[2][0], -x.box[3][0]),
            weight_bits=cast("Resize", site.op).weight_bits(),
            **bound_fields(site, tile),
        )
