"""a + b with broadcasting: each operand has a multiplier of its own, the sum is rounded once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from npuflow.hw.numerics import requantize
from npuflow.hw.target import Numerics
from npuflow.ir.broadcast import BinaryOp, operand_multipliers, strided
from npuflow.ir.graph import Site
from npuflow.ir.op import OPS, Emitter, TileView
from npuflow.ir.requant import centred, clamp_bounds
from npuflow.ir.types import Array, IntArray


@OPS.entry
@dataclass(frozen=True)
class Add(BinaryOp):
    onnx: ClassVar[str] = "Add"

    def reference(self, *inputs: Array | None) -> tuple[Array, ...]:
        a, b = inputs[0], inputs[1]
        assert a is not None and b is not None
        return (a + b,)

    def prepare(self, site: Site, numerics: Numerics) -> dict[str, int | Array]:
        y = site.out_quant
        (a, b), shift = operand_multipliers([site.quant(i).scale[0] / y.scale[0] for i in (0, 1)], numerics)
        lo, hi = clamp_bounds(self.clip, y)
        return {"a_multiplier": a, "b_multiplier": b, "shift": shift, "lo": lo, "hi": hi}

    def integer(self, site: Site, inputs: Sequence[IntArray | None], numerics: Numerics) -> tuple[IntArray, ...]:
        a, b = inputs[0], inputs[1]
        assert a is not None and b is not None
        total = centred(a, site.quant(0)) * site.param("a_multiplier") + centred(b, site.quant(1)) * site.param("b_multiplier")
        y = site.out_quant
        result = requantize(total, 1, site.param("shift"), y.zero_point[0], site.param("lo"), site.param("hi"), numerics.rounding)
        return (result.astype(y.dtype),)

    def lower(self, site: Site, tile: TileView, em: Emitter) -> None:
        y = tile.outputs[0]
        numbers = {k: site.param(k) for k in ("a_multiplier", "b_multiplier", "shift", "lo", "hi")}
        em.emit(
            "ADD", **strided(tile.input(0), "a", site.shape(0), y), **strided(tile.input(1), "b", site.shape(1), y), **y.as4("y"),
            dims=y.dims4(), a_zero=site.quant(0).zero_point[0], b_zero=site.quant(1).zero_point[0], **numbers,
            zero=site.out_quant.zero_point[0], rounding=em.numerics.rounding,
        )
