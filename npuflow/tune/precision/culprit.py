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
from npuflow.tune.precision.harness import Harness
from npuflow.tune.precision.sensitivity import runs

EFFORT = 250e9                            # multiply-accumulates of all passes together
FEWEST = 16                               # passes, however large the network
PROBES = 4                                # samples, where they can be afforded
# of the most noise taken away: among such units the first in the network is named
ALIKE = 0.9


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


def culprits(rig: Harness, column: int, tell: Callable[[int, int], None]) -> list[NoiseSource]:
    """Units above the output in this column of `rig.noise`, those first whose
    substitution takes most noise away."""
    graph, count = rig.network.graph, len(rig.names)
    units = [k for k in range(count) if reaches(rig, k, graph.outputs[rig.parts[column].output])]
    macs = pass_macs(graph)
    probes = max(1, min(PROBES, len(rig.held), int(EFFORT / (macs * max(len(units), 1)))))
    passes = max(int(EFFORT / (macs * probes)), FEWEST)
    feeds, built = rig.held[:probes], [NARROW] * count

    def noise(floats: list[int]) -> float:
        levels = list(built)
        for k in floats:
            levels[k] = FLOAT
        return float(rig.noise(rig.mixed(tuple(levels), feeds))[:, column].mean())

    start, found = noise([]), {}
    single = list(units)
    if len(units) > passes:
        parts = [b for b in ([k for k in part if k in units] for part in runs(rig, passes // 2)) if b]
        measured = sorted((noise(part), part) for part in parts)
        single = [k for _, part in measured for k in part][: passes - len(parts)]
    for done, k in enumerate(single, 1):
        found[k] = noise([k])
        tell(done, len(single))
    order = sorted(found, key=lambda k: found[k])
    if order:
        most = start - found[order[0]]
        alike = [k for k in order if start - found[k] >= ALIKE * most] if most > 0 else order[:1]
        first = min(alike, key=lambda k: _place(rig, k))
        order.remove(first)
        order.insert(0, first)
    before = float(noise_decibels(np.array(start)))
    return [_named(rig, k, before, float(noise_decibels(np.array(found[k])))) for k in order]


def reaches(rig: Harness, unit: int, output: str) -> bool:
    """Whether an output depends on a unit."""
    held = _values(rig, unit)
    return bool(set(held) & above(rig.network.graph, output))


def above(graph: Graph, output: str) -> set[str]:
    """Values that an output depends on, itself among them."""
    wanted = {output}
    for node in reversed(graph.nodes):
        if wanted & set(node.outputs):
            wanted |= set(node.inputs)
    return wanted


def _values(rig: Harness, unit: int) -> tuple[str, ...]:
    groups = rig.network.groups
    return groups[unit] if unit < len(groups) else (rig.network.weights[unit - len(groups)].value,)


def _place(rig: Harness, unit: int) -> int:
    """Where in the network a unit is first there."""
    graph, groups = rig.network.graph, rig.network.groups
    if unit >= len(groups):
        return rig.network.weights[unit - len(groups)].node
    made = {o: i for i, n in enumerate(graph.nodes) for o in n.outputs}
    return min(made.get(v, -1) for v in groups[unit])


def layer_of(rig: Harness, unit: int) -> str:
    """The source model's name of the node that makes or holds a unit; of an input, its own name."""
    return _named(rig, unit, 0.0, 0.0).layer


def _named(rig: Harness, unit: int, before: float, after: float) -> NoiseSource:
    kind, value = rig.names[unit]
    graph = rig.network.graph
    at = _place(rig, unit)
    node = graph.nodes[at] if at >= 0 else None
    if kind == "activation" and node is not None:
        value = next((o for o in node.outputs if o in _values(rig, unit)), value)
    layer = value if node is None else (node.origin[0] if node.origin else value)
    return NoiseSource(unit, kind, value, layer, before, after)
