"""a * b with broadcasting: one multiplier on the product of the centred codes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from npuflow.hw.numerics import multiplier_shift, requantize
from npuflow.hw.target import Numerics
from npuflow.ir.broadcast import BinaryOp, strided
from npuflow.ir.op import OPS, Emitter, Site, TileView
from npuflow.ir.requant import centred, clamp_bounds
from npuflow.ir.types import Array, IntArray


@OPS.entry
@dataclass(frozen=True)
class Mul(BinaryOp):
    onnx: ClassVar[str] = "Mul"

    def reference(self, *inputs: Array | None) -> tuple[Array, ...]:
        a, b = inputs[0], inputs[1]
        assert a is not None and b is not None
        return (np.asarray(a * b),)

    def prepare(self, site: Site, numerics: Numerics) -> dict[str, int | Array]:
        y = site.out_quant
        m, shift = multiplier_shift(site.quant(0).scale[0] * site.quant(1).scale[0] / y.scale[0], numerics)
        lo, hi = clamp_bounds(self.clip, y)
        return {"multiplier": int(m[0]), "shift": shift, "lo": lo, "hi": hi}

    def integer(self, site: Site, inputs: Sequence[IntArray | None], numerics: Numerics) -> tuple[IntArray, ...]:
        a, b = inputs[0], inputs[1]
        assert a is not None and b is not None
        product = np.asarray(centred(a, site.quant(0)) * centred(b, site.quant(1)))
        y = site.out_quant
        m, n, bounds = site.param("multiplier"), site.param("shift"), (site.param("lo"), site.param("hi"))
        result = requantize(product, m, n, y.zero_point[0], *bounds, numerics.rounding)
        return (result.astype(y.dtype),)

    def lower(self, site: Site, tile: TileView, em: Emitter) -> None:
        y = tile.outputs[0]
        em.emit(
            "MUL", **strided(tile.input(0), "a", site.shape(0)), **strided(tile.input(1), "b", site.shape(1)), **y.as4("y"),
            dims=y.dims4(), a_zero=site.quant(0).zero_point[0], b_zero=site.quant(1).zero_point[0],
            **{k: site.param(k) for k in ("multiplier", "shift", "lo", "hi")},
            zero=site.out_quant.zero_point[0], rounding=em.numerics.rounding,
        )  # fmt: skip
