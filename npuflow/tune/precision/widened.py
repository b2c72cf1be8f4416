"""Tabulates what a search for widths widened, and what each unit did alone before."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields

from npuflow.base.tables_write import value as toml
from npuflow.ir.graph import Graph
from npuflow.ir.noise import decibels
from npuflow.quantise.config import Override
from npuflow.strategies import Noise


@dataclass(frozen=True)
class Widened:
    """`alone`: dB of the outputs when this one alone is quantised at the recipe's width, the mean over
    outputs; None where it shares a type with one that is named elsewhere."""

    name: str
    layer: str
    kind: str
    became: str
    alone: float | None


def widened(
    graph: Graph, overrides: Sequence[Override], names: Sequence[tuple[str, str]], noise: Noise
) -> list[Widened]:
    """The noisiest first. `names`, `noise`: as `sensitivity` has them."""
    alone = {pair: decibels(1.0, float(noise[k].mean())) for k, pair in enumerate(names)}
    found = [row for one in overrides for row in _rows(graph, one, alone)]
    return sorted(found, key=lambda row: 1e9 if row.alone is None else row.alone)


def override_text(overrides: Sequence[Override]) -> str:
    """As a recipe has them."""
    tables = []
    keys = [one.name for one in fields(Override) if one.name not in ("layers", "float")]
    for one in overrides:
        rows = [f"{key} = {toml(getattr(one, key))}" for key in keys if getattr(one, key) is not None]
        rows += ["float = true"] if one.float else []
        tables.append(
            "\n".join(["[[quantize.overrides]]", f"layers = {toml(list(one.layers))}", *rows]) + "\n"
        )
    return "\n".join(tables)


def _rows(graph: Graph, one: Override, alone: Mapping[tuple[str, str], float]) -> Iterator[Widened]:
    producer = graph.producer()
    for name in one.layers:
        node = producer.get(name)
        layer = node.name if node is not None else name
        if one.bits:
            yield Widened(name, layer, "activation", f"{one.bits} bits", alone.get(("activation", name)))
        for value_id in (node.inputs if node is not None else ()):
            if one.weight_bits and ("weight", value_id) in alone:
                yield Widened(
                    value_id, layer, "weight", f"{one.weight_bits} bits", alone[("weight", value_id)]
                )
            if one.input_bits and value_id not in producer and ("activation", value_id) in alone:
                yield Widened(
                    value_id, layer, "input", f"{one.input_bits} bits", alone[("activation", value_id)]
                )
        if one.type:
            yield Widened(name, layer, "layer", f"in {one.type}", alone.get(("activation", name)))
        if one.float:
            yield Widened(name, layer, "layer", "float on the host", alone.get(("activation", name)))
