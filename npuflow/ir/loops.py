"""Loops: nodes of a graph that run once a step, between operators that enter and leave them.

The nodes of a body stand in the graph as all others do, with the types that they have in one step, so
that whatever works node by node (rules, placement, scales, widths) needs no second form. What belongs to a
loop follows from its borders, five operators that name it: `carry` gives a carried value at the step and
takes its initial one, `last` takes the value for the next step and gives the last one, `slice` gives the
step's part of a tensor, `stack` joins what the steps made, and `capture` gives a value of the outside that
no step changes. All nodes between an entering and a leaving border are the body. Constants need no border.

A loop may be nested in another one, once: what enters it belongs to the outer body, and so does what it gives
(see `ir/nesting.py`).

Where a body's values are seen from outside (statistics, judges, outputs), they are stacked: step by step one
behind the other along the first dimension, as a batch is. Of an inner loop these are all its steps of the
first outer step, then those of the second one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from types import MappingProxyType
from typing import Any

import numpy as np

from npuflow.ir.borders import LEAVES as LEAVES
from npuflow.ir.borders import LoopBorderOp
from npuflow.ir.borders import border as border
from npuflow.ir.graph import CountedSteps, Graph
from npuflow.ir.nesting import MAX_DEPTH, depth_faults, enclosing, membership
from npuflow.ir.nesting import inside as inside
from npuflow.ir.op import LoopBorder, Node
from npuflow.ir.order import in_order
from npuflow.ir.types import Array, TensorType

FEW = 3                                   # steps that are written out one after the other


@dataclass(frozen=True)
class Carried:
    """A value that a step hands to the next one, by value ids: before the loop, at the step, for the next
    step, and behind the loop."""

    initial: str
    now: str
    following: str
    last: str


@dataclass(frozen=True)
class Loop:
    """A loop of a graph. `nodes`: of the body and its borders, by position, those of loops in it among them.
    `inputs`: values of the outside that it reads, constants left out; `outputs`: what its borders give;
    `inner`: the loops nested in it, in the order of their first nodes."""

    name: str
    steps: int
    nodes: tuple[int, ...]
    carried: tuple[Carried, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    inner: tuple[Loop, ...] = ()

    def described(self) -> dict[str, Any]:
        """What pages and listings say of it, as JSON."""
        lasts = {one.last for one in self.carried}
        return {
            "loop": self.name, "steps": self.steps, "nodes": len(self.nodes), "carried": len(self.carried),
            "carries": [dict(vars(one)) for one in self.carried], "reads": list(self.inputs),
            "stacks": [v for v in self.outputs if v not in lasts],
            **({"inner": [one.described() for one in self.inner]} if self.inner else {}),
        }


def side_of(node: Node, loop: Loop) -> LoopBorder:
    """Which border of a loop a node is; "" for other nodes, borders of inner loops included."""
    side, own = border(node)
    return side if side and own.loop == loop.name else ""


def borders(graph: Graph, loop: Loop) -> Iterator[tuple[LoopBorder, LoopBorderOp, Node]]:
    """A loop's own borders."""
    for i in loop.nodes:
        node = graph.nodes[i]
        if side_of(node, loop):
            yield *border(node), node


def ends(graph: Graph) -> dict[str, str]:
    """The values that are 1 where a loop with a stated maximum of steps has not ended, with its name in the
    source."""
    lasts = (node for node in graph.nodes if node.op.border_of_loop == "last")
    return {node.outputs[0]: node.name for node in lasts if border(node)[1].goes_on}


def has_loops(graph: Graph) -> bool:
    return any(node.op.border_of_loop for node in graph.nodes)


class _Known:
    """The loops of the graph asked about last, and of how many steps the values of their bodies are."""

    last: tuple[Graph | None, tuple[Loop, ...], Mapping[str, int]] = (None, (), {})


def _known(graph: Graph) -> tuple[Graph | None, tuple[Loop, ...], Mapping[str, int]]:
    known = _Known.last
    if known[0] is graph:
        return known
    found, steps = _found(graph) if has_loops(graph) else ((), {})
    _Known.last = graph, found, steps
    return _Known.last


def _found(graph: Graph) -> tuple[tuple[Loop, ...], dict[str, int]]:
    names, within, outer_of = membership(graph.nodes)
    places: dict[str, list[int]] = {}
    for i, name in names.items():
        for one in enclosing(name, outer_of):
            places.setdefault(one, []).append(i)
    made: dict[str, Loop] = {}
    for name in sorted(places, key=lambda name: -len(list(enclosing(name, outer_of)))):
        inner = tuple(made[one] for one in places if outer_of.get(one) == name and one in made)
        made[name] = _loop(graph, name, places[name], inner)
    counts = {name: prod(made[one].steps for one in enclosing(name, outer_of)) for name in made}
    outermost = tuple(made[name] for name in places if name not in outer_of)
    return outermost, {value: counts[name] for value, name in within.items()}


def loops(graph: Graph) -> tuple[Loop, ...]:
    """The outermost loops of a graph, in the order of their first nodes."""
    return _known(graph)[1]


def every_loop(graph: Graph) -> Iterator[Loop]:
    """All loops of a graph, inner ones right behind their outer one."""
    for loop in loops(graph):
        yield loop
        yield from loop.inner


def units(numbers: Iterable[int], within: Sequence[Loop]) -> Iterator[int | Loop]:
    """Nodes by position, in order, and the loops `within` as a whole, each at its first node."""
    first, inner = {loop.nodes[0]: loop for loop in within}, {i for loop in within for i in loop.nodes}
    for i in numbers:
        if i in first:
            yield first[i]
        elif i not in inner:
            yield i


def _loop(graph: Graph, name: str, numbers: Sequence[int], inner: tuple[Loop, ...]) -> Loop:
    nodes = [graph.nodes[i] for i in numbers]
    own = {o for node in nodes for o in node.outputs}
    ends = [(*border(n), n) for n in nodes if border(n)[0] and border(n)[1].loop == name]
    carries = {said.index: n for side, said, n in ends if side == "carry"}
    lasts = {said.index: n for side, said, n in ends if side == "last"}
    carried = tuple(
        Carried(carry.inputs[0], carry.outputs[0], lasts[k].inputs[0], lasts[k].outputs[0])
        for k, carry in sorted(carries.items()) if k in lasts
    )
    read = dict.fromkeys(
        v for n in nodes for v in n.inputs if v and v not in own and graph.const(v) is None
    )
    given = tuple(n.outputs[0] for side, _, n in ends if side in LEAVES)
    return Loop(name, ends[0][1].steps, tuple(numbers), carried, tuple(read), given, inner)


def faults(graph: Graph) -> Iterator[str]:
    """What is wrong with the loops of a graph, in words."""
    if not has_loops(graph):
        return
    names, within, outer = membership(graph.nodes)
    yield from depth_faults(outer)
    for i, node in enumerate(graph.nodes):
        side, own = border(node)
        mine = own.loop if side in LEAVES else outer.get(own.loop, "") if side else names.get(i, "")
        for v in node.inputs:
            if within.get(v, mine) != mine:
                yield f'{node.name} reads "{v}" of the loop "{within[v]}", ' + (
                    f'and stands in "{mine}"' if mine else "which no border leads out of"
                )
            elif mine and v and v not in within and graph.const(v) is None:
                yield f'{node.name} of the loop "{mine}" reads "{v}", which no border leads into it'
    for loop in every_loop(graph):
        yield from _loop_faults(graph, loop)


def _loop_faults(graph: Graph, loop: Loop) -> Iterator[str]:
    where = f'the loop "{loop.name}"'
    ends = list(borders(graph, loop))
    for side in ("carry", "last"):
        found = sorted(own.index for kind, own, _ in ends if kind == side)
        # numbers may be left out, of values that nothing reads
        if len(set(found)) < len(found) or len(found) != len(loop.carried):
            yield f"{where} has other values that it {'carries in' if side == 'carry' else 'carries out'}"
            return
    if len({own.steps for _, own, _ in ends}) > 1 or loop.steps < 1:
        yield f"{where} has borders of several numbers of steps, or of none"
    for one in loop.carried:
        kinds = {graph.type(v) for v in (one.initial, one.now, one.following, one.last)}
        if len(kinds) > 1:
            said = (f"{'x'.join(map(str, k.shape))} {k.dtype}" for k in kinds)
            yield f'{where} carries "{one.now}" as {", ".join(sorted(said))}'


def stacked(kind: TensorType, steps: int, lacking: int = 0) -> TensorType:
    """The type of a value of a body as it is seen from outside. `lacking`: rows fewer of the last step."""
    if not kind.is_static:
        return kind
    first, rest = (kind.shape[0], kind.shape[1:]) if kind.shape else (1, ())
    return TensorType((steps * first - lacking, *rest), kind.dtype)


def seen(graph: Graph) -> Mapping[str, TensorType]:
    """The types of values of bodies as they are seen from outside."""
    return {o: stacked(graph.type(o), steps) for o, steps in steps_of(graph).items()}


def counted(graph: Graph, loop: Loop) -> CountedSteps | None:
    """How many of a loop's steps run, by an input (see `Graph.lengths`); None where all do. A loop over
    chunks says so. Another one reads a mask that this input alone decides: in the other steps it holds what
    is carried as it is."""
    ends = list(borders(graph, loop))
    if chunk := max((own.chunk for _, own, _ in ends), default=0):
        beyond = max(own.beyond for _, own, _ in ends)
        return CountedSteps(graph.lengths[0].name, False, chunk, beyond)
    back = {own.reverse for side, own, _ in ends if side in ("slice", "stack")}
    read = [node.inputs[0] for side, _, node in ends if side == "slice"]
    for length in graph.lengths if len(back) == 1 else ():
        count = length.steps_like(loop.steps)
        if count is not None and any(_decided(graph, value, length.name) for value in read):
            return CountedSteps(length.name, back.pop(), count=count)
    return None


def _decided(graph: Graph, value: str, given: str) -> bool:
    """Whether one input alone decides a value."""
    maker, found, waiting = graph.producer(), set[str](), [value]
    while waiting:
        name = waiting.pop()
        if name in graph.inputs:
            found.add(name)
        elif name in maker:
            waiting += [i for i in maker[name].inputs if i and graph.const(i) is None]
    return found == {given}


def contiguous(graph: Graph) -> Graph:
    """The graph with the nodes of each loop next to each other, in an order that runs."""
    if all(len(loop.nodes) == loop.nodes[-1] + 1 - loop.nodes[0] for loop in every_loop(graph)):
        return graph
    return graph.replaced(nodes=tuple(graph.nodes[i] for unit in runs(graph) for i in unit))


def own_beginnings(graph: Graph) -> Graph:
    """The graph with a constant of its own for each carried value that begins with one: values that read one
    constant have one type, and what a loop carries need not have that of other values."""
    readers = Counter(v for node in graph.nodes for v in node.inputs)
    values, nodes = dict(graph.values), list(graph.nodes)
    for i, node in enumerate(graph.nodes):
        held = graph.values[node.inputs[0]] if border(node)[0] == "carry" else None
        if held is None or held.const is None or readers[held.id] == 1:
            continue
        name = f"{node.outputs[0]}:initial"
        while name in values:
            name += "'"
        values[name], nodes[i] = replace(held, id=name), replace(node, inputs=(name,))
        readers[held.id] -= 1
    if len(values) == len(graph.values):
        return graph
    return graph.replaced(nodes=tuple(nodes), values=MappingProxyType(values))


def runs(graph: Graph, around: Loop | None = None) -> list[tuple[int, ...]]:
    """The nodes by position in an order that runs: single ones, and loops as a whole. `around`: the nodes of
    this loop, with those in its body as a whole."""
    ready = {*graph.inputs, *(v for v, one in graph.values.items() if one.const is not None)}
    if around is not None:
        return _in_order(graph, around.nodes, around.inner, {*ready, *around.inputs})
    return _in_order(graph, range(len(graph.nodes)), loops(graph), ready)


def _in_order(
    graph: Graph, numbers: Sequence[int], within: Sequence[Loop], ready: Collection[str]
) -> list[tuple[int, ...]]:
    """Some nodes in such an order, with the loops `within` as a whole, whose nodes are in order, too."""
    owner = {i: loop for loop in within for i in loop.nodes}
    waiting = list(dict.fromkeys(owner[i].nodes if i in owner else (i,) for i in numbers))
    order, rest = in_order(
        waiting, {"", *ready},
        lambda unit: owner[unit[0]].inputs if unit[0] in owner else graph.nodes[unit[0]].inputs,
        lambda unit: (o for i in unit for o in graph.nodes[i].outputs),
    )
    if rest:
        names = ", ".join(graph.nodes[unit[0]].name for unit in rest[:3])
        raise ValueError(f"nodes that wait for each other: {names}")
    return [_body_in_order(graph, owner[u[0]], ready) if u[0] in owner else u for u in order]


def _body_in_order(graph: Graph, loop: Loop, ready: Collection[str]) -> tuple[int, ...]:
    if not loop.inner:
        return loop.nodes
    return tuple(i for unit in _in_order(graph, loop.nodes, loop.inner, {*ready, *loop.inputs}) for i in unit)


def companions(graph: Graph, chosen: Collection[int]) -> dict[int, str]:
    """Of nodes chosen for one place those of loops that are not chosen as a whole: a loop runs in one place.
    With the name of a node that is not chosen."""
    found: dict[int, str] = {}
    for loop in loops(graph):
        missing = [i for i in loop.nodes if i not in chosen]
        if missing:
            found.update(dict.fromkeys(
                (i for i in loop.nodes if i in chosen), graph.nodes[missing[0]].name
            ))
    return found


def before(graph: Graph, at: int) -> int:
    """The last place up to `at` where the order of the nodes may be cut: none inside a loop."""
    return next((loop.nodes[0] for loop in loops(graph) if loop.nodes[0] < at <= loop.nodes[-1]), at)


def after(graph: Graph, at: int) -> int:
    """The first place from `at` on where the order of the nodes may be cut."""
    return next((loop.nodes[-1] + 1 for loop in loops(graph) if loop.nodes[0] < at <= loop.nodes[-1]), at)


def steps_of(graph: Graph) -> Mapping[str, int]:
    """The values of bodies: of how many steps each is stacked."""
    return _known(graph)[2]


def depths(graph: Graph) -> dict[str, int]:
    """The nesting depth of the values of bodies: 1 in an outer loop, 2 in an inner one."""
    inner = {o for loop in loops(graph) for one in loop.inner for i in one.nodes
             for o in graph.nodes[i].outputs if side_of(graph.nodes[i], one) not in LEAVES}
    return {value: MAX_DEPTH if value in inner else 1 for value in steps_of(graph)}


def times(graph: Graph, node: Node) -> int:
    """How often a node runs: once, or once a step."""
    steps = steps_of(graph)
    return next((steps[o] for o in node.outputs if o in steps), 1) if steps else 1


def stack(parts: Sequence[Array]) -> Array:
    """What the steps made, as it is seen from outside."""
    return np.concatenate([np.reshape(part, (1,)) if not np.ndim(part) else part for part in parts])
