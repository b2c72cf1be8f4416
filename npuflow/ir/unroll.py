"""Writes the loops of a graph out, step after step: nodes of one step under names of their own.

A plan needs only some steps of a long loop: `rolled` writes those that lead in, two rounds of two steps, and
the last one. The second round shows by how much addresses go on from round to round. Of nested loops it
writes some steps of both, where that is asked for.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

from npuflow.ir.beside import apart, beside
from npuflow.ir.borders import LEAVES
from npuflow.ir.graph import ROUND, Graph, LoopCore, Roll, prune
from npuflow.ir.inner import reading_inner
from npuflow.ir.loops import Loop, border, contiguous, has_loops, loops, side_of, steps_of, units
from npuflow.ir.macs import node_macs
from npuflow.ir.nesting import MAX_DEPTH
from npuflow.ir.op import Node
from npuflow.ir.views import views_of
from npuflow.ir.written import LEAD, LoopWriter, StepOrder, chosen_steps, copyable, entered
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


def rolled(graph: Graph, pairs: bool = False, cores: int = 1, nested: bool = False) -> Graph:
    """The graph with as many steps of its loops as a plan looks at: see `Graph.rolls`. Loops of few steps are
    written out, and so is one of two nested ones. What steps put into a tensor of all steps, and lies
    elsewhere, they copy into its place.
    `pairs`: of loops that may run beside each other, as one: see `beside`. `cores`: such loops each run on a
    core of its own, of so many: see `apart`. `nested`: of nested loops some steps of both, where `may_nest`.
    """
    found = _nested_steps(beside(graph) if pairs else graph) if nested and may_nest(graph) else None
    if found is not None:
        return found
    graph = unnested(graph)
    graph = beside(graph) if pairs else graph
    graph, own = apart(graph, cores) if cores > 1 else (graph, {})
    found = _planned(graph, cores=own)
    copied = frozenset(_elsewhere(graph, found, found.rolls)) if found.rolls else frozenset[str]()
    return _planned(graph, copied, cores=own) if copied else found


def may_nest(graph: Graph) -> bool:
    """Whether a plan may have some steps of an outer loop, and of one that is nested in it. Not where an
    input says how many steps there are."""
    return not graph.lengths and any(map(_repeats, _nested(graph)))


def _repeats(loop: Loop) -> bool:
    """Whether an outer loop and an inner one are long enough for rounds."""
    return all(any(chosen_steps(one.steps, LEAD)[1] for one in some) for some in ((loop,), loop.inner))


@dataclass(frozen=True)
class _InnerSteps:
    """Some steps of an inner loop in the body of an outer one, and the nodes that cut tensors into steps and
    join them."""

    roll: Roll
    steps: Sequence[Sequence[Node]]
    movers: Sequence[Node]


def _nested_steps(graph: Graph) -> Graph | None:
    """Some steps of inner loops in some steps of outer ones; None where an outer loop has no rounds, as where
    it would copy what cannot be copied."""
    copied = frozenset[str]()
    for _ in range(MAX_DEPTH + 1):
        flat, inner = _some_inner_steps(graph, copied)
        found = _planned(flat, copied, inner)
        if not any(roll.outer for roll in found.rolls):
            return None
        inside, outside = ([r for r in found.rolls if bool(r.outer) == is_in] for is_in in (True, False))
        more = copied | {*_elsewhere(graph, found, inside), *_elsewhere(flat, found, outside)}
        if more == copied:
            break
        copied = more
    return found


def _some_inner_steps(graph: Graph, copied: Collection[str]) -> tuple[Graph, list[_InnerSteps]]:
    """The graph with some steps of inner loops in the bodies of outer ones, which stay. Where no rounds are
    possible it is as without nested loops."""
    graph = contiguous(graph)
    made, inner = LoopWriter(graph, 0, copied, None), list[_InnerSteps]()
    for one in units(range(len(graph.nodes)), _nested(graph)):
        if not isinstance(one, Loop):
            made.nodes.append(graph.nodes[one])
            continue
        made.lead, made.order = (LEAD, by_products) if _repeats(one) else (0, None)
        if not made.lead and not _fits(one):
            made.loop(one)
            continue
        _without_inner(graph, one, made)
        inner += (
            _InnerSteps(replace(roll, outer=one.name), steps, made.movers.get(roll.loop, ()))
            for roll, steps in made.rolls
        )
        made.rolls.clear()
    return prune(graph.replaced(
        nodes=tuple(made.nodes), values=MappingProxyType(made.values), consts=MappingProxyType(made.consts),
    )), inner


def _elsewhere(graph: Graph, made: Graph, rolls: Sequence[Roll]) -> Iterator[str]:
    """Tensors of all steps whose parts lie in other tensors where the steps make them, or are made by the
    steps before."""
    maker = graph.producer()
    moving = {
        n: moves for n, node in enumerate(made.nodes) if node.is_integer
        for moves in [node.op.moves(made.site(node))] if moves is not None
    }
    views = views_of(made, list(enumerate(made.nodes)), moving)
    ends = {n.outputs[0]: n.inputs[0] for n in graph.nodes if border(n)[0] == "stack"}
    for loop, number in ((roll, n) for roll in rolls for n in roll.movers):
        whole, moves = made.nodes[number].outputs[0], moving.get(number, ())
        if loop.outer:                    # a tensor of all inner steps of one outer step
            whole = whole.rstrip("'").rpartition("@")[0]
        value = ends.get(whole)
        if value is None or not copyable(graph.values[value]):
            continue
        if entered(graph, maker, value) or any((number, m) not in views.saved for m in range(len(moves))):
            yield whole


def has_copies(graph: Graph) -> bool:
    """Whether steps of a graph copy what they made."""
    inner = {n for roll in graph.rolls for step in roll.steps for n in step}
    return any(graph.nodes[n].op.copies(graph.site(graph.nodes[n])) for n in inner)


def _planned(
    graph: Graph, copied: Collection[str] = (), inner: Sequence[_InnerSteps] = (),
    cores: Mapping[str, LoopCore] = MappingProxyType({}),
) -> Graph:
    """Some steps stand for all: see `Graph.rolls`. `copied`: tensors of all steps into which steps copy;
    `inner`: steps of inner loops in the bodies of others; `cores`: of loops, by name, that each run on
    one."""
    whole, made = _straight(graph, LEAD, copied, _in_units(inner) if inner else by_products)
    if not made.rolls:
        return whole
    rolls = [
        (_with_later(made, roll, inner), steps, made.movers.get(roll.loop, [])) for roll, steps in made.rolls
    ]
    rolls += _in_steps(made, inner)
    within = {n.outputs for _, steps in made.rolls for step in steps for n in step}
    within -= {n.outputs for roll, _, movers in rolls if roll.outer for n in movers}
    whole = reading_inner(whole, within, made.cuts)
    if cores:
        shared = {n.outputs: cores[roll.loop].together for roll, steps in made.rolls if roll.loop in cores
                 for step in steps for n in step}
        whole = whole.replaced(nodes=tuple(_without_others_between(whole, shared)))
    place = {n.outputs: i for i, n in enumerate(whole.nodes)}
    return whole.replaced(rolls=tuple(
        replace(
            roll,
            steps=tuple(tuple(place[n.outputs] for n in nodes if n.outputs in place) for nodes in steps),
            movers=tuple(place[n.outputs] for n in movers if n.outputs in place),
            core=cores.get(roll.loop),
        )
        for roll, steps, movers in rolls
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


def _in_steps(
    made: LoopWriter, inner: Sequence[_InnerSteps]
) -> Iterator[tuple[Roll, list[list[Node]], list[Node]]]:
    """The steps of inner loops in each written step of their outer loops, under their names there."""
    outer = {roll.loop: roll for roll, _ in made.rolls}

    def named(nodes: Sequence[Node], names: Mapping[str, str]) -> list[Node]:
        return [replace(n, outputs=tuple(names.get(o, o) for o in n.outputs)) for n in nodes]

    for one in (one for one in inner if one.roll.outer in outer):
        for number, names in zip(outer[one.roll.outer].numbers, made.names[one.roll.outer], strict=True):
            later = {names[v]: made.named(w, number) for v, w in one.roll.later.items() if v in names}
            roll = replace(one.roll, loop=f"{one.roll.loop}@{number}", later=later)
            yield roll, [named(step, names) for step in one.steps], named(one.movers, names)


def _with_later(made: LoopWriter, roll: Roll, inner: Sequence[_InnerSteps]) -> Roll:
    """The steps of a loop with what values of inner loops' last rounds are called in its own last ones."""
    own = {w for one in inner if one.roll.outer == roll.loop for w in one.roll.later.values()}
    lead, last = len(roll.numbers) - 2 * ROUND - 1, roll.numbers[-1] - ROUND
    return replace(roll, later={**roll.later, **{
        made.named(w, roll.numbers[lead + k]): made.named(w, last + k) for k in range(2 * ROUND) for w in own
    }}) if own else roll


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
    return [node for unit in _by_products(graph, [[node] for node in nodes]) for node in unit]


def _by_products(graph: Graph, units: Sequence[Sequence[Node]]) -> list[Sequence[Node]]:
    """The same of units of nodes."""
    behind: dict[str, int] = {}           # how many of the products up to the last one that a value needs
    order: list[tuple[int, int]] = []
    products = 0
    for k, unit in enumerate(units):
        last = max((behind.get(v, 0) for node in unit for v in node.inputs), default=0)
        if own := sum(node_macs(graph, node) > 0 for node in unit):
            last = products = products + own
        behind.update(dict.fromkeys((o for node in unit for o in node.outputs), last))
        order.append((last, k))
    return [units[k] for _, k in sorted(order)]


def _in_units(inner: Sequence[_InnerSteps]) -> StepOrder:
    """The same order, but the steps of an inner loop stay together, and what cuts and joins their tensors."""
    owner = {o: one.roll.loop for one in inner for nodes in (*one.steps, one.movers)
             for n in nodes for o in n.outputs}

    def order(graph: Graph, nodes: Sequence[Node]) -> list[Node]:
        units: list[list[Node]] = []
        before = ""
        for node in sorted(nodes, key=lambda node: border(node)[0] != "capture"):
            name = owner.get(node.outputs[0], "")
            if name and name == before:
                units[-1].append(node)
            else:
                units.append([node])
            before = name
        return [node for unit in _by_products(graph, units) for node in unit]

    return order


def step_times(graph: Graph) -> dict[int, float]:
    """How often nodes of loops run, by position: those of both rounds share all rounds."""
    found: dict[int, float] = {}
    for roll in graph.rolls:
        for n in (n for nodes in roll.steps[roll.lead : -1] for n in nodes):
            found[n] = found.get(n, 1.0) * (roll.rounds / ROUND)
    return found


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
