"""Mean over a sliding window; a border window divides by what the model's rule counts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from npuflow.base.errors import TargetError
from npuflow.hw.numerics import multiplier_shift, requantize
from npuflow.hw.target import Numerics, Target
from npuflow.ir.forms import FORMS
from npuflow.ir.lowering import Emitter, TileView
from npuflow.ir.op import OPS, No, OpContext, OpSample, Yes
from npuflow.ir.space import IterationDomain, whole
from npuflow.ir.types import Array, IntArray
from npuflow.ir.windows import Window
from npuflow.ops._draw import draw
from npuflow.ops._pool import PoolOp, pool_operands, pool_space
from npuflow.ops._requant import centred, clamp_bounds, prove
from npuflow.ops._windows import pair, taps


@OPS.entry
@dataclass(frozen=True)
class AveragePool(PoolOp):
    count_include_pad: int = 0

    onnx: ClassVar[str] = "AveragePool"

    def forms(self) -> Mapping[str, Any]:
        return {"float": FORMS["float_averagepool"]}

    def counted(self, w: Window) -> tuple[int, int]:
        """Rows that count as elements: [first, behind last), by the operator's rule."""
        return (-w.before, w.size + w.after) if self.count_include_pad else (0, w.size)

    def counts(self, spec: Sequence[Window]) -> npt.NDArray[np.int64]:
        """Elements that each window divides by, over the output's spatial dimensions."""
        total = np.ones((), np.int64)
        for w in spec:
            lo, hi = self.counted(w)
            rows = np.arange(w.out)[:, None] * w.stride - w.before + np.arange(w.kernel) * w.dilation
            total = np.multiply.outer(total, ((rows >= lo) & (rows < hi)).sum(axis=1))
        return np.asarray(total, np.int64)

    # --- float
    def reference(self, *inputs: Array | None) -> tuple[Array, ...]:
        x = inputs[0]
        assert x is not None
        spec = self.windows(x.shape[2:])
        total = sum(view for _, view in taps(x.astype(np.float64), spec))
        return ((total / np.maximum(self.counts(spec), 1)).astype(x.dtype),)

    # --- integers
    def prepare(self, site: OpContext, numerics: Numerics) -> dict[str, int | Array]:
        x, y = site.quant(0), site.out_quant
        area = prod(self.kernel_shape)
        occurring = [int(k) for k in np.unique(self.counts(self.windows(site.shape(0)[2:]))) if k > 0]
        m, shift = multiplier_shift([x.scale[0] / y.scale[0] / k for k in occurring], numerics.of_means)
        low, high = min(x.lo - x.zero_point[0], 0), max(x.hi - x.zero_point[0], 0)
        prove(area * low, area * high, site.accumulator_bits(numerics), f"a window of {area} elements")
        table = np.zeros(area + 1, np.uint32)
        table[occurring] = m
        lo, hi = clamp_bounds(self.clip, y)
        return {"multipliers": table, "shift": shift, "lo": lo, "hi": hi}

    def integer(
        self, site: OpContext, inputs: Sequence[IntArray | None], numerics: Numerics
    ) -> tuple[IntArray, ...]:
        x = inputs[0]
        assert x is not None
        spec, y = self.windows(x.shape[2:]), site.out_quant
        total = np.asarray(sum(view for _, view in taps(centred(x, site.quant(0)), spec)))
        m = site.array("multipliers").astype(np.int64)[self.counts(spec)]
        bounds = site.param("lo"), site.param("hi")
        return (
            requantize(total, m, site.param("shift"), y.zero_point[0], *bounds, numerics.rounding).astype(
                y.dtype
            ),
        )

    # --- target
    def accepts(self, site: OpContext, target: Target) -> Yes | No:
        answer = super().accepts(site, target)
        if isinstance(answer, Yes) and target.numerics.power_of_two:
            counts = np.unique(self.counts(self.windows(site.shape(0)[2:])))
            try:
                multiplier_shift(1.0 / np.maximum(counts, 1), target.numerics.of_means)
            except TargetError as error:
                return No(f"a mean of {', '.join(map(str, counts))} elements: {error.message}")
        return answer

    def space(self, site: OpContext, numerics: Numerics) -> IterationDomain:
        table = whole("multipliers", tuple(site.array("multipliers").shape))
        return pool_space(site, self.windows(site.shape(0)[2:]), (table,))

    def lower(self, site: OpContext, tile: TileView, em: Emitter) -> None:
        spec, x = self.windows(site.shape(0)[2:]), tile.input(0)
        first = [self.counted(w)[0] - box[0] for w, box in zip(spec, x.box[2:], strict=True)]
        behind = [self.counted(w)[1] - box[0] for w, box in zip(spec, x.box[2:], strict=True)]
        em.emit(
            "AVGPOOL",
            **pool_operands(site, tile, spec),
            x_zero=site.quant(0).zero_point[0],
            count_lo=pair(first, 0),
            count_hi=pair(behind, 1),
            multipliers=tile.params["multipliers"].address,
            zero=site.out_quant.zero_point[0],
            **{k: site.param(k) for k in ("shift", "lo", "hi")},
            rounding=em.numerics.rounding,
        )

    @classmethod
    def samples(cls, rng: np.random.Generator) -> Iterable[OpSample]:
        yield OpSample(cls((2, 2), (2, 2), (1, 1), (0, 0, 0, 0)), (draw(rng, 1, 3, 8, 8),))
        yield OpSample(cls((3, 2), (2, 1), (1, 2), (1, 0, 1, 1)), (draw(rng, 2, 3, 9, 7),))
        yield OpSample(
            cls((3, 3), (2, 2), (1, 1), (1, 1, 1, 1), count_include_pad=1), (draw(rng, 1, 2, 8, 6),)
        )
        yield OpSample(cls((3, 3), (2, 2), (1, 1), (1, 1, 0, 0), ceil_mode=1), (draw(rng, 1, 2, 7, 6),))
        yield OpSample(cls((3,), (2,), (1,), (1, 1), clip=(0.0, 0.5)), (draw(rng, 1, 4, 11),))
