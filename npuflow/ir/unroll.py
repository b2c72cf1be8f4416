"""Writes the loops of a graph out, step after step: nodes of one step under names of their own.

A plan needs only some steps of a long loop: `rolled` writes those that lead in, two rounds of two steps, and
the last one. The second round shows by how much addresses go on from round to round.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from npuflow.ir.beside import apart, beside
from npuflow.ir.borders import LEAVES
from npuflow.ir.graph import ROUND, Graph, LoopCore, prune
from npuflow.ir.inner import reading_inner
from npuflow.ir.loops import Loop, border, contiguous, has_loops, loops, side_of, steps_of, units
from npuflow.ir.macs import node_macs
from npuflow.ir.op import Node
from npuflow.ir.views import views_of
from npuflow.ir.written import LEAD, LoopWriter, StepOrder, copyable, entered
from npuflow.ir.written import step_name as step_name

MOST = 16384                              # nodes that inner loops may become in the outer body


def written_out(graph: Graph, longest: int | None = None) -> Graph:
    """The graph without loops, or without those of at most so many steps and nested ones: see
    `unnested`. Loops of the host stay in a quantised graph."""
    return _straight(graph, 0, longest=longest)[0]


def unnested(graph: Graph) -> Graph:
    """The graph without nested loops, for plans and formats that do not support them.

    An inner loop is written out in the outer body; or the outer loop is written out and keeps the inner ones
    as loops, where that makes fewer nodes. Loops of the host stay in a quantised graph."""
    if not _nested(graph):
        return graph
    graph = contiguous(graph)
    made = LoopWriter(graph, 0, (), None)
    for one in units(range(len(graph.nodes)), _nested(graph)):
        if not isinstance(one, Loop):
            made.nodes.append(graph.nodes[one])
        elif _fits(one):
            _without_inner(graph, one, made)
        else:
            made.loop(one)
    return prune(graph.replaced(
        nodes=tuple(made.nodes), values=MappingProxyType(made.values), consts=MappingProxyType(made.consts),
    ))


def _nested(graph: Graph) -> list[Loop]:
    """The loops with inner loops; of a quantised graph those on the NPU."""
    found = [loop for loop in loops(graph) if loop.inner]
    integer = bool(found) and any(node.is_integer for node in graph.nodes)
    return [loop for loop in found if not integer or graph.nodes[loop.nodes[0]].is_integer]


def _fits(loop: Loop) -> bool:
    """Whether inner loops are written out in the outer body."""
    written = sum(one.steps * len(one.nodes) for one in loop.inner)
    return written <= min(MOST, loop.steps * len(loop.nodes))


def _without_inner(graph: Graph, loop: Loop, made: LoopWriter) -> None:
    made.outer = loop
    for one in units(loop.nodes, loop.inner):
        if isinstance(one, Loop):
            made.loop(one)
        else:
            made.nodes.append(graph.nodes[one])
    made.outer = None


def rolled(graph: Graph, pairs: bool = False, cores: int = 1) -> Graph:
    """The graph with as many steps of its loops as a plan looks at: see `Graph.rolls`. Loops of few steps are
    written out, and so is one of two nested ones. What steps put into a tensor of all steps, and lies
    elsewhere, they copy into its place.
    `pairs`: of loops that may run beside each other, as one: see `beside`. `cores`: such loops each run on a
    core of its own, of so many: see `apart`."""
    graph = unnested(graph)
    graph = beside(graph) if pairs else graph
    graph, own = apart(graph, cores) if cores > 1 else (graph, {})
    found = _planned(graph, (), own)
    copied = frozenset(_elsewhere(graph, found)) if found.rolls else frozenset[str]()
    return _planned(graph, copied, own) if copied else found


def _elsewhere(graph: Graph, made: Graph) -> Iterator[str]:
    """Tensors of all steps whose parts lie in other tensors where the steps make them, or are made by the
    steps before."""
    maker = graph.producer()
    moving = {
        n: moves for n, node in enumerate(made.nodes) if node.is_integer
        for moves in [node.op.moves(made.site(node))] if moves is not None
    }
    views = views_of(made, list(enumerate(made.nodes)), moving)
    ends = {n.outputs[0]: n.inputs[0] for n in graph.nodes if border(n)[0] == "stack"}
    for number in (n for roll in made.rolls for n in roll.movers):
        whole, moves = made.nodes[number].outputs[0], moving.get(number, ())
        value = ends.get(whole)
        if value is None or not copyable(graph.values[value]):
            continue
        if entered(graph, maker, value) or any((number, m) not in views.saved for m in range(len(moves))):
            yield whole


def has_copies(graph: Graph) -> bool:
    """Whether steps of a graph copy what they made."""
    inner = {n for roll in graph.rolls for step in roll.steps for n in step}
    return any(graph.nodes[n].op.copies(graph.site(graph.nodes[n])) for n in inner)


def _planned(graph: Graph, copied: Collection[str], cores: Mapping[str, LoopCore]) -> Graph:
    """Some steps stand for all: see `Graph.rolls`. `copied`: tensors of all steps into which steps copy;
    `cores`: of loops, by name, that each run on one."""
    whole, made = _straight(graph, LEAD, copied, by_products)
    if not made.rolls:
        return whole
    within = {n.outputs for _, steps in made.rolls for step in steps for n in step}
    whole = reading_inner(whole, within, made.cuts)
    if cores:
        inner = {n.outputs: cores[roll.loop].together for roll, steps in made.rolls if roll.loop in cores
                 for step in steps for n in step}
        whole = whole.replaced(nodes=tuple(_without_others_between(whole, inner)))
    place = {n.outputs: i for i, n in enumerate(whole.nodes)}
    return whole.replaced(rolls=tuple(
        replace(
            roll,
            steps=tuple(tuple(place[n.outputs] for n in nodes if n.outputs in place) for nodes in steps),
            movers=tuple(place[n.outputs] for n in made.movers.get(roll.loop, ()) if n.outputs in place),
            core=cores.get(roll.loop),
        )
        for roll, steps in made.rolls
    ))


def _without_others_between(graph: Graph, inner: Mapping[tuple[str, ...], str]) -> Iterator[Node]:
    """The nodes in an order in which the steps of loops that run at the same time have no others between
    them. `inner`: what such loops share, by the results of the nodes of their steps."""
    rest = list(graph.nodes)
    for name in dict.fromkeys(inner.values()):
        places = [i for i, node in enumerate(rest) if inner.get(node.outputs) == name]
        first, last = places[0], places[-1] + 1
        steps, behind, made = list[Node](), list[Node](), set[str]()
        yield from rest[:first]
        for node in rest[first:last]:
            mine = inner.get(node.outputs) == name
            if mine:
                steps.append(node)
            elif made.isdisjoint(node.inputs):
                yield node
                continue
            else:
                behind.append(node)
            made.update(node.outputs)
        yield from steps
        rest = [*behind, *rest[last:]]
    yield from rest


def _straight(
    graph: Graph, lead: int, copied: Collection[str] = (), order: StepOrder | None = None,
    longest: int | None = None,
) -> tuple[Graph, LoopWriter]:
    """The graph without loops, and what was written. What only plans need is given to it: else the keys of
    whoever writes loops out would hold it, too. `longest`: loops of more steps stay."""
    graph = unnested(graph)
    made = LoopWriter(graph, lead, copied, order)
    if not has_loops(graph):
        return graph, made
    integer = any(node.is_integer for node in graph.nodes)
    first = {
        loop.nodes[0]: loop for loop in loops(graph)
        if (longest is None or loop.steps <= longest) and (
            (not integer and not lead) or graph.nodes[loop.nodes[0]].is_integer
        )
    }
    inner = {i for loop in first.values() for i in loop.nodes}
    for i, node in enumerate(graph.nodes):
        if i in first:
            made.loop(first[i])
        elif i not in inner:
            made.nodes.append(node)
    whole = graph.replaced(
        nodes=tuple(made.nodes), values=MappingProxyType(made.values), consts=MappingProxyType(made.consts),
        rolls=(), chunks=MappingProxyType({}),
    )
    return prune(whole), made


def by_products(graph: Graph, nodes: Sequence[Node]) -> list[Node]:
    """The nodes of a step, those first that need fewer of its products: the vector unit goes on with what the
    first ones made while the array multiplies the next."""
    behind: dict[str, int] = {}           # how many of the products up to the last one that a value needs
    order: list[tuple[int, int]] = []
    products = 0
    for k, node in enumerate(nodes):
        last = max((behind.get(v, 0) for v in node.inputs), default=0)
        if node_macs(graph, node):
            last = products = products + 1
        behind.update(dict.fromkeys(node.outputs, last))
        order.append((last, k))
    return [nodes[k] for _, k in sorted(order)]


def step_times(graph: Graph) -> dict[int, float]:
    """How often nodes of loops run, by position: those of both rounds share all rounds."""
    return {
        n: roll.rounds / ROUND for roll in graph.rolls for nodes in roll.steps[roll.lead : -1] for n in nodes
    }


def values_of_steps(graph: Graph) -> dict[str, str]:
    """By the name that a value of a loop's body has in a step which is written out, that value."""
    flat, first = unnested(graph), _unnested_names(graph)
    found = {step_name(flat, v, k): v for v, steps in steps_of(flat).items() for k in range(steps)}
    return {**first, **{name: first.get(v, v) for name, v in found.items()}}


def _unnested_names(graph: Graph) -> dict[str, str]:
    """The same of steps that `unnested` writes out."""
    found: dict[str, str] = {}
    for loop in _nested(graph):
        for one in loop.inner if _fits(loop) else (loop,):
            for node in (graph.nodes[i] for i in one.nodes):
                for v in node.outputs if side_of(node, one) not in LEAVES else ():
                    found.update((step_name(graph, v, k), v) for k in range(one.steps))
    return found
