"""Softmax in floats: the distance to the largest is rounded to 16 bits, its exponential to float32."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from npuflow.forms._rounded import real, result
from npuflow.hw.floats import encoded, rounded, sums
from npuflow.hw.target import Numerics
from npuflow.ir.forms import FORMS, OperatorSpace
from npuflow.ir.lowering import Emitter, TileView, blocks3
from npuflow.ir.op import OpContext
from npuflow.ir.types import Array


@FORMS.entry
class FloatSoftmax(OperatorSpace):
    def compute(
        self, site: OpContext, inputs: Sequence[Array | None], numerics: Numerics
    ) -> tuple[Array, ...]:
        x, source = real(site, inputs, 0), site.inputs[0]
        axis = site.op.answer_axis(x.ndim)
        assert source is not None
        x = np.moveaxis(x, axis, -1)
        with np.errstate(all="ignore"):
            d = rounded(x.max(-1, keepdims=True) - x, source.number)
            e = np.exp(-d).astype(np.float32).astype(np.float64)
            y = e / sums(e, numerics.float_chunk).astype(np.float64)[..., None]
        return (encoded(np.moveaxis(y, -1, axis), result(site)),)

    def lower(self, site: OpContext, tile: TileView, em: Emitter) -> None:
        axis = site.op.answer_axis(len(site.out_shape)) % len(site.out_shape)
        for source, target in blocks3(axis, tile.input(0), tile.outputs[0]):
            x, dims = source.as3("x", axis, axis + 1)
            y, _ = target.as3("y", axis, axis + 1)
            em.emit("FSOFTMAX", **x, **y, dims=dims, chunk=em.numerics.float_chunk)
