"""Reductions in floats: sums go row-major through the dimensions that are reduced."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import gcd, prod
from typing import cast

import numpy as np

from npuflow.forms._rounded import RoundedForm, emit_round, finished, real
from npuflow.hw.floats import sums
from npuflow.hw.target import Numerics
from npuflow.ir.forms import FORMS
from npuflow.ir.lowering import Emitter, TileView
from npuflow.ir.op import OpContext
from npuflow.ir.space import IterationDomain
from npuflow.ir.types import Array
from npuflow.ops._reduction import Reduction


@FORMS.entry
class FloatReduction(RoundedForm):
    def compute(
        self, site: OpContext, inputs: Sequence[Array | None], numerics: Numerics
    ) -> tuple[Array, ...]:
        op, x = cast("Reduction", site.op), real(site, inputs, 0)
        gone = op.reduced(x.ndim)
        kept = [d for d in range(x.ndim) if d not in gone]
        terms = x.transpose(*kept, *gone).reshape(*(x.shape[d] for d in kept), -1)
        if op.kind == "max":
            return finished(site, (terms.max(-1) + 0.0).reshape(site.out_shape))
        total = sums(terms, numerics.float_chunk).astype(np.float64)
        count = op.terms(x.shape) if op.kind == "mean" else 1
        with np.errstate(all="ignore"):
            return finished(site, (total / count).reshape(site.out_shape))

    def space(self, site: OpContext, numerics: Numerics) -> IterationDomain:
        op, x = cast("Reduction", site.op), site.shape(0)
        found, inner = op.space(site, numerics), prod(x[d] for d in op.reduced(len(x))[1:])
        step = numerics.float_chunk // gcd(numerics.float_chunk, inner)
        axes = tuple(replace(a, multiple=step) if a.kind == "sum" else a for a in found.axes)
        return replace(found, axes=axes)

    def lower(self, site: OpContext, tile: TileView, em: Emitter) -> None:
        op, x, acc = cast("Reduction", site.op), tile.input(0), tile.acc
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
