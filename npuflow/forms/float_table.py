"""Functions of one float: an operation of FUNARY, or a table."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from npuflow.base.errors import InternalError
from npuflow.forms._rounded import bound_fields, bounds, finished, pointwise, real, result
from npuflow.hw.floats import decoded, encoded, infinity, sign_bit
from npuflow.hw.target import Numerics
from npuflow.ir.forms import FORMS, OperatorForm
from npuflow.ir.lowering import Emitter, TileView
from npuflow.ir.op import Op, OpContext
from npuflow.ir.space import IterationDomain, whole
from npuflow.ir.types import Array

Real = npt.NDArray[np.float64]
PARTS = ("first", "last", "below", "above")
SPECIAL = 5  # entries of +0, -0, infinity, -infinity, NaN


@FORMS.entry
class FloatTable(OperatorForm):
    """A function that is no operation of the lanes has a table of the results of the numbers between which it
    varies, computed in float64 and rounded once. Both have the same bits."""

    def table(self, op: Op, number: str) -> int:
        return 0 if op.lane else _bytes(op, number)

    def prepare(self, site: OpContext, numerics: Numerics) -> dict[str, int | Array]:
        if site.op.lane:
            return bounds(site)
        source = site.inputs[0]
        assert source is not None
        return cut(site.op.f, lambda y: finished(site, y)[0], source.number, result(site)).params()

    def compute(
        self, site: OpContext, inputs: Sequence[Array | None], numerics: Numerics
    ) -> tuple[Array, ...]:
        if site.op.lane:
            with np.errstate(all="ignore"):
                return finished(site, site.op.f(real(site, inputs, 0)))
        x, source = inputs[0], site.inputs[0]
        assert x is not None and source is not None
        return (CutTable.of(site.params).results(source.number, result(site))[x],)

    def space(self, site: OpContext, numerics: Numerics) -> IterationDomain:
        return pointwise(site, *(() if site.op.lane else (whole("table", site.array("table").shape),)))

    def lower(self, site: OpContext, tile: TileView, em: Emitter) -> None:
        x, y = tile.input(0), tile.outputs[0]
        if site.op.lane:
            given = {**x.as4("x"), **y.as4("y"), "dims": y.dims4()}
            em.emit("FUNARY", **given, op=site.op.lane, **bound_fields(site, tile))
            return
        table = tile.params["table"].address
        parts = {name: (site.param(name), site.param(f"{name}_negative")) for name in PARTS}
        em.emit("FLUT", **x.as4("x"), **y.as4("y"), dims=y.dims4(), table=table, **parts)


@lru_cache(maxsize=256)
def _bytes(op: Op, number: str) -> int:
    """Of its table in a type."""
    return cut(op.f, lambda y: encoded(y, number), number, number).bytes

# --- tables, cut to the numbers between which a function varies


@dataclass(frozen=True)
class CutTable:
    """What FLUT looks up; pairs are of positive and of negative numbers. Of a finite magnitude m above 0 (a
    pattern without its sign) the result is the entry of min(max(m, first), last). Below `first` it is
    R(x * below) instead, where that float32 is not 0, and beyond `last` R(x * above). `entries`: those of +0,
    -0, infinity, -infinity, NaN, then of the positive numbers, then of the negative ones."""

    first: tuple[int, int]
    last: tuple[int, int]
    below: tuple[float, float]
    above: tuple[float, float]
    entries: Array

    @property
    def bytes(self) -> int:
        return int(self.entries.nbytes)

    def params(self) -> dict[str, int | Array]:
        """As parameters of a node: one number each, factors as patterns of float32."""
        found: dict[str, int | Array] = {"table": self.entries}
        for name in PARTS:
            for sign, value in zip(("", "_negative"), getattr(self, name), strict=True):
                whole = isinstance(value, int)
                found[name + sign] = value if whole else int(np.float32(value).view(np.uint32))
        return found

    @staticmethod
    def of(params: Mapping[str, Any]) -> CutTable:
        """The same read back."""
        pairs: dict[str, Any] = {n: (params[n], params[f"{n}_negative"]) for n in PARTS}
        for name in ("below", "above"):
            pairs[name] = tuple(float(np.uint32(word).view(np.float32)) for word in pairs[name])
        return CutTable(**pairs, entries=params["table"])

    def results(self, source: str, target: str) -> Array:
        """The result of every pattern of the type `source`, as patterns of `target`."""
        found, start = np.full(2 * sign_bit(source), self.entries[4]), SPECIAL
        for negative, lowest in enumerate((0, sign_bit(source))):
            first, last = self.first[negative], self.last[negative]
            held = self.entries[start : start + last - first + 1]
            half = found[lowest : lowest + infinity(source) + 1]
            half[0], half[-1] = self.entries[negative], self.entries[2 + negative]
            half[first : last + 1] = held
            x = decoded(np.arange(lowest, lowest + len(half)), source)
            for factor, part, end in (
                (self.below[negative], slice(1, first), held[0]),
                (self.above[negative], slice(last + 1, -1), held[-1]),
            ):
                half[part] = encoded(x[part] * factor, target) if factor else end
            start += len(held)
        return found


def cut(f: Callable[[Real], Any], finish: Callable[[Real], Array], source: str, target: str) -> CutTable:
    """The shortest table of R(f(x)) for every number of a type; `finish` rounds and clamps."""
    every = decoded(np.arange(2 * sign_bit(source)), source)
    with np.errstate(all="ignore"):
        exact = np.asarray(f(every), np.float64)
    made, top, minus = finish(exact), infinity(source), sign_bit(source)
    nans = made[np.isnan(every)]
    if (nans != nans[0]).any():
        raise InternalError("a function makes several numbers of NaN", code="NF-INTERNAL-091")
    finite = (slice(1, top), slice(minus + 1, minus + top))
    halves = [_half(every[part], exact[part], made[part], target) for part in finite]
    first, last, below, above, entries = zip(*halves, strict=True)
    special = np.array([made[0], made[minus], made[top], made[minus + top], nans[0]], made.dtype)
    return CutTable(first, last, below, above, np.concatenate([special, *entries]))


def _half(x: Real, exact: Real, made: Array, target: str) -> tuple[int, int, float, float, Array]:
    """first, last, below, above and the entries, of the finite numbers of one sign, by magnitude from 1."""
    count = len(x)
    down, up = _runs(made == made[0])[0], _runs(made == made[-1])[1]
    first, end, below, above = down - 1, count - up, 0.0, 0.0  # an entry for all that have its result
    for factor in _factors(x, exact):
        with np.errstate(all="ignore"):
            down, up = _runs(encoded(x * factor, target) == made)
        if down > first + 1:
            first, below = down, factor
        if count - 1 - up < end - 1:
            end, above = count - 1 - up, factor
    first = min(first, count - 1)
    last = max(first, end)
    return 1 + first, 1 + last, below, above, made[first : last + 1]


def _factors(x: Real, exact: Real) -> list[float]:
    """Slopes that a function may have at either end of its numbers, as float32; and their neighbours, which
    round a tie of subnormal numbers to the side where the function lies."""
    with np.errstate(all="ignore"):
        slopes = np.array([1.0, exact[0] / x[0], exact[-1] / x[-1]], np.float32)
        slopes = slopes[np.isfinite(slopes) & (slopes != 0)]
        near = [np.nextafter(slopes, np.float32(to)) for to in (-np.inf, np.inf)]
    found = dict.fromkeys(np.concatenate([slopes, *near]).tolist())
    return [v for v in found if np.isfinite(v) and v]


def _runs(held: npt.NDArray[np.bool_]) -> tuple[int, int]:
    """How many hold from the start on, and how many up to the end."""
    if held.all():
        return len(held), len(held)
    return int(np.argmin(held)), int(np.argmin(held[::-1]))
