"""Largest element of a sliding window; padding never wins."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from npuflow.hw.target import Numerics
from npuflow.ir.forms import FORMS
from npuflow.ir.lowering import Emitter, TileView
from npuflow.ir.op import OPS, Algebra, Imported, No, OnnxCall, OpContext, OpSample
from npuflow.ir.space import IterationDomain
from npuflow.ir.types import Array, IntArray
from npuflow.ops._draw import draw
from npuflow.ops._pool import PoolOp, pool_operands, pool_space
from npuflow.ops._requant import clamp_bounds
from npuflow.ops._windows import taps


@OPS.entry
@dataclass(frozen=True)
class MaxPool(PoolOp):
    onnx: ClassVar[str] = "MaxPool"
    algebra: ClassVar[Algebra] = "peak"
    shares_scale: ClassVar[bool] = True
    picks: ClassVar[bool] = True

    def forms(self) -> Mapping[str, Any]:
        return {"float": FORMS["float_maxpool"]}

    @classmethod
    def from_onnx(cls, call: OnnxCall) -> Imported | No:
        if call.attributes.get("storage_order"):
            return No("column-major indices (storage_order)")
        return super().from_onnx(call)

    def reference(self, *inputs: Array | None) -> tuple[Array, ...]:
        x = inputs[0]
        assert x is not None
        lowest = np.finfo(x.dtype).min if x.dtype.kind == "f" else np.iinfo(x.dtype).min
        views = taps(x, self.windows(x.shape[2:]), lowest)
        result = next(views)[1].copy()
        for _, view in views:
            np.maximum(result, view, out=result)
        return (result,)

    def prepare(self, site: OpContext, numerics: Numerics) -> dict[str, int | Array]:
        lo, hi = clamp_bounds(self.clip, site.out_quant)
        return {"lo": lo, "hi": hi}

    def integer(
        self, site: OpContext, inputs: Sequence[IntArray | None], numerics: Numerics
    ) -> tuple[IntArray, ...]:
        (y,) = self.reference(inputs[0])
        return (np.clip(y.astype(np.int64), site.param("lo"), site.param("hi")).astype(site.out_quant.dtype),)

    def space(self, site: OpContext, numerics: Numerics) -> IterationDomain:
        return pool_space(site, self.windows(site.shape(0)[2:]))

    def lower(self, site: OpContext, tile: TileView, em: Emitter) -> None:
        em.emit("MAXPOOL", **pool_operands(site, tile, self.windows(site.shape(0)[2:])),
                lo=site.param("lo"), hi=site.param("hi"))

    @classmethod
    def samples(cls, rng: np.random.Generator) -> Iterable[OpSample]:
        yield OpSample(cls((2, 2), (2, 2), (1, 1), (0, 0, 0, 0)), (draw(rng, 1, 3, 8, 8),))
        yield OpSample(cls((3, 2), (2, 1), (1, 2), (1, 0, 1, 1)), (draw(rng, 2, 3, 9, 7),))
        yield OpSample(cls((3, 3), (2, 2), (1, 1), (0, 0, 0, 0), ceil_mode=1), (draw(rng, 1, 2, 8, 6),))
        yield OpSample(cls((3,), (2,), (1,), (1, 1), clip=(0.0, 1.0)), (draw(rng, 1, 4, 11),))
