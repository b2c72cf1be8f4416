"""Reductions, windows and softmax in floats."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import gcd, prod
from typing import ClassVar, Literal, Protocol, cast

import numpy as np
import numpy.typing as npt

from npuflow.hw.floats import encoded, rounded, sums
from npuflow.hw.target import Numerics
from npuflow.ir.lowering import Emitter, TileView, blocks3
from npuflow.ir.op import Op, Site
from npuflow.ir.space import Space
from npuflow.ir.types import Array
from npuflow.ir.windows import Window
from npuflow.ops._float_form import RoundedFloats, bound_fields, emit_round, finished, real, result
from npuflow.ops._pool import pool_operands, pool_space
from npuflow.ops._windows import pair, taps


class _Reduction(Protocol):
    kind: Literal["mean", "sum", "max"]

    def reduced(self, rank: int) -> tuple[int, ...]: ...

    def terms(self, shape: Sequence[int]) -> int: ...


@dataclass(frozen=True)
class ReductionFloats(RoundedFloats):
    """Sums go row-major through the dimensions that are reduced."""

    def float_compute(
        self, site: Site, inputs: Sequence[Array | None], numerics: Numerics
    ) -> tuple[Array, ...]:
        op, x = cast(_Reduction, site.op), real(site, inputs, 0)
        gone = op.reduced(x.ndim)
        kept = [d for d in range(x.ndim) if d not in gone]
        terms = x.transpose(*kept, *gone).reshape(*(x.shape[d] for d in kept), -1)
        if op.kind == "max":
            return finished(site, (terms.max(-1) + 0.0).reshape(site.out_shape))
        total = sums(terms, numerics.float_chunk).astype(np.float64)
        count = op.terms(x.shape) if op.kind == "mean" else 1
        with np.errstate(all="ignore"):
            return finished(site, (total / count).reshape(site.out_shape))

    def float_space(self, site: Site, numerics: Numerics) -> Space | None:
        space, x = self.space(site, numerics), site.shape(0)
        assert space is not None
        inner = prod(x[d] for d in cast(_Reduction, site.op).reduced(len(x))[1:])
        step = numerics.float_chunk // gcd(numerics.float_chunk, inner)
        return replace(
            space, axes=tuple(replace(a, multiple=step) if a.kind == "sum" else a for a in space.axes)
        )

    def float_lower(self, site: Site, tile: TileView, em: Emitter) -> None:
        op, x, acc = cast(_Reduction, site.op), tile.input(0), tile.acc
        assert acc is not None
        rank = len(site.shape(0))
        gone = op.reduced(rank)
        split = f"d{gone[0]}" if gone else None
        em.emit(
            "FREDUCE",
            **x.as4("x"),
            dims=x.dims4(),
            axes=sum(1 << (4 - rank + d) for d in gone),
            maximum=int(op.kind == "max"),
            acc=acc.address,
            acc_type=acc.dtype,
            accumulate=int(split is not None and not tile.first(split)),
            chunk=em.numerics.float_chunk,
        )
        if split is None or tile.last(split):
            count = op.terms(site.shape(0)) if op.kind == "mean" else 1
            emit_round(site, tile, em, 0, count)


class _Pool(Protocol):
    def windows(self, spatial: Sequence[int]) -> tuple[Window, ...]: ...


class _Average(_Pool, Protocol):
    def counted(self, w: Window) -> tuple[int, int]: ...

    def counts(self, spec: Sequence[Window]) -> npt.NDArray[np.int64]: ...


@dataclass(frozen=True)
class MaxPoolFloats(RoundedFloats):
    def float_compute(
        self, site: Site, inputs: Sequence[Array | None], numerics: Numerics
    ) -> tuple[Array, ...]:
        x = real(site, inputs, 0)
        spec = cast(_Pool, site.op).windows(x.shape[2:])
        best = np.stack([view for _, view in taps(x, spec, -np.inf)]).max(0)
        return finished(site, best + 0.0)

    def float_lower(self, site: Site, tile: TileView, em: Emitter) -> None:
        spec = cast(_Pool, site.op).windows(site.shape(0)[2:])
        ends = {"count_lo": (0, 0), "count_hi": (1, 1)}
        fields = pool_operands(site, tile, spec)
        em.emit("FPOOL", **fields, **ends, maximum=1, **bound_fields(site, tile))


@dataclass(frozen=True)
class AveragePoolFloats(RoundedFloats):
    """All positions of a window are one chunk."""

    def float_compute(
        self, site: Site, inputs: Sequence[Array | None], numerics: Numerics
    ) -> tuple[Array, ...]:
        op, x = cast(_Average, site.op), real(site, inputs, 0)
        spec = op.windows(x.shape[2:])
        terms = np.stack([view for _, view in taps(x, spec)], -1)
        total = sums(terms, terms.shape[-1]).astype(np.float64)
        with np.errstate(all="ignore"):
            return finished(site, total / op.counts(spec))

    def float_space(self, site: Site, numerics: Numerics) -> Space:
        return pool_space(site, cast(_Pool, site.op).windows(site.shape(0)[2:]))

    def float_lower(self, site: Site, tile: TileView, em: Emitter) -> None:
        op, x = cast(_Average, site.op), tile.input(0)
        spec = op.windows(site.shape(0)[2:])
        counted = [[end - box[0] for end in op.counted(w)] for w, box in zip(spec, x.box[2:], strict=True)]
        ends = {"count_lo": pair([a for a, _ in counted], 0), "count_hi": pair([b for _, b in counted], 1)}
        fields = pool_operands(site, tile, spec)
        em.emit("FPOOL", **fields, **ends, maximum=0, **bound_fields(site, tile))


class _Softmax(Protocol):
    axis: int


@dataclass(frozen=True)
class SoftmaxFloats(Op):
    """The distance to the largest is rounded to 16 bits, its exponential to float32."""

    floats: ClassVar[bool] = True

    def float_compute(
        self, site: Site, inputs: Sequence[Array | None], numerics: Numerics
    ) -> tuple[Array, ...]:
        x, source = real(site, inputs, 0), site.inputs[0]
        assert source is not None
        x = np.moveaxis(x, cast(_Softmax, site.op).axis, -1)
        with np.errstate(all="ignore"):
            d = rounded(x.max(-1, keepdims=True) - x, source.number)
            e = np.exp(-d).astype(np.float32).astype(np.float64)
            y = e / sums(e, numerics.float_chunk).astype(np.float64)[..., None]
        return (encoded(np.moveaxis(y, -1, cast(_Softmax, site.op).axis), result(site)),)

    def float_space(self, site: Site, numerics: Numerics) -> Space | None:
        return self.space(site, numerics)

    def float_lower(self, site: Site, tile: TileView, em: Emitter) -> None:
        axis = cast(_Softmax, site.op).axis % len(site.out_shape)
        for source, target in blocks3(axis, tile.input(0), tile.outputs[0]):
            x, dims = source.as3("x", axis, axis + 1)
            y, _ = target.as3("y", axis, axis + 1)
            em.emit("FSOFTMAX", **x, **y, dims=dims, chunk=em.numerics.float_chunk)
