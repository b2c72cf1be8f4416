"""How a node computes on the NPU: by its operator's integer methods, or by those on floats."""

from __future__ import annotations

from collections.abc import Sequence

from npuflow.hw.elements import ELEMENTS, container
from npuflow.hw.target import Numerics
from npuflow.ir.lowering import Emitter, TileView
from npuflow.ir.op import Site
from npuflow.ir.space import Space
from npuflow.ir.types import Array


def prepared(site: Site, numerics: Numerics) -> dict[str, int | Array]:
    """Constants of the node, fixed when it is quantised."""
    return site.op.float_prepare(site, numerics) if site.number else site.op.prepare(site, numerics)


def computed(site: Site, inputs: Sequence[Array | None], numerics: Numerics) -> tuple[Array, ...]:
    """The results of the node on codes, or patterns, by its specification."""
    if site.number:
        return site.op.float_compute(site, inputs, numerics)
    return site.op.integer(site, inputs, numerics)


def space(site: Site, numerics: Numerics) -> Space | None:
    """The node's iteration space; None for operators that only move data."""
    return site.op.float_space(site, numerics) if site.number else site.op.space(site, numerics)


def lower(site: Site, tile: TileView, em: Emitter) -> None:
    """Commands of the compute queues for one tile."""
    if site.number:
        site.op.float_lower(site, tile, em)
    else:
        site.op.lower(site, tile, em)


def block_type(site: Site) -> str:
    """The type of a weight whose elements share exponents, or the one that the array converts both operands
    to; empty: there is neither."""
    value = site.inputs[1] if len(site.inputs) > 1 else None
    held = value.number if value is not None and value.number and ELEMENTS[value.number].block else ""
    return held or site.op.pair_type()


def sum_type(site: Site, numerics: Numerics) -> str:
    """The type of the node's sums."""
    return "float32" if site.number else container(max(32, site.accumulator_bits(numerics)), signed=True)
