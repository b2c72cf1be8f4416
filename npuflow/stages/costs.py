"""What the network's layers cost on the target, alone and in fusion groups: one cost for every different
subgraph."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any

from npuflow.base.tables import Config, Range
from npuflow.base.wording import counted
from npuflow.flow.artifact import Artifact
from npuflow.flow.stage import Items, log, part, stage
from npuflow.hw.target import Numerics
from npuflow.ir.text import operators
from npuflow.schedule.frame import Topology
from npuflow.search.canonical import Memo, Subgraph
from npuflow.search.memory import SearchMemory
from npuflow.search.parts import Planner, tiled
from npuflow.search.plan import FUSING, fits_shared, levels
from npuflow.search.spans import Shared, run_at
from npuflow.search.tilings import DEFAULT_LEVEL
from npuflow.stages.prices import PricedMachine
from npuflow.stages.quantize import Quantized, to_plan


@dataclass(frozen=True)
class Effort(Config, table="tiling"):
    """How hard the tiling search tries."""

    level: Annotated[int, Range(0, 5)] = DEFAULT_LEVEL
    """0: every layer alone, few tile sizes; 1: point-wise layers join the layer before; 3: fusion
    groups run stripe by stripe on all cores, and tensors stay in local memory where that is faster; 5:
    longer groups, nearly all sizes."""


@dataclass(frozen=True)
class SubgraphCost(
    Artifact, spread=("content", "excerpt"), rows=("alone",),
    subgraph={
        "graph": "text", "parts": "parts", "inside": "inside", "level": "level", "alone": "alone",
        "trials": "trials",
    },
):
    """A subgraph to be costed."""

    content: Subgraph

    def uses(self) -> dict[str, tuple[str, ...]]:
        return {"ops": operators(self.content.excerpt.graph)}

    def summary(self) -> dict[str, Any]:
        return {"layers": len(self.content.excerpt.graph.nodes), "parts": len(self.content.excerpt.parts)}


@dataclass(frozen=True)
class SubgraphCosts(Artifact, rows=("memo",), costs="memo"):
    """Costs by the keys of subgraphs."""

    memo: Memo

    def summary(self) -> dict[str, Any]:
        return {"subgraphs": len(self.memo), "groups": sum(len(c.ways) for c in self.memo.values())}


@part
def layers(
    quantized: Quantized, effort: Effort, hardware: PricedMachine, numerics: Numerics
) -> Iterator[tuple[str, SubgraphCost]]:
    """Every layer and run of point-wise followers that may be tiled as one."""
    graph = to_plan(quantized.graph, nested=True)
    machine = hardware.machine(fits_shared(graph, hardware.memory))
    planner, found, asked = Planner(graph, machine, numerics, effort.level), {}, 0
    for one in planner.candidates():
        found[one.name], asked = one, asked + 1
    log(f"{counted(asked, 'layer')} and runs of layers, {len(found)} of them different")
    yield from ((name, SubgraphCost(one)) for name, one in found.items())


@part(over="layers", batch=16)
def tiles(
    layers: Items[SubgraphCost], hardware: PricedMachine, numerics: Numerics
) -> Iterator[tuple[str, SubgraphCosts]]:
    """Try all sizes, orders and slots of a level, by estimated cycles."""
    for name, one in layers.items():
        machine = hardware.machine(one.content.inside)
        yield name, SubgraphCosts({one.content.key: tiled(one.content, machine, numerics)})


@part
def runs(
    quantized: Quantized, tiles: Items[SubgraphCosts], effort: Effort, hardware: PricedMachine,
    numerics: Numerics,
) -> Iterator[tuple[str, SubgraphCost]]:
    """From each part of the network the longest run of parts that a group may hold."""
    if effort.level < FUSING:
        return
    graph = to_plan(quantized.graph, nested=True)
    machine = hardware.machine(fits_shared(graph, hardware.memory))
    planner = Planner(graph, machine, numerics, effort.level, SearchMemory(_all(tiles)))
    parts = planner.groups()
    if planner.faults:
        return                              # `tiling` refuses the network, with all that does not fit
    topology = Topology(graph, machine, numerics)
    every = [
        found[0] for level in levels(effort.level) for start in range(len(parts))
        if (found := run_at(topology, parts, start, level)) is not None
    ]
    different = {one.name: one for one in every}
    log(
        f"fusion groups can start at {counted(len(every), 'layer')}; different runs of layers behind these: "
        f"{len(different)}"
    )
    yield from ((name, SubgraphCost(one)) for name, one in different.items())


@part(over="runs", batch=16)
def groups(
    runs: Items[SubgraphCost], hardware: PricedMachine, numerics: Numerics
) -> Iterator[tuple[str, SubgraphCosts]]:
    """The best number of stripes, split over cores, and tilings of every group that begins a run;
    what runs have in common is costed once a batch."""
    shared = Shared(numerics)
    for name, one in runs.items():
        machine = hardware.machine(one.content.inside)
        yield name, SubgraphCosts({one.content.key: shared.cost(one.content, machine)})


@stage(parts=(layers, tiles, runs, groups), minor=True)
def costs(tiles: Items[SubgraphCosts], groups: Items[SubgraphCosts]) -> SubgraphCosts:
    """The costs of all different subgraphs, each found once."""
    return SubgraphCosts({**_all(tiles), **_all(groups)})


def _all(items: Items[SubgraphCosts]) -> Memo:
    return {key: cost for one in items.values() for key, cost in one.memo.items()}
