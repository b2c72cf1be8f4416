"""What forms share: numbers and patterns of a node's values, bounds, the last rounding."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from npuflow.base.errors import TargetError
from npuflow.hw.floats import clamped, encoded
from npuflow.hw.target import Numerics
from npuflow.ir.codes import real_of
from npuflow.ir.forms import OperatorSpace
from npuflow.ir.lowering import Emitter, TileView
from npuflow.ir.op import OpContext, bound_array
from npuflow.ir.space import Axis, DimMap, IterationDomain, Operand
from npuflow.ir.types import Array

Real = npt.NDArray[np.float64]


def real(site: OpContext, inputs: Sequence[Array | None], index: int) -> Real:
    """An input as numbers."""
    array, value = inputs[index], site.inputs[index]
    assert array is not None and value is not None
    return real_of(array, value.number)


def result(site: OpContext) -> str:
    """The float type of a node's result. A TargetError where it picks rows of a table: such numbers are whole
    ones, which floats do not tell apart."""
    kind = site.outputs[0].number
    if not kind:
        raise TargetError(
            "its result picks rows of a table, and floats do not tell large whole numbers apart",
            hint="[quantize] mode = \"int\", or leave it to the host", code="NF-QUANT-111",
        )
    return kind


def bounds(site: OpContext, lo: float = -np.inf, hi: float = np.inf) -> dict[str, int | Array]:
    """low(s), high(s): the fused clip, and a clamp that the operator has by itself, as patterns."""
    found: dict[str, int | Array] = {}
    clip = site.op.clip or (-np.inf, np.inf)
    for name, own, edge, outer in (("low", lo, clip[0], np.maximum), ("high", hi, clip[1], np.minimum)):
        patterns = encoded(outer(np.asarray(edge, np.float64), own), result(site))
        single = patterns.ndim == 0 or bool(np.all(patterns == patterns[0]))
        found |= {name: int(patterns.reshape(-1)[0])} if single else {f"{name}s": patterns}
    return found


def bound_fields(site: OpContext, tile: TileView) -> dict[str, object]:
    """The same as fields of a command."""
    return {
        name: tile.params[name].address if name.endswith("s") else site.param(name)
        for name in ("low", "high", "lows", "highs")
        if name in site.params
    }


def finished(site: OpContext, value: Array, lo: float = -np.inf, hi: float = np.inf) -> tuple[Array, ...]:
    """clamp(R(value)), bounds first rounded themselves."""
    kind = result(site)
    clip = site.op.clip or (-np.inf, np.inf)
    low = encoded(bound_array(clip[0], value.ndim), kind)
    high = encoded(bound_array(clip[1], value.ndim), kind)
    inner = clamped(encoded(value, kind), encoded(lo, kind), encoded(hi, kind), kind)
    return (clamped(inner, low, high, kind),)


def emit_round(site: OpContext, tile: TileView, em: Emitter, channel_dim: int, divisor: int = 1) -> None:
    """FROUND of the whole accumulator into the output; `channel_dim` counts the output's dimensions."""
    assert tile.acc is not None
    y = tile.outputs[0]
    em.emit(
        "FROUND",
        acc=tile.acc.address,
        acc_type=tile.acc.dtype,
        **y.as4("y"),
        dims=y.dims4(),
        divisor=divisor,
        channel_axis=min(4 - len(y.box) + channel_dim, 3),
        **bound_fields(site, tile),
    )


class RoundedForm(OperatorSpace):
    """Results are rounded once and clamped."""

    def prepare(self, site: OpContext, numerics: Numerics) -> dict[str, int | Array]:
        return bounds(site)


def pointwise(site: OpContext, *params: Operand) -> IterationDomain:
    """Each result from the element at its place."""
    shape = site.out_shape
    axes = tuple(Axis(f"d{i}", size) for i, size in enumerate(shape))
    maps = tuple(DimMap(a.name) for a in axes)
    return IterationDomain(axes, (Operand("x", shape, maps),), (Operand("y", shape, maps),), params, ops=1)
