"""Writes the loops of a graph out, step after step: nodes of one step under names of their own.

A plan needs only some steps of a long loop: `rolled` writes those that lead in, two rounds of two steps, and
the last one. The second round shows by how much addresses go on from round to round.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from npuflow.ir.borders import ENTERS, is_cut
from npuflow.ir.chunk import chunk_type, on_chunk
from npuflow.ir.graph import ROUND, Graph, Roll, prune
from npuflow.ir.inner import reading_inner
from npuflow.ir.loops import Carried, Loop, beside, border, counted, has_loops, loops, steps_of
from npuflow.ir.macs import node_macs
from npuflow.ir.op import OPS, Node, Op
from npuflow.ir.types import Array, QuantType, TensorType, Value
from npuflow.ir.views import contiguous, views_of

StepOrder = Callable[[Graph, Sequence[Node]], list[Node]]
LEAD = 3                                  # steps before the rounds, at least: then all differences are gone
CHUNK_LEAD = 1                            # of a loop over chunks, which hand nothing on


def written_out(graph: Graph, longest: int | None = None) -> Graph:
    """The graph without loops, or without those of at most so many steps. Loops of the host stay in a
    quantised graph."""
    return _straight(graph, 0, longest=longest)[0]


def rolled(graph: Graph, pairs: bool = False) -> Graph:
    """The graph with as many steps of its loops as a plan looks at: see `Graph.rolls`. Loops of few steps are
    written out. What steps put into a tensor of all steps, and lies elsewhere, they copy into its place.
    `pairs`: of loops that may run beside each other, as one: see `beside`."""
    graph = beside(graph) if pairs else graph
    found = _planned(graph)
    copied = frozenset(_elsewhere(graph, found)) if found.rolls else frozenset[str]()
    return _planned(graph, copied) if copied else found


def _as_entered(graph: Graph, loop: Loop) -> Iterator[Carried]:
    """Carried values that a step hands on as they, or others, have entered it, or as a view of that: a part
    of a tensor, what the step before made. A plan with some steps only has them as values of the step
    itself."""
    entered = {graph.nodes[i].outputs[0] for i in loop.nodes if border(graph.nodes[i])[0] in ENTERS}
    for i in loop.nodes:
        node = graph.nodes[i]
        if not border(node)[0] and node.inputs[0] in entered and _is_view(graph, node):
            entered.add(node.outputs[0])
    yield from (one for one in loop.carried if one.following in entered)


def _is_view(graph: Graph, node: Node) -> bool:
    """Whether a node gives bytes of its operand as they lie."""
    moves = node.op.moves(graph.site(node)) if node.is_integer else None
    return moves is not None and len(moves) == len(node.inputs) == 1 and contiguous(moves[0])


def _to_copy(graph: Graph, loop: Loop) -> Iterator[str]:
    """What a step has to copy, as it lies elsewhere where it is made: what is handed on, or stacked, as it
    has entered the step."""
    yield from (one.following for one in _as_entered(graph, loop))
    maker = graph.producer()
    rows = (graph.nodes[i].inputs[0] for i in loop.nodes if border(graph.nodes[i])[0] == "stack")
    yield from (value for value in rows if value in maker and _entered(graph, maker, value))


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
        if _entered(graph, maker, value) or any((number, m) not in views.saved for m in range(len(moves))):
            yield whole


def _entered(graph: Graph, maker: Mapping[str, Node], value: str) -> bool:
    """Whether what enters a step is a value of it, or moves alone make one of the other."""
    node = maker[value]
    if border(node)[0]:
        return True
    if not node.is_integer or node.op.moves(graph.site(node)) is None:
        return False
    return any(_entered(graph, maker, v) for v in node.inputs if v in maker)


def has_copies(graph: Graph) -> bool:
    """Whether steps of a graph copy what they made."""
    inner = {n for roll in graph.rolls for step in roll.steps for n in step}
    return any(graph.nodes[n].op.copies(graph.site(graph.nodes[n])) for n in inner)


def copyable(value: Value) -> bool:
    """Whether the vector unit copies a value, code by code."""
    return type(value.quant) is QuantType and value.const is None and len(value.type.shape) <= 4


def _planned(graph: Graph, copied: Collection[str] = ()) -> Graph:
    """Some steps stand for all: see `Graph.rolls`. `copied`: tensors of all steps into which steps copy."""
    whole, made = _straight(graph, LEAD, copied, by_products)
    if not made.rolls:
        return whole
    within = {n.outputs for _, steps in made.rolls for step in steps for n in step}
    whole = reading_inner(whole, within, made.cuts)
    place = {n.outputs: i for i, n in enumerate(whole.nodes)}
    return whole.replaced(rolls=tuple(
        replace(
            roll,
            steps=tuple(tuple(place[n.outputs] for n in nodes if n.outputs in place) for nodes in steps),
            movers=tuple(place[n.outputs] for n in made.movers.get(roll.loop, ()) if n.outputs in place),
        )
        for roll, steps in made.rolls
    ))


def _straight(
    graph: Graph, lead: int, copied: Collection[str] = (), order: StepOrder | None = None,
    longest: int | None = None,
) -> tuple[Graph, _Straight]:
    """The graph without loops, and what was written. What only plans need is given to it: else the keys of
    whoever writes loops out would hold it, too. `longest`: loops of more steps stay."""
    made = _Straight(graph, lead, copied, order)
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


def _lead(nodes: Sequence[Node]) -> int:
    """Steps of a loop before the rounds, at least."""
    chunks = [border(n)[1].halo for n in nodes if border(n)[0] and border(n)[1].chunk]
    # the first chunk may have a border of its own
    return CHUNK_LEAD + any(any(halo) for halo in chunks) if chunks else LEAD


def chosen_steps(steps: int, lead: int) -> tuple[tuple[int, ...], int]:
    """Of a loop's steps those that are written out, and how often the round among them runs; 0: all are."""
    if lead:
        lead += (steps - lead - 1) % ROUND
        rounds = (steps - lead - 1) // ROUND
        if rounds > ROUND:
            return (*range(lead + 2 * ROUND), steps - 1), rounds
    return tuple(range(steps)), 0


@dataclass
class _Straight:
    """The graph that comes of it, as far as it is written."""

    source: Graph
    lead: int
    copied: Collection[str]               # tensors of all steps into which steps copy
    order: StepOrder | None               # of the nodes of a step in a plan
    nodes: list[Node] = field(default_factory=list)
    values: dict[str, Value] = field(default_factory=dict)
    consts: dict[str, Array] = field(default_factory=dict)
    rolls: list[tuple[Roll, list[list[Node]]]] = field(default_factory=list)
    movers: dict[str, list[Node]] = field(default_factory=dict)      # by loop
    cuts: set[str] = field(default_factory=set)           # parts that are cut out where they are read
    begun: int = 0                        # of the nodes those that move constants, the first ones

    def __post_init__(self) -> None:
        self.values.update(self.source.values)
        self.consts.update(self.source.consts)

    def loop(self, loop: Loop) -> None:
        nodes = [self.source.nodes[i] for i in loop.nodes]
        steps, rounds = chosen_steps(loop.steps, min(self.lead, _lead(nodes)))
        if any(not copyable(self.values[value]) for value in _to_copy(self.source, loop)):
            steps, rounds = chosen_steps(loop.steps, 0)
        nodes = self.order(self.source, nodes) if rounds and self.order is not None else nodes
        entering = [n for n in nodes if border(n)[0] == "slice" and not is_cut(n)]
        parts = {n.outputs[0]: self.parts(n, loop, steps) for n in entering}
        held = {one.now: self.stored(one.initial, one.now, nodes[0]) for one in loop.carried}
        given = {one.now: self.stored(one.following, one.last, nodes[0]) for one in loop.carried}
        again = {one.following for one in _as_entered(self.source, loop)} if rounds else set[str]()
        ends = {v: name for v, name in self.ends(loop, nodes).items() if v not in again}
        rows: dict[str, list[str]] = {n.outputs[0]: [] for n in nodes if border(n)[0] == "stack"}
        written: list[list[Node]] = []
        made: list[dict[str, str]] = []
        for k, step in enumerate(steps):
            names, begin = dict(held), len(self.nodes)
            names.update((part, found[k]) for part, found in parts.items())
            for node in nodes:
                side = border(node)[0]
                if side == "capture":
                    names[node.outputs[0]] = node.inputs[0]
                elif is_cut(node):
                    names[node.outputs[0]] = self.cut(node, step)
                elif not side:
                    self.body(node, step, names, ends if step == loop.steps - 1 else {})
            found = (o for n in nodes if not border(n)[0] or is_cut(n) for o in n.outputs if o)
            made.append({o: names[o] for o in found})
            for node in nodes:
                if border(node)[0] == "stack":
                    (value,), (whole,) = node.inputs, node.outputs
                    row = names.get(value, value)
                    if whole in self.copied:
                        row = made[-1][whole] = self.copy(node, row, whole, step)
                    rows[whole].append(row)
            held = {one.now: names.get(one.following, given[one.now]) for one in loop.carried}
            for one in _as_entered(self.source, loop) if rounds else ():
                made[-1][one.last] = held[one.now] = self.copy(nodes[0], held[one.now], one.last, step)
            written.append(self.nodes[begin:])
        if rounds:
            lead, last = len(steps) - 2 * ROUND - 1, loop.steps - 1 - ROUND
            later = {
                name: self.named(value, last + k)
                for k in range(2 * ROUND) for value, name in made[lead + k].items()
            }
            own = counted(self.source, loop)
            self.rolls.append((Roll(loop.name, (), steps, rounds, later=later, counted=own), written))
        for one in loop.carried:
            if held[one.now] != one.last:
                self.same(held[one.now], one.last)
        for node in nodes:
            if border(node)[0] == "stack":
                self.stack(node, rows[node.outputs[0]], steps)

    def stored(self, value: str, name: str, node: Node) -> str:
        """A value that nodes may read as an activation: a constant is moved to where these are, before all
        else, so that no load waits for it behind what comes before the loop."""
        if self.source.const(value) is None:
            return value
        made = self.named(name, "initial")
        self.values[made] = replace(self.values[value], id=made, const=None)
        self.nodes.insert(self.begun, self.like(node, OPS["concat"](axis=0), (value,), (made,)))
        self.begun += 1
        return made

    def copy(self, node: Node, value: str, name: str, step: int) -> str:
        """A value's codes, one by one, as what a step makes: its part of what all steps make lies there."""
        quant, made = self.values[value].quant, self.named(name, step)
        assert isinstance(quant, QuantType)
        params = (("hi", quant.hi), ("lo", quant.lo), ("multiplier", 1), ("shift", 0))
        self.values[made] = replace(self.values[value], id=made)
        self.nodes.append(Node(OPS["requantize"](), (value,), (made,), node.origin, params))
        return made

    def ends(self, loop: Loop, nodes: list[Node]) -> dict[str, str]:
        """Names that values of the last step have outside."""
        made = {o for n in nodes if not n.op.border_of_loop for o in n.outputs}
        found: dict[str, str] = {}
        for one in loop.carried:
            if one.following in made and one.following not in found:
                found[one.following] = one.last
        return found

    def parts(self, node: Node, loop: Loop, steps: Sequence[int]) -> list[str]:
        """What the steps have of a tensor, in their order."""
        part, back, axis = node.outputs[0], border(node)[1].reverse, border(node)[1].axis
        source = self.stored(node.inputs[0], part, node)
        names = [self.named(part, step) for step in steps]
        places = [loop.steps - 1 - step if back else step for step in steps]
        if loop.steps == 1:
            self.same(source, names[0])
            return names
        for name, step in zip(names, steps, strict=True):
            self.values[name] = replace(self.values[part], id=name, type=self.type(part, step))
        rows, own = self.values[part].type.shape[axis], self.source.chunks.get(part)
        if len(steps) == loop.steps and (own is None or own.apart):
            op = OPS["split"](sizes=(rows,) * loop.steps, axis=axis)
            self.nodes.append(self.like(node, op, (source,), tuple(names[::-1] if back else names)))
            return names
        for name, step, place in zip(names, steps, places, strict=True):
            first, last = own.span(step) if own is not None else (place * rows, (place + 1) * rows)
            ends = {"starts": (first,), "ends": (last,)}
            self.moving(node, OPS["slice"](**ends, axes=(axis,), steps=(1,)), (source,), (name,))
        return names

    def type(self, value: str, step: int) -> TensorType:
        """Of what a body makes, or reads, in one step."""
        return chunk_type(self.source.values[value], self.source.chunks, step)

    def cut(self, node: Node, step: int) -> str:
        """A chunk along another dimension than the first, or with parts around it: all there are."""
        (part,), (source,) = node.outputs, node.inputs
        own, name = self.source.chunks[part], self.named(part, step)
        first, last = own.span(step)
        self.cuts.add(name)
        self.values[name] = replace(self.values[part], id=name, type=self.type(part, step))
        op = OPS["slice"](starts=(first,), ends=(last,), axes=(own.axis,), steps=(1,))
        self.nodes.append(self.like(node, op, (source,), (name,)))
        return name

    def body(self, node: Node, step: int, names: dict[str, str], ends: Mapping[str, str]) -> None:
        """A node of one step."""
        inputs = tuple(names.get(i, i) for i in node.inputs)
        for o in filter(None, node.outputs):
            names[o] = ends.get(o) or self.named(o, step)
            self.values[names[o]] = replace(self.values[o], id=names[o], type=self.type(o, step))
        outputs = tuple(names.get(o, o) for o in node.outputs)
        chunks = self.source.chunks
        own = on_chunk(self.source.site(node), chunks, step) if chunks else node
        self.nodes.append(replace(own, inputs=inputs, outputs=outputs))

    def stack(self, node: Node, rows: list[str], steps: Sequence[int]) -> None:
        own, (out,) = border(node)[1], node.outputs
        if own.steps == 1:
            self.same(rows[0], out)
        elif len(steps) == own.steps:
            ordered = rows[::-1] if own.reverse else rows
            self.nodes.append(self.like(node, OPS["concat"](axis=0), tuple(ordered), node.outputs))
        else:
            places = tuple(own.steps - 1 - step if own.reverse else step for step in steps)
            op = OPS["looprows"](parts=places, steps=own.steps, lacking=own.lacking)
            self.moving(node, op, tuple(rows), node.outputs)

    def moving(self, node: Node, op: Op, inputs: tuple[str, ...], outputs: tuple[str, ...]) -> None:
        made = self.like(node, op, inputs, outputs)
        self.nodes.append(made)
        self.movers.setdefault(border(node)[1].loop, []).append(made)

    def same(self, source: str, result: str) -> None:
        """A value under another name; a constant is moved to where activations are."""
        known = self.values[source]
        self.values[result] = replace(known, id=result, const=None)
        moved = known.const is not None and known.type.shape
        op = OPS["concat"](axis=0) if moved else OPS["reshape"](known.type.shape)
        self.nodes.append(Node(op, (source,), (result,), params=() if self.coded(result) else None))

    def like(self, node: Node, op: Op, inputs: tuple[str, ...], outputs: tuple[str, ...]) -> Node:
        return Node(op, inputs, outputs, node.origin, node.params)

    def coded(self, value: str) -> bool:
        return self.values[value].quant is not None

    def named(self, value: str, step: int | str) -> str:
        return step_name(self.source, value, step)


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
    return {step_name(graph, v, k): v for v, steps in steps_of(graph).items() for k in range(steps)}


def step_name(graph: Graph, value: str, step: int | str) -> str:
    """The name that a value of a loop's body has in one step, where the loop is written out."""
    name = f"{value}@{step}"
    while name in graph.values:
        name += "'"
    return name
