"""Loops as WHILE: a condition that counts steps, and a body that is one of them.

A step reads its part of a tensor with GATHER at the counter, and writes what is stacked with
DYNAMIC_UPDATE_SLICE. All tensors that a loop reads or makes are states of the WHILE; constants are in the
body.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import prod

import numpy as np

from npuflow.export_tflite.builder import NHWC, PLAIN, LiteBuilder
from npuflow.frontends.tflite.schema import TfliteNetwork, TfliteTensor
from npuflow.ir.borders import ENTERS, LEAVES, border
from npuflow.ir.loops import Loop
from npuflow.ir.op import Node

Layers = Callable[[LiteBuilder, Sequence[Node]], None]
# operators that have their channels last in TFLite
IMAGES = ("Conv", "ConvTranspose", "MaxPool", "GlobalMaxPool", "AveragePool", "Resize", "DepthToSpace",
          "SpaceToDepth")


def while_loop(b: LiteBuilder, loop: Loop, layers: Layers) -> None:
    """A loop as one operator. `layers`: adds those of the body to a builder of its own."""
    made = _While(b, loop, LiteBuilder(b.graph))
    nodes = [b.graph.nodes[i] for i in loop.nodes]
    for node in nodes:
        if border(node)[0] in ENTERS:
            made.enters(node)
    layers(made.inner, [n for n in nodes if not border(n)[0]])
    for node in nodes:
        if border(node)[0] in LEAVES:
            made.leaves(node)
    made.finish()


@dataclass
class _State:
    """A state: its tensor before the loop, at the step, and for the next step."""

    before: int
    now: int
    following: int


@dataclass
class _While:
    """A loop that is written. `inner`: the tensors and operators of a step; `stacks`: values of all steps by
    state."""

    b: LiteBuilder
    loop: Loop
    inner: LiteBuilder
    states: list[_State] = field(default_factory=list)
    passing: dict[int, int] = field(default_factory=dict)
    carried: dict[int, int] = field(default_factory=dict)
    lasts: dict[int, str] = field(default_factory=dict)
    stacks: dict[int, str] = field(default_factory=dict)
    places: dict[bool, int] = field(default_factory=dict)
    starts: dict[bool, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        first = self.b.tensor(f"{self.loop.name}:first", (), "int32", None, np.zeros((), np.int32))
        count = self.inner.tensor("step", (), "int32")
        one = self.inner.tensor("one", (), "int32", None, np.ones((), np.int32))
        following = self.inner.tensor("step:next", (), "int32")
        self.inner.add("ADD", [count, one], [following], FusedActivationFunction=0)
        self.states.append(_State(first, count, following))
        self.places[False] = count
        nodes = [self.b.graph.nodes[i] for i in self.loop.nodes]
        self.images = any(n.op.onnx_type()[1] in IMAGES for n in nodes)

    # --- what enters
    def enters(self, node: Node) -> None:
        (source,), (value,), (side, own) = node.inputs, node.outputs, border(node)
        layout = self.layout(value)
        if side == "carry":
            before = self.b.read(source, layout)
            self.carried[own.index] = len(self.states)
            self.states.append(_State(before, self.like(before, value), -1))
            self.inner.alias(value, layout, self.states[-1].now)
            return
        held = self.b.graph.const(source) is not None
        whole = self.inner.read(source, layout) if held else self.b.read(source, layout)
        if side == "slice":
            self.inner.alias(value, layout, self.part(value, layout, whole, held, own.reverse))
        else:
            self.inner.alias(value, layout, whole if held else self.passes(whole, source))

    def layout(self, value: str) -> str:
        return NHWC if self.images and len(self.b.graph.type(value).shape) == 4 else PLAIN

    def like(self, index: int, name: str) -> int:
        """A tensor of a step that is what a tensor of the outside is."""
        tensor = self.b.tensors[index]
        return self.inner.tensor(name, tensor.shape, tensor.dtype, tensor.codes)

    def passes(self, outer: int, name: str) -> int:
        """A tensor of the outside in the step, which no step changes."""
        if outer not in self.passing:
            now = self.like(outer, name)
            self.states.append(_State(outer, now, now))
            self.passing[outer] = now
        return self.passing[outer]

    def part(self, value: str, layout: str, whole: int, held: bool, back: bool) -> int:
        """What a step has of a tensor. `held`: it is a constant of the body."""
        home = self.inner if held else self.b
        tensor, steps = home.tensors[whole], self.loop.steps
        shape = (tensor.shape[0] // steps, *tensor.shape[1:])
        if held:
            assert tensor.data is not None
            rows = tensor.data.reshape(steps, *shape)
            home.tensors[whole] = TfliteTensor(tensor.name, rows.shape, tensor.dtype, rows, tensor.codes)
        else:
            whole = self.passes(self.b.reshaped(whole, (steps, *shape)), f"{value}:all")
        made = self.inner.tensor(value, shape, tensor.dtype, tensor.codes)
        self.inner.add("GATHER", [whole, self.place(back)], [made], Axis=0)
        return made

    def place(self, back: bool) -> int:
        """The number of the step's part."""
        if back not in self.places:
            last = self.inner.tensor("last", (), "int32", None, np.array(self.loop.steps - 1, np.int32))
            self.places[back] = self.inner.tensor("step:back", (), "int32")
            self.inner.add("SUB", [last, self.places[False]], [self.places[back]], FusedActivationFunction=0)
        return self.places[back]

    def start(self, back: bool) -> int:
        """Where the step's row begins in a tensor of rows."""
        if back not in self.starts:
            place, across = self.place(back), self.inner.ints([1, 0], "across")
            self.starts[back] = self.inner.tensor("step:row", (2,), "int32")
            self.inner.add("MUL", [place, across], [self.starts[back]], FusedActivationFunction=0)
        return self.starts[back]

    # --- what leaves
    def leaves(self, node: Node) -> None:
        (value,), (out,), (side, own) = node.inputs, node.outputs, border(node)
        made = self.inner.read(value, self.layout(value))
        if side == "last":
            state = self.carried[own.index]
            self.states[state].following, self.lasts[state] = made, out
            return
        tensor = self.inner.tensors[made]
        size = prod(tensor.shape)
        row = self.inner.reshaped(made, (1, size))
        before = self.empty(out, (self.loop.steps, size), tensor)
        now, following = self.like(before, f"{out}:before"), self.like(before, out)
        self.inner.add("DYNAMIC_UPDATE_SLICE", [now, row, self.start(own.reverse)], [following])
        self.stacks[len(self.states)] = out
        self.states.append(_State(before, now, following))

    def empty(self, name: str, shape: tuple[int, int], like: TfliteTensor) -> int:
        """Rows for all steps, of which each is written; not in the file."""
        made = self.b.tensor(f"{name}:empty", shape, like.dtype, like.codes)
        zero = self.b.tensor(f"{name}:zero", (), like.dtype, like.codes, np.zeros((), like.dtype))
        self.b.add("FILL", [self.b.ints(shape), zero], [made])
        return made

    # --- the operator
    def finish(self) -> None:
        b, number = self.b, len(self.b.bodies) + 1
        results = [self._result(k) for k in range(len(self.states))]
        b.bodies += [self._condition(), self._body()]
        b.add(
            "WHILE", [one.before for one in self.states], results,
            CondSubgraphIndex=number, BodySubgraphIndex=number + 1,
        )
        for k, out in self.lasts.items():
            b.alias(out, self.layout(out), results[k])
        for k, out in self.stacks.items():
            self._stacked(out, results[k])

    def _result(self, k: int) -> int:
        before = self.b.tensors[self.states[k].before]
        name = self.lasts.get(k) or self.stacks.get(k) or f"{before.name}:behind"
        return self.b.tensor(name, before.shape, before.dtype, before.codes)

    def _stacked(self, out: str, rows: int) -> None:
        layout, graph, tensor = self.layout(out), self.b.graph, self.b.tensors[rows]
        shape = graph.type(out).shape
        if layout == PLAIN and tensor.shape == shape:
            self.b.alias(out, layout, rows)
            return
        whole = shape if layout == PLAIN else (shape[0], *shape[2:], shape[1])
        self.b.give(
            out, "RESHAPE", [rows, self.b.ints(whole)], layout, codes=tensor.codes, NewShape=tuple(whole)
        )

    def _condition(self) -> TfliteNetwork:
        """Whether there is a step left."""
        c = LiteBuilder(self.b.graph)
        states = [self.inner.tensors[one.now] for one in self.states]
        fed = [c.tensor(one.name, one.shape, one.dtype, one.codes) for one in states]
        steps = c.tensor("steps", (), "int32", None, np.array(self.loop.steps, np.int32))
        goes_on = c.tensor("goes on", (), "bool")
        c.add("LESS", [fed[0], steps], [goes_on])
        return TfliteNetwork(tuple(c.tensors), tuple(c.operators), tuple(fed), (goes_on,))

    def _body(self) -> TfliteNetwork:
        """What is handed on has a tensor of its own, apart from states that pass."""
        fed, given, inner = [one.now for one in self.states], list[int](), self.inner
        for one in self.states:
            index = one.following
            if index != one.now and (index in (*fed, *given) or inner.tensors[index].data is not None):
                index = inner.copied(index)
            given.append(index)
        return TfliteNetwork(tuple(inner.tensors), tuple(inner.operators), tuple(fed), tuple(given))
