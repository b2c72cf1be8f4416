"""Operators that are a function of one number: a table of every code at 8 bits, interpolated tables at 16."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from npuflow.base.errors import TargetError
from npuflow.hw.elements import wide
from npuflow.hw.numerics import quantize
from npuflow.hw.target import Numerics, Target
from npuflow.ir.forms import FORMS
from npuflow.ir.lowering import Emitter, TileView
from npuflow.ir.op import No, Op, OpContext, OpSample, Yes, first_no, need
from npuflow.ir.space import Axis, DimMap, IterationDomain, Operand, whole
from npuflow.ir.types import Array, IntArray, QuantType, Span, TensorType
from npuflow.ops._requant import clamp_bounds

Real = npt.NDArray[np.float64]
FRACTION = 8                              # bits behind the point in interpolated tables
LARGEST = float((1 << 31 - FRACTION) - 1)
WIDEST = 16
# codes of 16 bits that interpolation may be off: a quarter of a code of 8 bits, which rounding may make one
LOOSEST = 64


def elementwise_axes(shape: tuple[int, ...]) -> tuple[tuple[Axis, ...], tuple[DimMap, ...]]:
    """One parallel axis per dimension, and the maps of a tensor of that shape."""
    axes = tuple(Axis(f"d{i}", size) for i, size in enumerate(shape))
    return axes, tuple(DimMap(a.name) for a in axes)


@dataclass(frozen=True)
class TableOp(Op):
    """Base of the table operators; a subclass is its attributes and `f`."""

    elementwise: ClassVar[bool] = True
    unary: ClassVar[bool] = True
    fuses_clip: ClassVar[bool] = True
    domain_lo: ClassVar[float] = -4.0     # range the published suite draws inputs from
    domain_hi: ClassVar[float] = 4.0
    loosest: ClassVar[int] = LOOSEST
    # it gives whole numbers of whole numbers, and is monotone on either side of 0
    keeps_whole: ClassVar[bool] = False

    def forms(self) -> Mapping[str, Any]:
        return {"float": FORMS["float_table"]}

    def infer(self, *types: TensorType | None) -> tuple[TensorType, ...]:
        assert types[0] is not None
        return (types[0],)

    def reference(self, *inputs: Array | None) -> tuple[Array, ...]:
        x = inputs[0]
        assert x is not None
        with np.errstate(all="ignore"):
            return (np.asarray(self.f(x.astype(np.float64)), np.float64).astype(x.dtype).reshape(x.shape),)

    def whole_result(self, site: OpContext, spans: Sequence[Span | None], output: int) -> Span | None:
        return self.whole_ends(spans[0]) if spans[0] is not None and self.keeps_whole else None

    def whole_ends(self, span: Span) -> Span | None:
        """The range of a function that gives whole numbers and is monotone on either side of 0."""
        bends = {span[0], span[1], min(max(0, span[0]), span[1])}
        found = self.f(np.array(sorted(bends), np.float64))
        whole = np.isfinite(found).all() and np.all(found == np.rint(found))
        return (int(found.min()), int(found.max())) if whole else None

    def smooth(self, x: Real) -> Real:
        """The function before its last step, where that step is a clamp to `bounds`: tables
        interpolate across no such bend."""
        return self.f(x)

    def bounds(self) -> tuple[float, float]:
        return -np.inf, np.inf

    def prepare(self, site: OpContext, numerics: Numerics) -> dict[str, int | Array]:
        source, result = site.quant(0), site.out_quant
        step_bits = max(0, source.bits - numerics.table_bits) if wide(source.bits) else 0
        if step_bits:
            return self._interpolated(source, result, step_bits)
        codes = np.arange(source.lo, source.lo + (1 << source.bits), dtype=np.int64)
        table = self._codes(codes, source, result)
        lo, hi = clamp_bounds(self.clip, result)
        return {
            "table": table.astype(result.dtype),
            "bits": 0,
            "fraction": 0,
            "base": source.lo,
            "lo": lo,
            "hi": hi,
        }

    def _codes(
        self, codes: npt.NDArray[np.int64], source: QuantType, result: QuantType
    ) -> npt.NDArray[np.int64]:
        """The nearest output code of every input code."""
        with np.errstate(all="ignore"):
            y = np.asarray(
                self.f(source.scale[0] * (codes - source.zero_point[0]).astype(np.float64)), np.float64
            )
        y = np.clip(y, *self.clip) if self.clip is not None else y
        return quantize(y, result.scale[0], result.zero_point[0], result.lo, result.hi)

    def _interpolated(self, source: QuantType, result: QuantType, step_bits: int) -> dict[str, int | Array]:
        """A table of every 2^step_bits-th code, one of them the zero point: functions bend at 0."""
        step, zero = 1 << step_bits, source.zero_point[0]
        base = zero - -(-(zero - source.lo) // step) * step
        codes = np.arange(base, (source.hi - base) // step * step + base + step + 1, step, dtype=np.int64)
        ends = np.clip(codes, source.lo, source.hi)
        with np.errstate(all="ignore"):
            y = np.asarray(self.smooth(source.scale[0] * (ends - zero).astype(np.float64)), np.float64)
        y = np.nan_to_num(
            y / result.scale[0] + result.zero_point[0],
            nan=result.zero_point[0],
            posinf=LARGEST,
            neginf=-LARGEST,
        )
        for end, inner in ((0, 1), (-1, -2)):        # outside the codes: on the line through the last of them
            y[end] = y[inner] + (y[end] - y[inner]) * (step / max(abs(ends[end] - codes[inner]), 1))
        bounds = clamp_bounds(self.bounds(), result), clamp_bounds(self.clip, result)
        params: dict[str, int | Array] = {
            "table": np.rint(np.clip(y, -LARGEST, LARGEST) * (1 << FRACTION)).astype(np.int32),
            "bits": step_bits,
            "fraction": FRACTION,
            "base": int(base),
            "lo": max(b[0] for b in bounds),
            "hi": min(b[1] for b in bounds),
        }
        every = np.arange(source.lo, source.hi + 1, dtype=np.int64)
        worst = int(np.abs(_looked_up(params, every) - self._codes(every, source, result)).max())
        if worst > max(self.loosest >> WIDEST - result.bits, 1):
            raise TargetError(
                f"a table of {len(codes)} entries is up to {worst} codes off the function over [{ends[0]}, "
                f"{ends[-1]}]",
                hint="8 bits for this layer, a smaller range of its input, or a target with larger tables",
                code="NF-QUANT-016",
            )
        return params

    def integer(
        self, site: OpContext, inputs: Sequence[IntArray | None], numerics: Numerics
    ) -> tuple[IntArray, ...]:
        x = inputs[0]
        assert x is not None
        return (_looked_up(site.params, x.astype(np.int64)).astype(site.out_quant.dtype),)

    def accepts(self, site: OpContext, target: Target) -> Yes | No:
        rank = len(site.out_shape)
        return first_no(
            need(rank <= 4, f"rank {rank} > 4"),
            need(site.consts[0] is None, "its input is a constant"),
            need(site.outputs[0].type.dtype == "float32", f"dtype {site.outputs[0].type.dtype}"),
        )

    def space(self, site: OpContext, numerics: Numerics) -> IterationDomain:
        shape = site.out_shape
        axes, maps = elementwise_axes(shape)
        table = whole("table", tuple(site.array("table").shape))
        x, y = (Operand(name, shape, maps) for name in "xy")
        return IterationDomain(axes, (x,), (y,), (table,), ops=1)

    def lower(self, site: OpContext, tile: TileView, em: Emitter) -> None:
        x, y = tile.input(0), tile.outputs[0]
        em.emit("LUT", **x.as4("x"), **y.as4("y"), dims=y.dims4(), base=site.param("base"),
                table=tile.params["table"].address, entries=site.array("table").size,
                **{k: site.param(k) for k in ("bits", "fraction", "lo", "hi")})

    @classmethod
    def samples(cls, rng: np.random.Generator) -> Iterable[OpSample]:
        for shape in ((1, 3, 5, 7), (2, 9), (6,)):
            yield OpSample(cls(), (rng.uniform(cls.domain_lo, cls.domain_hi, shape).astype(np.float32),))


def _looked_up(params: Mapping[str, int | Array], x: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """The specification of LUT."""
    table, bits, fraction = (
        np.asarray(params["table"], np.int64),
        int(params["bits"]),
        int(params["fraction"]),
    )
    d = x - int(params["base"])
    if bits == 0:
        return np.asarray(table[d])
    index, part, steps = d >> bits, d & ((1 << bits) - 1), bits + fraction
    y = (table[index] * ((1 << bits) - part) + table[index + 1] * part + (1 << (steps - 1))) >> steps
    return np.clip(y, int(params["lo"]), int(params["hi"]))
