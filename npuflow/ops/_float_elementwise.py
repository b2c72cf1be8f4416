"""Operators of one or two operands in floats, element by element: arithmetic, clamps, tables, casts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np

from npuflow.hw.floats import decoded, encoded
from npuflow.hw.target import Numerics
from npuflow.ir.lowering import Emitter, TileView
from npuflow.ir.op import Op, Site
from npuflow.ir.space import Axis, DimMap, Operand, Space, whole
from npuflow.ir.types import Array, FloatType
from npuflow.ops._broadcast import strided
from npuflow.ops._cut_table import PARTS, CutTable, cut
from npuflow.ops._float_form import Real, RoundedFloats, bound_fields, bounds, finished, real, result


def _extremum(largest: bool) -> Callable[[Real, Real], Any]:
    def chosen(a: Real, b: Real) -> Any:
        first = a > b if largest else a < b
        return np.where(np.isnan(a) | (first & ~np.isnan(b)), a, b)

    return chosen


FUNCTIONS: Mapping[str, Callable[[Real, Real], Any]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "div": lambda a, b: a / b,
    "min": _extremum(False),
    "max": _extremum(True),
    "prelu": lambda a, b: np.where(a < 0, a * b, a),
}


@dataclass(frozen=True)
class Arithmetic(RoundedFloats):
    """An operation of FARITH on two operands, or on any number of them one after the other."""

    arithmetic: ClassVar[str] = ""

    def float_compute(
        self, site: Site, inputs: Sequence[Array | None], numerics: Numerics
    ) -> tuple[Array, ...]:
        value = real(site, inputs, 0)
        with np.errstate(all="ignore"):
            for i in range(min(1, len(inputs) - 1), len(inputs)):  # one operand alone is taken with itself
                value = FUNCTIONS[self.arithmetic](value, real(site, inputs, i))
        return finished(site, np.broadcast_to(value, site.out_shape))

    def float_lower(self, site: Site, tile: TileView, em: Emitter) -> None:
        y, count = tile.outputs[0], len(site.inputs)
        a = strided(tile.input(0), "a", site.shape(0))
        for i in range(min(1, count - 1), count):
            b = strided(tile.input(i), "b", site.shape(i))
            em.emit(
                "FARITH",
                **a,
                **b,
                **y.as4("y"),
                dims=y.dims4(),
                op=self.arithmetic,
                **bound_fields(site, tile),
            )
            a = y.as4("a")


@dataclass(frozen=True)
class Clamp(Op):
    """min(max(x, lo), hi) with the bounds that `ends` of the operator gives; NaN stays NaN."""

    floats: ClassVar[bool] = True

    def float_table(self, number: str) -> int:
        return 0

    def float_prepare(self, site: Site, numerics: Numerics) -> dict[str, int | Array]:
        return bounds(site, *_ends(site))

    def float_compute(
        self, site: Site, inputs: Sequence[Array | None], numerics: Numerics
    ) -> tuple[Array, ...]:
        return finished(site, real(site, inputs, 0), *_ends(site))

    def float_space(self, site: Site, numerics: Numerics) -> Space:
        return _pointwise(site)

    def float_lower(self, site: Site, tile: TileView, em: Emitter) -> None:
        x, y = tile.input(0), tile.outputs[0]
        em.emit("FCAST", **x.as4("x"), **y.as4("y"), dims=y.dims4(), **bound_fields(site, tile))


def _ends(site: Site) -> tuple[float, float]:
    """The clamp that is the operator."""
    lo, hi = site.op.f(np.array([-np.inf, np.inf])).tolist()
    return lo, hi


@dataclass(frozen=True)
class Table(Op):
    """A function of one number: an operation of FUNARY, or a table of the results of the numbers between
    which it varies, computed in float64 and rounded once. Both have the same bits."""

    floats: ClassVar[bool] = True

    @property
    def lane(self) -> str:
        """The operation of FUNARY that the function is; empty: it needs a table."""
        return ""

    def float_table(self, number: str) -> int:
        return 0 if self.lane else _bytes(self, number)

    def float_prepare(self, site: Site, numerics: Numerics) -> dict[str, int | Array]:
        if self.lane:
            return bounds(site)
        source = site.inputs[0]
        assert source is not None
        return cut(site.op.f, lambda y: finished(site, y)[0], source.number, result(site)).params()

    def float_compute(
        self, site: Site, inputs: Sequence[Array | None], numerics: Numerics
    ) -> tuple[Array, ...]:
        if self.lane:
            with np.errstate(all="ignore"):
                return finished(site, site.op.f(real(site, inputs, 0)))
        x, source = inputs[0], site.inputs[0]
        assert x is not None and source is not None
        return (CutTable.of(site.params).results(source.number, result(site))[x],)

    def float_space(self, site: Site, numerics: Numerics) -> Space:
        return _pointwise(site, *(() if self.lane else (whole("table", site.array("table").shape),)))

    def float_lower(self, site: Site, tile: TileView, em: Emitter) -> None:
        x, y = tile.input(0), tile.outputs[0]
        if self.lane:
            given = {**x.as4("x"), **y.as4("y"), "dims": y.dims4()}
            em.emit("FUNARY", **given, op=self.lane, **bound_fields(site, tile))
            return
        table = tile.params["table"].address
        parts = {name: (site.param(name), site.param(f"{name}_negative")) for name in PARTS}
        em.emit("FLUT", **x.as4("x"), **y.as4("y"), dims=y.dims4(), table=table, **parts)


@lru_cache(maxsize=256)
def _bytes(op: Table, number: str) -> int:
    """Of its table in a type."""
    return cut(op.f, lambda y: encoded(y, number), number, number).bytes


@dataclass(frozen=True)
class Cast(Op):
    """From codes to floats, from floats to codes, or between float types. The scale, or one over it, is a
    float32."""

    floats: ClassVar[bool] = True

    def float_prepare(self, site: Site, numerics: Numerics) -> dict[str, int | Array]:
        source, target = site.quant(0), site.out_quant
        params: dict[str, int | Array] = {"factor": _word(1.0), "zero": 0}
        if not isinstance(source, FloatType):
            params = {"factor": _word(source.scale[0]), "zero": source.zero_point[0]}
        if not isinstance(target, FloatType):
            ends = {"low": target.lo, "high": target.hi}
            return {"factor": _word(1.0 / target.scale[0]), "zero": target.zero_point[0], **ends}
        return {**params, **bounds(site)}

    def float_compute(
        self, site: Site, inputs: Sequence[Array | None], numerics: Numerics
    ) -> tuple[Array, ...]:
        x, source, target = inputs[0], site.quant(0), site.out_quant
        assert x is not None
        factor, zero = _number(site.param("factor")), site.param("zero")
        value = decoded(x, source.element) if isinstance(source, FloatType) else (x.astype(np.float64) - zero)
        if isinstance(target, FloatType):
            return (encoded(value * factor, target.element),)
        known = np.where(np.isnan(value), 0.0, np.clip(value * factor, -(2.0**40), 2.0**40))
        codes = np.rint(known).astype(np.int64) + zero
        return (np.clip(codes, target.lo, target.hi).astype(target.dtype),)

    def float_space(self, site: Site, numerics: Numerics) -> Space:
        return _pointwise(site)

    def float_lower(self, site: Site, tile: TileView, em: Emitter) -> None:
        numbers = {name: site.param(name) for name in ("factor", "zero", "low", "high")}
        for x, y in zip(tile.input(0).quads(), tile.outputs[0].quads(), strict=True):
            em.emit("FCAST", **x.as4("x"), **y.as4("y"), dims=y.dims4(), **numbers)


def _word(value: float) -> int:
    """The pattern of a float32."""
    return int(np.float32(value).view(np.uint32))


def _number(word: int) -> float:
    return float(np.uint32(word).view(np.float32))


def _pointwise(site: Site, *params: Operand) -> Space:
    """Each result from the element at its place."""
    shape = site.out_shape
    axes = tuple(Axis(f"d{i}", size) for i, size in enumerate(shape))
    maps = tuple(DimMap(a.name) for a in axes)
    return Space(axes, (Operand("x", shape, maps),), (Operand("y", shape, maps),), params, ops=1)
