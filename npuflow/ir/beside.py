"""Loops that do not need each other: pairs of them as one, or each on a core of its own.

Neither form changes what is computed. As one loop, two share rounds on one core. Apart, loops stay as they
are, stand one behind the other, and several cores run them at the same time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import combinations

from npuflow.ir.graph import Graph, LoopCore
from npuflow.ir.loops import Loop, border, borders, contiguous, every_loop, loops, runs, side_of
from npuflow.ir.op import Node

PAIR = 2                                  # loops that one core runs as one, at most


def beside(graph: Graph) -> Graph:
    """The graph with pairs of loops as one, where neither needs what the other makes and both have as many
    steps, as the directions of a layer: the array then multiplies for one while the vector unit works for the
    other. So of loops in the body of one. Not of loops whose steps are counted at run time, which has its own
    order in each direction. A pair has both names."""
    joined, sets = _joined(graph, PAIR)
    names = {some[0]: " + ".join(some) for some in sets if len(some) > 1}
    return joined.replaced(nodes=tuple(_called(node, names) for node in joined.nodes)) if names else joined


def _called(node: Node, names: Mapping[str, str]) -> Node:
    """A border with another name of its loop."""
    side, own = border(node)
    return replace(node, op=replace(own, loop=names[own.loop])) if side and own.loop in names else node


def apart(graph: Graph, cores: int) -> tuple[Graph, Mapping[str, LoopCore]]:
    """The graph with such loops one behind the other, up to as many as there are cores; and by name on which
    core each of them runs."""
    merged, sets = _joined(graph, cores)
    found = {
        name: LoopCore(core, names[0]) for names in sets if len(names) > 1 for core, name in enumerate(names)
    }
    if not found:
        return graph, found
    own = {graph.nodes[i].outputs: loop.name for loop in loops(graph) for i in loop.nodes}
    known = {node.outputs: node for node in graph.nodes}

    def ordered() -> Iterator[Node]:
        for unit in runs(merged):
            nodes = [known[merged.nodes[i].outputs] for i in unit]
            if any(own.get(node.outputs) in found for node in nodes):
                nodes.sort(key=lambda node: found[own[node.outputs]].core)
            yield from nodes

    return graph.replaced(nodes=tuple(ordered())), found


def _joined(graph: Graph, most: int) -> tuple[Graph, list[list[str]]]:
    """The graph with up to `most` such loops as one, and the names of those that each loop is made of."""
    names = {loop.name: [loop.name] for loop in every_loop(graph)}
    while not graph.lengths:
        pair = next((
            (one, other) for around, some in _together(graph) for one, other in combinations(some, 2)
            if len(names[one.name]) + len(names[other.name]) <= most and _alike(graph, one, other)
            and not _needs(graph, one, other, around) and not _needs(graph, other, one, around)
        ), None)
        if pair is None:
            break
        names[pair[0].name] += names.pop(pair[1].name)
        graph = contiguous(_as_one(graph, *pair))
    return graph, list(names.values())


def _alike(graph: Graph, one: Loop, other: Loop) -> bool:
    first, second = (graph.nodes[loop.nodes[0]] for loop in (one, other))
    return one.steps == other.steps and first.is_integer and second.is_integer


def _together(graph: Graph) -> Iterator[tuple[Loop | None, Sequence[Loop]]]:
    """The outermost loops, then those in the body of each."""
    yield None, loops(graph)
    yield from ((loop, loop.inner) for loop in loops(graph))


def _needs(graph: Graph, one: Loop, other: Loop, around: Loop | None) -> bool:
    """Whether a loop needs, by any way, what another one makes. A third loop on that way runs as a whole.
    `around`: the loop in whose body both are."""
    made = set(other.outputs)
    for unit in runs(graph, around):
        nodes = [graph.nodes[i] for i in unit]
        if any(not made.isdisjoint(node.inputs) for node in nodes):
            made.update(o for node in nodes for o in node.outputs)
    return not made.isdisjoint(one.inputs)


def _as_one(graph: Graph, one: Loop, other: Loop) -> Graph:
    nodes = list(graph.nodes)
    count = 1 + max((own.index for _, own, _ in borders(graph, one)), default=-1)
    for i in other.nodes:
        if side_of(nodes[i], other):
            own = border(nodes[i])[1]
            nodes[i] = replace(nodes[i], op=replace(own, loop=one.name, index=own.index + count))
    return graph.replaced(nodes=tuple(nodes))
