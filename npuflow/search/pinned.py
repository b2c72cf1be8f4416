"""Layers whose tile sizes the recipe fixes, each alone with its point-wise followers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from npuflow.base.errors import TargetError, Where, suggestion
from npuflow.ir.graph import Graph
from npuflow.schedule.groups import FusedOp, FusionGroup
from npuflow.schedule.machine import Machine
from npuflow.schedule.model import Layer
from npuflow.search.parts import Planner, layer_of
from npuflow.search.tilings import TilingSearch

Tiles = tuple[tuple[str, tuple[tuple[str, int], ...]], ...]   # by layer: axis and size


@dataclass(frozen=True)
class Pins:
    """What the recipe fixes: values that stay in local memory, nodes that form a group, and
    tile sizes of layers, by names."""

    keep: tuple[str, ...] = ()
    groups: tuple[tuple[str, ...], ...] = ()
    tiles: Tiles = ()


NO_PINS = Pins()


def with_tiles(planner: Planner, groups: Sequence[FusionGroup], tiles: Tiles) -> list[FusionGroup]:
    """The parts of a network, those of pinned layers with the best tiling of their sizes."""
    found = list(groups)
    for name, sizes in tiles:
        index = part_named(planner.graph, groups, name)
        nodes = found[index].nodes
        layer = tile_faults(planner, nodes, name, dict(sizes))
        found[index] = _tiled(layer, planner.machine, planner.level, nodes, name, dict(sizes))
    return found


def tile_faults(planner: Planner, nodes: tuple[int, ...], name: str, sizes: Mapping[str, int]) -> Layer:
    """The layer of a part; a TargetError where it has no such axes or cannot be cut so."""
    layer = layer_of(planner.graph, nodes, planner.machine, planner.numerics)
    faults = list(_faults(layer, sizes))
    if faults:
        because = "; ".join([*faults[1:], _axes(layer)])
        raise TargetError(
            f"[tiling.tiles] {faults[0]}", where=Where(node=name), because=because, code="NF-TILING-001",
        )
    return layer


def part_named(graph: Graph, groups: Sequence[FusionGroup], name: str) -> int:
    """The part that holds a layer, by its name in the model."""
    names = {
        n: i
        for i, g in enumerate(groups)
        for k in g.nodes
        for n in (graph.nodes[k].name, *graph.nodes[k].origin)
    }
    if name not in names:
        hint = suggestion(name, sorted(n for n in names if n))
        raise TargetError(
            f'[tiling.tiles]: layer "{name}" does not run on the NPU', hint=hint, code="NF-TILING-002",
        )
    if groups[names[name]].choice is None:
        raise TargetError(
            f'[tiling.tiles]: layer "{name}" only moves data and has no tiles', where=Where(node=name),
            code="NF-TILING-003",
        )
    return names[name]


def _faults(layer: Layer, sizes: Mapping[str, int]) -> Iterator[str]:
    axes = {axis.name: axis for axis in layer.axes}
    for name, size in sizes.items():
        axis = axes.get(name)
        if axis is None:
            yield f'there is no axis "{name}"'
        elif not 1 <= size <= axis.size:
            yield f"a tile of {size} on an axis {name} of {axis.size}"
        elif size != axis.size and axis.kind == "whole":
            yield f"{name} cannot be split: {axis.size}"
        elif size != axis.size and size % axis.multiple:
            yield f"tiles of {name} are multiples of {axis.multiple}, not {size}"


def _axes(layer: Layer) -> str:
    """What the axes are: those of the result by their places, then those that sums run over."""
    words = (f"{a.name} = {a.size}" + (" (summed over)" if a.kind == "sum" else "") for a in layer.axes)
    return f"its axes are {', '.join(words)}"


def _tiled(
    layer: Layer, machine: Machine, level: int, nodes: tuple[int, ...], name: str, sizes: Mapping[str, int]
) -> FusionGroup:
    tilings = TilingSearch(layer, machine, level, fixed=sizes)
    found = tilings.best(machine.memory.local_bytes)
    if found is None:
        fault = tilings.refusal(name)
        hint = "smaller tiles; without the pin the search takes one that fits"
        raise fault.with_(because=fault.because, hint=hint)
    costs = replace(
        found.costs,
        bound_cycles=min(found.costs.bound_cycles, TilingSearch(layer, machine, level).bound_cycles),
    )
    return FusionGroup((FusedOp(nodes, found.choice),), costs)
