"""Products of matrices of integers with weights in groups that have float16 scales."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import numpy as np

from npuflow.forms import _grouped
from npuflow.hw.grouped import FRACTION
from npuflow.hw.target import Numerics
from npuflow.ir.forms import FORMS, WIDE_SUM, OperatorForm
from npuflow.ir.lowering import Emitter, TileView
from npuflow.ir.op import OpContext
from npuflow.ir.overflow import Overflow
from npuflow.ir.space import IterationDomain
from npuflow.ir.types import Array, QuantType
from npuflow.ops._matrix import MatrixOp
from npuflow.ops._requant import centred, emit_requant, finish, requant_params
from npuflow.ops._windows import exact

ROOM = WIDE_SUM - 2                       # bits of a sum with its bias


@FORMS.entry
class GroupMatrix(OperatorForm):
    """Weights are whole numbers of 2^-24, so that sums are exact; one multiplier, one shift and one rounding
    follow."""

    def prepare(self, site: OpContext, numerics: Numerics) -> dict[str, int | Array]:
        groups, codes = _grouped.weight_of(site)
        fixed, x = groups.fixed(codes), site.quant(0)
        _fits(fixed, x, site.consts[2] if site.present(2) else None)
        ratio = site.op.gain() * x.scale[0] * 2.0**-FRACTION / site.out_quant.scale[0]
        params = requant_params(site, ratio, numerics)
        if site.present(2):
            params["bias_shift"] = 0
        return {**params, "blocks": groups.packed(codes)}

    def compute(
        self, site: OpContext, inputs: Sequence[Array | None], numerics: Numerics
    ) -> tuple[Array, ...]:
        groups, codes = _grouped.weight_of(site)
        x = inputs[0]
        assert x is not None
        held = _grouped.matrix(site, groups.fixed(codes))
        a, b = cast("MatrixOp", site.op).matrices(centred(x, site.quant(0)), held)
        acc = np.matmul(*exact(a, b, terms=a.shape[-1]))
        bias = inputs[2] if site.present(2) else None
        return (finish(site, acc, -1, numerics, bias),)

    def space(self, site: OpContext, numerics: Numerics) -> IterationDomain | None:
        return _grouped.in_groups(site.op.space(site, numerics), site)

    def lower(self, site: OpContext, tile: TileView, em: Emitter) -> None:
        zero = site.quant(0).zero_point[0]
        for given in cast("MatrixOp", site.op).commands(site, tile):
            em.emit("GROUPMATMUL", **_grouped.fields(site, given), a_zero=zero)
        if tile.last("k"):
            bias = 2 if site.present(2) else None
            emit_requant(site, tile, em, len(tile.outputs[0].box) - 1, bias=bias)


def _fits(fixed: Array, x: QuantType, bias: Array | None) -> None:
    """Refuse sums that leave 64 bits: such have scales far beyond those of weights."""
    reach = max(abs(x.lo - x.zero_point[0]), abs(x.hi - x.zero_point[0]))
    most = float(np.abs(fixed.astype(np.float64)).sum(1).max(initial=0.0)) * reach
    if bias is not None:
        most += float(np.abs(bias.astype(np.float64)).max(initial=0.0))
    if most >= 2.0**ROOM:
        needed = int(np.ceil(np.log2(most))) + 2
        raise Overflow(
            f"sums over weights in groups need {needed} bits, the accumulator has {WIDE_SUM}",
            needed - WIDE_SUM, hint="weight_group = 0 for this layer", code="NF-QUANT-077",
        )
