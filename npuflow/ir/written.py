"""Writes a loop out: all of its steps, or those that a plan looks at, under names of their own."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from npuflow.ir.borders import ENTERS, is_cut
from npuflow.ir.chunk import chunk_type, on_chunk
from npuflow.ir.graph import ROUND, Graph, Roll
from npuflow.ir.loops import Carried, Loop, border, counted, side_of
from npuflow.ir.op import OPS, Node, Op
from npuflow.ir.types import Array, QuantType, TensorType, Value
from npuflow.ir.views import contiguous

StepOrder = Callable[[Graph, Sequence[Node]], list[Node]]
LEAD = 3                                  # steps before the rounds, at least: then all differences are gone
CHUNK_LEAD = 1                            # of a loop over chunks, which hand nothing on


def as_entered(graph: Graph, loop: Loop) -> Iterator[Carried]:
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


def to_copy(graph: Graph, loop: Loop) -> Iterator[str]:
    """What a step has to copy, as it lies elsewhere where it is made: what is handed on, or stacked, as it
    has entered the step."""
    yield from (one.following for one in as_entered(graph, loop))
    maker = graph.producer()
    rows = (graph.nodes[i].inputs[0] for i in loop.nodes if border(graph.nodes[i])[0] == "stack")
    yield from (value for value in rows if value in maker and entered(graph, maker, value))


def entered(graph: Graph, maker: Mapping[str, Node], value: str) -> bool:
    """Whether what enters a step is a value of it, or moves alone make one of the other."""
    node = maker[value]
    if border(node)[0]:
        return True
    if not node.is_integer or node.op.moves(graph.site(node)) is None:
        return False
    return any(entered(graph, maker, v) for v in node.inputs if v in maker)


def copyable(value: Value) -> bool:
    """Whether the vector unit copies a value, code by code."""
    return type(value.quant) is QuantType and value.const is None and len(value.type.shape) <= 4


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
class LoopWriter:
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
    moved: dict[str, str] = field(default_factory=dict)    # constants where activations are
    names: dict[str, list[dict[str, str]]] = field(default_factory=dict)   # by loop those of values, by step
    outer: Loop | None = None            # the loop in whose body another one is written out

    def __post_init__(self) -> None:
        self.values.update(self.source.values)
        self.consts.update(self.source.consts)

    def loop(self, loop: Loop) -> None:
        nodes = [self.source.nodes[i] for i in loop.nodes]
        steps, rounds = chosen_steps(loop.steps, min(self.lead, _lead(nodes)))
        if any(not copyable(self.values[value]) for value in to_copy(self.source, loop)):
            steps, rounds = chosen_steps(loop.steps, 0)
        nodes = self.order(self.source, nodes) if rounds and self.order is not None else nodes
        entering = [n for n in nodes if side_of(n, loop) == "slice" and not is_cut(n)]
        parts = {n.outputs[0]: self.parts(n, loop, steps) for n in entering}
        held = {one.now: self.stored(one.initial, one.now, nodes[0]) for one in loop.carried}
        given = {one.now: self.stored(one.following, one.last, nodes[0]) for one in loop.carried}
        again = {one.following for one in as_entered(self.source, loop)} if rounds else set[str]()
        ends = {v: name for v, name in self.ends(loop, nodes).items() if v not in again}
        rows: dict[str, list[str]] = {n.outputs[0]: [] for n in nodes if side_of(n, loop) == "stack"}
        written: list[list[Node]] = []
        made: list[dict[str, str]] = []
        for k, step in enumerate(steps):
            names, begin = dict(held), len(self.nodes) - self.begun
            names.update((part, found[k]) for part, found in parts.items())
            for node in nodes:
                side = side_of(node, loop)
                if side == "capture":
                    names[node.outputs[0]] = node.inputs[0]
                elif side and is_cut(node):
                    names[node.outputs[0]] = self.cut(node, step)
                elif not side:
                    self.body(node, step, names, ends if step == loop.steps - 1 else {})
            found = (o for n in nodes if not side_of(n, loop) or is_cut(n) for o in n.outputs if o)
            made.append({o: names[o] for o in found})
            for node in nodes:
                if side_of(node, loop) == "stack":
                    (value,), (whole,) = node.inputs, node.outputs
                    row = names.get(value, value)
                    if self.outer is not None and row == value and self.source.const(row) is not None:
                        row = self.stored(row, whole, node)
                    if whole in self.copied:
                        row = made[-1][whole] = self.copy(node, row, whole, step)
                    rows[whole].append(row)
            held = {one.now: names.get(one.following, given[one.now]) for one in loop.carried}
            for one in as_entered(self.source, loop) if rounds else ():
                made[-1][one.last] = held[one.now] = self.copy(nodes[0], held[one.now], one.last, step)
            written.append(self.nodes[begin + self.begun :])
        self.names[loop.name] = made
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
            if side_of(node, loop) == "stack":
                self.stack(node, rows[node.outputs[0]], steps)

    def stored(self, value: str, name: str, node: Node) -> str:
        """A value that nodes may read as an activation: a constant is moved to where these are, before all
        else, so that no load waits for it behind what comes before the loop."""
        if self.source.const(value) is None:
            return value
        made = self.named(name, "initial")
        if made in self.moved:
            return self.moved[made]
        self.values[made] = replace(self.values[value], id=made, const=None)
        self.nodes.insert(self.begun, self.like(node, OPS["concat"](axis=0), (value,), (made,)))
        self.begun += 1
        self.moved[made] = made if self.outer is None else self.captured(made, node, self.outer)
        return self.moved[made]

    def captured(self, value: str, node: Node, outer: Loop) -> str:
        """A value of the outside, captured by the outer loop for an inner one that is written out."""
        name = self.named(value, "inside")
        self.values[name] = replace(self.values[value], id=name)
        op = OPS["loopcapture"](loop=outer.name, steps=outer.steps)
        self.nodes.append(self.like(node, op, (value,), (name,)))
        return name

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
        made = {o for n in nodes if not side_of(n, loop) for o in n.outputs}
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
        if own.op.border_of_loop:         # of a loop in the body, which stays one
            said = border(own)[1]
            own = replace(own, op=replace(said, loop=f"{said.loop}@{step}"))
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
        if self.outer is not None and self.values[source].const is not None:
            source = self.stored(source, result, self.source.nodes[self.outer.nodes[0]])
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


def step_name(graph: Graph, value: str, step: int | str) -> str:
    """The name that a value of a loop's body has in one step, where the loop is written out."""
    name = f"{value}@{step}"
    while name in graph.values:
        name += "'"
    return name
