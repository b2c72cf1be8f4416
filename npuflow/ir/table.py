"""Operators that are a function of one number: a table of every code at 8 bits, interpolated tables at 16."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from npuflow.hw.numerics import quantize
from npuflow.hw.target import Numerics, Target
from npuflow.ir.op import Emitter, No, Op, Sample, Site, TileView, Yes, first_no, need
from npuflow.ir.space import Axis, DimMap, Operand, Space, whole
from npuflow.ir.types import Array, IntArray, TensorType

Real = npt.NDArray[np.float64]


def elementwise_axes(shape: tuple[int, ...]) -> tuple[tuple[Axis, ...], tuple[DimMap, ...]]:
    """One parallel axis per dimension, and the maps of a tensor of that shape."""
    axes = tuple(Axis(f"d{i}", size) for i, size in enumerate(shape))
    return axes, tuple(DimMap(a.name) for a in axes)


@dataclass(frozen=True)
class TableOp(Op):
    """Base of the table operators; a subclass is its attributes and `f`."""

    fuses_clip: ClassVar[bool] = True
    domain_lo: ClassVar[float] = -4.0     # range the published suite draws inputs from
    domain_hi: ClassVar[float] = 4.0

    def f(self, x: Real) -> Real:
        """The function in float64."""
        raise NotImplementedError

    def infer(self, *types: TensorType | None) -> tuple[TensorType, ...]:
        assert types[0] is not None
        return (types[0],)

    def reference(self, *inputs: Array | None) -> tuple[Array, ...]:
        x = inputs[0]
        assert x is not None
        with np.errstate(all="ignore"):
            return (np.asarray(self.f(x.astype(np.float64)), np.float64).astype(x.dtype).reshape(x.shape),)

    def prepare(self, site: Site, numerics: Numerics) -> dict[str, int | Array]:
        source, result = site.quant(0), site.out_quant
        step_bits = max(0, source.bits - numerics.table_bits) if source.bits > 8 else 0
        codes = np.arange(source.lo, source.lo + (1 << source.bits) + (step_bits > 0), 1 << step_bits, dtype=np.int64)
        real = source.scale[0] * (codes - source.zero_point[0]).astype(np.float64)
        with np.errstate(all="ignore"):
            y = np.asarray(self.f(real), np.float64)
        if self.clip is not None:
            y = np.clip(y, *self.clip)
        table = quantize(y, result.scale[0], result.zero_point[0], result.lo, result.hi)
        return {"table": table.astype(np.int32 if step_bits else result.dtype), "bits": step_bits, "base": source.lo}

    def integer(self, site: Site, inputs: Sequence[IntArray | None], numerics: Numerics) -> tuple[IntArray, ...]:
        x = inputs[0]
        assert x is not None
        table, bits = site.array("table").astype(np.int64), site.param("bits")
        d = x.astype(np.int64) - site.param("base")
        if bits == 0:
            return (table[d].astype(site.out_quant.dtype),)
        index, part = d >> bits, d & ((1 << bits) - 1)
        y = (table[index] * ((1 << bits) - part) + table[index + 1] * part + (1 << (bits - 1))) >> bits
        return (y.astype(site.out_quant.dtype),)

    def accepts(self, site: Site, target: Target) -> Yes | No:
        rank = len(site.out_shape)
        return first_no(
            need(rank <= 4, f"rank {rank} > 4"),
            need(site.consts[0] is None, "its input is a constant"),
            need(site.outputs[0].type.dtype == "float32", f"dtype {site.outputs[0].type.dtype}"),
        )

    def space(self, site: Site, numerics: Numerics) -> Space:
        shape = site.out_shape
        axes, maps = elementwise_axes(shape)
        table = whole("table", tuple(site.array("table").shape))
        return Space(axes, (Operand("x", shape, maps),), (Operand("y", shape, maps),), (table,), ops=1)

    def lower(self, site: Site, tile: TileView, em: Emitter) -> None:
        x, y = tile.input(0), tile.outputs[0]
        em.emit("LUT", **x.as4("x"), **y.as4("y"), dims=y.dims4(), base=site.param("base"),
                table=tile.params["table"].address, bits=site.param("bits"), entries=site.array("table").size)

    @classmethod
    def samples(cls, rng: np.random.Generator) -> Iterable[Sample]:
        for shape in ((1, 3, 5, 7), (2, 9), (6,)):
            yield Sample(cls(), (rng.uniform(cls.domain_lo, cls.domain_hi, shape).astype(np.float32),))
