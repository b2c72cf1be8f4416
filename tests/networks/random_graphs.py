"""Float graphs of a few operators, quantisation schemes and targets, all drawn from one seed."""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType

from npuflow.hw.target import Target
from npuflow.ir.graph import Graph
from npuflow.quantise.config import Quantize
from tests.networks.random_operators import MAKERS, Array, Draw
from tests.networks.random_targets import fitting, scheme, target


@dataclass(frozen=True)
class Subject:
    """All that a seed stands for. `feeds` are samples of the graph's inputs; the
    ranges come from the first."""

    graph: Graph
    feeds: tuple[dict[str, Array], ...]
    ranges: dict[str, tuple[float, float]]
    config: Quantize
    target: Target
    level: int


def grow(d: Draw) -> Graph:
    """Two to eight operators; the newest value is the likeliest to be read next, older ones make branches."""
    ranks = {1: 1, 2: 3, 3: 2, 4: 8}
    for _ in range(d.rng.choice((1, 1, 1, 2))):
        rank = d.rng.choices(list(ranks), list(ranks.values()))[0]
        d.input(tuple(d.rng.randint(1, 9 if i >= rank - 2 else (2 if i == 0 else 6)) for i in range(rank)))
    return extended(d, d.rng.randint(2, 8))


def extended(d: Draw, wanted: int) -> Graph:
    """As many operators behind the inputs as are wanted."""
    for _ in range(60):
        if len(d.nodes) >= wanted:
            break
        activations = [v for v in d.arrays if not v.startswith("c")]
        x = activations[-1] if d.chance(0.6) else d.rng.choice(activations)
        made = d.rng.choice(MAKERS)(d, x)
        if made is not None and made[0] is not None:
            d.add(*made)
    read = {i for n in d.nodes for i in n.inputs}
    made_ids = [o for n in d.nodes for o in n.outputs]
    outputs = tuple(o for o in made_ids if o not in read or d.chance(0.15))
    inputs = tuple(i for i in d.inputs if i in read)
    values = {k: v for k, v in d.values.items() if k in read or k in made_ids}
    consts = {v.const: d.consts[v.const] for v in values.values() if v.const}
    return Graph(inputs, outputs, tuple(d.nodes), MappingProxyType(values), MappingProxyType(consts))


def subject(seed: int) -> Subject:
    d = Draw(seed)
    graph = grow(d)
    feeds = [{i: d.arrays[i] for i in graph.inputs}]
    if d.chance(0.4):
        feeds.append({i: d.array(d.shape(i), 1.5) for i in graph.inputs})
    narrow = d.rng.choice((1.0, 1.0, 1.0, 0.5))     # saturation
    ranges = {k: (float(a.min()) * narrow, float(a.max()) * narrow) for k, a in d.arrays.items()}
    config, chip = scheme(d), target(d)
    return Subject(
        graph,
        tuple(feeds),
        ranges,
        fitting(config, chip.numerics),
        chip,
        d.rng.choice((0, 0, 1, 2, 3, 3, 4, 5, 5)),
    )
