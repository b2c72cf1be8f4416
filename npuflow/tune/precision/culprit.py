"""Finds the tensor or weight whose substitution by float removes most of an output's noise.
All else is as built.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from npuflow.ir.graph import Graph
from npuflow.ir.macs import pass_macs
from npuflow.ir.noise import noise_decibels
from npuflow.strategies import FLOAT, NARROW
from npuflow.tune import tuned
from npuflow.tune.precision.harness import Harness
from npuflow.tune.precision.sensitivity import runs


@dataclass(frozen=True)
class NoiseSource:
    """`value`: the tensor or weight; `layer`: the source model's name of the node that makes or holds it; dB
    of the output in the fake-quantised network as built, and with this one in float."""

    unit: int
    kind: str
    value: str
    layer: str
    before: float
    after: float


def culprits(harness: Harness, column: int, tell: Callable[[int, int], None]) -> list[NoiseSource]:
    """Units above the output in this column of `Judge.noise`, those first whose
    substitution takes most noise away."""
    graph, count = harness.network.graph, len(harness.names)
    output = graph.outputs[harness.judge.parts[column].output]
    units = [k for k in range(count) if reaches(harness, k, output)]
    macs = pass_macs(graph)
    afforded = int(tuned.CULPRIT_MACS / (macs * max(len(units), 1)))
    probes = max(1, min(tuned.CULPRIT_PROBES, len(harness.judge.held), afforded))
    passes = max(int(tuned.CULPRIT_MACS / (macs * probes)), tuned.CULPRIT_FEWEST)
    feeds, built = harness.judge.held[:probes], [NARROW] * count

    def noise(floats: list[int]) -> float:
        levels = list(built)
        for k in floats:
            levels[k] = FLOAT
        return float(harness.judge.noise(harness.mixed(tuple(levels), feeds))[:, column].mean())

    start, found = noise([]), {}
    single = list(units)
    if len(units) > passes:
        parts = [b for b in ([k for k in part if k in units] for part in runs(harness, passes // 2)) if b]
        measured = sorted((noise(part), part) for part in parts)
        single = [k for _, part in measured for k in part][: passes - len(parts)]
    for done, k in enumerate(single, 1):
        found[k] = noise([k])
        tell(done, len(single))
    order = sorted(found, key=lambda k: found[k])
    if order:
        most = start - found[order[0]]
        near = tuned.CULPRIT_ALIKE * most
        alike = [k for k in order if start - found[k] >= near] if most > 0 else order[:1]
        first = min(alike, key=lambda k: _place(harness, k))
        order.remove(first)
        order.insert(0, first)
    before = float(noise_decibels(np.array(start)))
    return [_named(harness, k, before, float(noise_decibels(np.array(found[k])))) for k in order]


def reaches(harness: Harness, unit: int, output: str) -> bool:
    """Whether an output depends on a unit."""
    held = _values(harness, unit)
    return bool(set(held) & above(harness.network.graph, output))


def above(graph: Graph, output: str) -> set[str]:
    """Values that an output depends on, itself among them."""
    wanted = {output}
    for node in reversed(graph.nodes):
        if wanted & set(node.outputs):
            wanted |= set(node.inputs)
    return wanted


def _values(harness: Harness, unit: int) -> tuple[str, ...]:
    groups = harness.network.groups
    return groups[unit] if unit < len(groups) else (harness.network.weights[unit - len(groups)].value,)


def _place(harness: Harness, unit: int) -> int:
    """Where in the network a unit is first there."""
    graph, groups = harness.network.graph, harness.network.groups
    if unit >= len(groups):
        return harness.network.weights[unit - len(groups)].node
    made = {o: i for i, n in enumerate(graph.nodes) for o in n.outputs}
    return min(made.get(v, -1) for v in groups[unit])


def layer_of(harness: Harness, unit: int) -> str:
    """The source model's name of the node that makes or holds a unit; of an input, its own name."""
    return _named(harness, unit, 0.0, 0.0).layer


def _named(harness: Harness, unit: int, before: float, after: float) -> NoiseSource:
    kind, value = harness.names[unit]
    graph = harness.network.graph
    at = _place(harness, unit)
    node = graph.nodes[at] if at >= 0 else None
    if kind == "activation" and node is not None:
        value = next((o for o in node.outputs if o in _values(harness, unit)), value)
    layer = value if node is None else (node.origin[0] if node.origin else value)
    return NoiseSource(unit, kind, value, layer, before, after)
