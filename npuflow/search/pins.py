"""Checks whether pins of the recipe name layers and tensors that exist, without contradiction."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from npuflow.base.errors import NpuflowError, RecipeError, TargetError, Where, nearest, suggestion
from npuflow.base.tables_toml import dotted
from npuflow.ir.graph import Graph
from npuflow.place.partition import is_npu, segments
from npuflow.schedule.groups import FusionGroup
from npuflow.search.parts import Planner
from npuflow.search.pinned import Pins, part_named, tile_faults

# layers, by any of their names in the model, and the parts that hold them
Names = Mapping[str, int]


def check(planner: Planner, groups: Sequence[FusionGroup], pins: Pins) -> None:
    """Every fault of the pins at once, each at its own key. `groups`: the parts of the network."""
    graph = planner.graph
    names = part_names(graph, groups)
    faults = [*_groups(graph, names, groups, pins), *_keep(graph, pins.keep), *_tiles(planner, groups, pins)]
    if len(faults) > 1:
        raise RecipeError(faults)
    if faults:
        raise faults[0]


def float_faults(graph: Graph, on_npu: Callable[[int], bool], pins: Pins) -> Iterator[NpuflowError]:
    """What is known from the float network: names of layers and tensors that no later step can have."""
    names = {n: i for i, k in enumerate(graph.nodes) if on_npu(i) for n in (k.name, *k.origin) if n}
    stated = [(n, dotted(("tiling", "tiles", n))) for n, _ in pins.tiles]
    stated += [
        (n, dotted(("tiling", "groups", g, i)))
        for g, group in enumerate(pins.groups)
        for i, n in enumerate(group)
    ]
    for name, key in stated:
        # quantisation names what it adds "layer:q"
        if name not in names and name.rpartition(":")[0] not in names:
            yield _no_layer(graph, names, name, key)
    for i, value in enumerate(pins.keep):
        if value not in graph.values and value.rpartition(":")[0] not in graph.values:
            yield _no_tensor(graph, value, Where(key=dotted(("tiling", "keep", i))))


def part_names(graph: Graph, groups: Sequence[FusionGroup]) -> Names:
    return {
        n: i
        for i, g in enumerate(groups)
        for k in g.nodes
        for n in (graph.nodes[k].name, *graph.nodes[k].origin)
        if n
    }


def stretches(
    graph: Graph, groups: Sequence[FusionGroup], pins: Pins, tiled: frozenset[int]
) -> list[tuple[int, int]]:
    """Stretches of parts that the recipe joins, of pins that hold no fault."""
    names = part_names(graph, groups)
    found = [(index, index + 1) for index in sorted(tiled)]
    members = [[names[n] for n in group] for group in pins.groups]
    return list(dict.fromkeys([*found, *((min(m), max(m) + 1) for m in members)]))


def _groups(graph: Graph, names: Names, groups: Sequence[FusionGroup], pins: Pins) -> Iterator[NpuflowError]:
    taken: dict[int, int] = {}            # part -> the pinned group that has it
    tiled = {names[n] for n, _ in pins.tiles if n in names}
    segment = {n: k for k, part in enumerate(segments(graph) if pins.groups else ()) for n in part.numbers}
    for g, group in enumerate(pins.groups):
        at = ("tiling", "groups", g)
        unknown = [i for i, n in enumerate(group) if n not in names]
        yield from (_no_layer(graph, names, group[i], dotted((*at, i))) for i in unknown)
        if unknown:
            continue
        where = Where(key=dotted(at))
        if not group:
            hint = 'the names of layers that run together: ["conv1", "conv2"]'
            yield TargetError("the group names no layers", where=where, hint=hint, code="NF-TILING-004")
            continue
        members = sorted({names[n] for n in group})
        between = [_name(graph, groups[i]) for i in range(members[0], members[-1] + 1) if i not in members]
        if between:
            text = f"the layers of a group are not consecutive: {', '.join(group)}"
            hint = "add the layers between, or pin groups of consecutive layers"
            yield TargetError(
                text, where=where, because=f"between them: {', '.join(between)}", hint=hint,
                code="NF-TILING-005",
            )
            continue
        if len(members) > 1 and tiled & set(members):
            both = ", ".join(n for n in group if names[n] in tiled)
            yield TargetError(
                f"[tiling] pins both the tile of {both} and a group that contains it", where=where,
                code="NF-TILING-006", because="a layer with pinned tiles is a group of its own",
                hint="take it out of tiles, or out of groups",
            )
        first, last = groups[members[0]], groups[members[-1]]
        movers = list(
            dict.fromkeys(_name(graph, m) for m in (first, last) if m.choice is None and len(members) > 1)
        )
        apart = segment[first.nodes[0]] != segment[last.nodes[0]]
        if movers or apart:
            because = "the host runs layers between them"
            if movers:
                because = f"{', '.join(movers)}: data-layout operators cannot be fused"
            text, hint = (
                f"these layers cannot form one fusion group: {', '.join(group)}",
                "[tiling] groups without them",
            )
            yield TargetError(text, where=where, because=because, hint=hint, code="NF-TILING-012")
            continue
        others = {taken[m] for m in members if m in taken}
        if any({names[n] for n in pins.groups[o]} != set(members) for o in others):
            shared = ", ".join(n for n in group if names[n] in taken)
            yield TargetError(
                f"two groups of [tiling] share {shared}", where=where, code="NF-TILING-007",
                because=f"it is in {dotted(('tiling', 'groups', min(others)))} already",
                hint="make one group of both",
            )
        taken |= dict.fromkeys(members, g)


def _keep(graph: Graph, keep: Sequence[str]) -> Iterator[NpuflowError]:
    maker = {o: n for n in graph.nodes for o in n.outputs}
    read = {i for n in graph.nodes if is_npu(n) for i in n.inputs}
    for i, value in enumerate(keep):
        where = Where(key=dotted(("tiling", "keep", i)))
        if value not in graph.values:
            yield _no_tensor(graph, value, where)
        elif value in graph.inputs:
            yield _outside(
                value, "it is an input of the network: the host writes it to external memory", where
            )
        elif value not in maker or not is_npu(maker[value]) or value not in read:
            result = "it is an output of the network: the host reads it from external memory"
            made = value in maker and is_npu(maker[value])
            other = "no layer on the NPU reads it" if made else "the host produces it"
            twin = f"{value}:q" if f"{value}:q" in read else ""
            yield _outside(value, result if value in graph.outputs else other, where, twin)


def _no_tensor(graph: Graph, value: str, where: Where) -> TargetError:
    """A name that no tensor of the integer network has: of a layer, of what went
    into a layer, or misspelt."""
    named = [(name, n.outputs[0]) for n in graph.nodes for name in (n.name, *n.origin) if name]
    exact = next((o for name, o in named if name == value), None)
    within = max(((len(name), o) for name, o in named if value.startswith(name)), default=(0, None))[1]
    near = exact or within or nearest(value, sorted(graph.values))
    because = "that is a layer, and its tensor has another name" if exact else (
        "it disappears when layers are fused; this is the output of the fused layer" if within else ""
    )
    hint = f'"{near}"' if near else "names of tensors, as `npuflow show thresholds RECIPE` has them"
    return TargetError(
        f'there is no tensor "{value}"', where=where, because=because, hint=hint, code="NF-TILING-008",
    )


def _outside(value: str, because: str, where: Where, twin: str = "") -> TargetError:
    """A tensor of the host. `twin`: its codes, which layers on the NPU read besides."""
    hint = (
        f'"{twin}", its quantised form, which the other layers read' if twin else "[tiling] keep without it"
    )
    return TargetError(
        f'"{value}" cannot stay in local memory', where=where, because=because, hint=hint,
        code="NF-TILING-009",
    )


def _tiles(planner: Planner, groups: Sequence[FusionGroup], pins: Pins) -> Iterator[NpuflowError]:
    graph, names = planner.graph, part_names(planner.graph, groups)
    for name, sizes in pins.tiles:
        key = dotted(("tiling", "tiles", name))
        if name not in names:
            yield _no_layer(graph, names, name, key)
            continue
        try:
            index = part_named(graph, groups, name)
            tile_faults(planner, groups[index].nodes, name, dict(sizes))
        except TargetError as fault:
            yield fault.at(key=key)


def _no_layer(graph: Graph, names: Names, name: str, key: str) -> TargetError:
    """A name that no layer on the NPU has: of the host, of a tensor, or misspelt."""
    where = Where(key=key)
    if any(name in (n.name, *n.origin) for n in graph.nodes):
        return TargetError(
            f'"{name}" does not run on the NPU', where=where, hint="npuflow inspect shows the reason",
            code="NF-TILING-010",
        )
    maker = next((n.name for n in graph.nodes if name in n.outputs), None)
    because = "that is a tensor, not the layer that computes it" if maker else ""
    hint = f'"{maker}"' if maker else suggestion(name, sorted(names))
    return TargetError(
        f'there is no layer "{name}" on the NPU', where=where, because=because, hint=hint,
        code="NF-TILING-011",
    )


def _name(graph: Graph, group: FusionGroup) -> str:
    return graph.nodes[group.nodes[0]].name
