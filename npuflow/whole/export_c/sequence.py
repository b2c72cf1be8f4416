"""Layers and loops in the order of their calls, and the buffers that each call touches.

A loop is a `for` over its steps, one in the body of another a `for` in that. What a step reads of a tensor is
a pointer that goes on from step to step, and what steps stack is made in its place. A carried value has a
buffer of its own: its first value is copied there before the loop, and the next step's when a step ends.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from npuflow.base.errors import ModelError
from npuflow.hw.target import Numerics
from npuflow.ir.borders import LEAVES, border
from npuflow.ir.graph import Graph
from npuflow.ir.loops import Loop, borders, loops, side_of
from npuflow.ir.nesting import MAX_DEPTH
from npuflow.ir.op import Node
from npuflow.whole.export_c.kernel import KERNELS, Kernel, SourceWriter
from npuflow.whole.export_c.whole import Storage, TensorCommand, commands_of, strides_of

COUNTERS = ("step", "inner_step")         # of the outer loop and of one in its body


@dataclass(frozen=True)
class CLayer:
    """A layer's name, and its statements."""

    name: str
    statements: tuple[str, ...]


@dataclass(frozen=True)
class CLoop:
    """Layers that run once a step."""

    name: str
    steps: int
    layers: tuple[CLayer | CLoop, ...]


def statements(one: CLayer | CLoop) -> tuple[str, ...]:
    return one.statements if isinstance(one, CLayer) else tuple(s for n in one.layers for s in statements(n))


def layer_count(one: CLayer | CLoop) -> int:
    """The layers of a loop, counted once."""
    return 1 if isinstance(one, CLayer) else sum(map(layer_count, one.layers))


def resolved(one: CLayer | CLoop, change: Callable[[str], str]) -> CLayer | CLoop:
    """The same with every statement changed."""
    if isinstance(one, CLayer):
        return replace(one, statements=tuple(map(change, one.statements)))
    return replace(one, layers=tuple(resolved(layer, change) for layer in one.layers))


@dataclass(frozen=True)
class StoragePart:
    """Where a buffer lies in another one: at which byte at the first step, and by how many it goes on in each
    step of the outer and of the inner loop."""

    of: int
    first: int = 0
    each: tuple[int, ...] = (0,) * MAX_DEPTH


@dataclass(frozen=True)
class Laid:
    """A buffer that is copied, or copied to: a value of that shape, channels innermost or in C order."""

    storage: Storage
    shape: tuple[int, ...]
    channels_last: bool


@dataclass
class CallSequence:
    """Nodes as calls. `last`: the values whose channels lie innermost; `kept`: those in memory of the
    caller's. `touched`: the buffers of each call; `bodies`: the first and the last call of each loop, those
    of loops in a body before it; `depth`: loops around what is added."""

    graph: Graph
    w: SourceWriter
    numerics: Numerics
    last: frozenset[str]
    kept: Container[str]
    parts: dict[int, StoragePart] = field(default_factory=dict)
    touched: list[set[int]] = field(default_factory=list)
    bodies: list[tuple[int, int]] = field(default_factory=list)
    depth: int = 0

    def every(
        self, nodes: Sequence[Node], within: Sequence[Loop] | None = None
    ) -> Iterator[CLayer | CLoop]:
        """Nodes in an order that runs, those of a loop behind each other. `within`: the loops, if not the
        graph's."""
        found = loops(self.graph) if within is None else within
        owner = {self.graph.nodes[i].outputs: loop for loop in found for i in loop.nodes}
        for node in nodes:
            loop = owner.get(node.outputs)
            if loop is None:
                yield self.node(node)
            elif node is self.graph.nodes[loop.nodes[0]]:
                yield from self.loop(loop)

    def node(self, node: Node) -> CLayer:
        found = commands_of(self.graph, node, self.numerics, self.last, self.w.buffers)
        return self.layer(node.name, found)

    def layer(self, name: str, commands: Sequence[TensorCommand]) -> CLayer:
        w, at, statements = self.w, 0, list[str]()
        while at < len(commands):
            w.calls, w.used = [], set()
            at += _kernel(commands[at].opcode, name).write(w, commands[at:])
            for call in w.calls:
                statements.append(call)
                self.touched.append(set(w.used))
        return CLayer(name, tuple(statements))

    def loop(self, loop: Loop) -> Iterator[CLayer | CLoop]:
        """Its first values, the loop itself, and values that it leaves in memory of the caller's."""
        nodes = [self.graph.nodes[i] for i in loop.nodes]
        body = [n for n in nodes if not side_of(n, loop)]
        inner = {o for one in loop.inner for i in one.nodes for o in self.graph.nodes[i].outputs}
        ends = list(borders(self.graph, loop))
        carried = {own.index: n.outputs[0] for side, own, n in ends if side == "carry"}
        lasts = {own.index: n for side, own, n in ends if side == "last"}
        first = [self._copy(n.inputs[0], n.outputs[0]) for side, _, n in ends if side == "carry"]
        if first:
            yield self.layer(f"{loop.name}: what the first step has", first)
        self.depth += 1
        for side, _, node in ends:
            if side in ("slice", "capture"):
                self.parts[self.held(node.outputs[0]).storage.number] = self._part(node)
        made = {o for n in body for o in n.outputs} - inner
        rows = [c for side, _, n in ends if side == "stack" for c in self._row(n, made)]
        begin = len(self.touched)
        layers = list(self.every(body, loop.inner))
        layers.append(self.layer(f"{loop.name}: rows of this step", rows))
        layers.append(self.layer(f"{loop.name}: what the next step has", self._next(carried, lasts)))
        self.depth -= 1
        if len(self.touched) > begin:
            self.bodies.append((begin, len(self.touched) - 1))
            yield CLoop(loop.name, loop.steps, tuple(one for one in layers if statements(one)))
        copies = [c for k, n in lasts.items() if k in carried for c in self._ends(carried[k], n.outputs[0])]
        if copies:
            yield self.layer(f"{loop.name}: what the last step has", copies)

    def held(self, value_id: str) -> Laid:
        """The buffer of a value, or of a constant."""
        value, array, buffers = self.graph.values[value_id], self.graph.const(value_id), self.w.buffers
        if array is not None:
            own = buffers.add("const", value_id, array.dtype.name, array.size, array)
            return Laid(own, value.type.shape, False)
        own = buffers.value(value_id, value.dtype, value.type.size)
        return Laid(own, value.type.shape, value_id in self.last)

    def root(self, number: int) -> StoragePart:
        """The buffer that one lies in, itself where it lies in none."""
        found = StoragePart(number)
        while found.of in self.parts:
            part = self.parts[found.of]
            each = tuple(a + b for a, b in zip(found.each, part.each, strict=True))
            found = StoragePart(part.of, found.first + part.first, each)
        return found

    def _part(self, node: Node) -> StoragePart:
        """Where the step's part lies of what is cut or stacked, or what is captured."""
        side, own = border(node)
        outer, inner = (node.outputs, node.inputs) if side in LEAVES else (node.inputs, node.outputs)
        of, size = self.held(outer[0]).storage.number, self.held(inner[0]).storage.bytes
        if side == "capture":
            return StoragePart(of)
        first, step = ((own.steps - 1) * size, -size) if own.reverse else (0, size)
        return StoragePart(of, first, tuple(step * (d == self.depth - 1) for d in range(MAX_DEPTH)))

    def _row(self, node: Node, made: Container[str]) -> list[TensorCommand]:
        """What puts a step's result into its place: nothing, where it is made there."""
        source, part = self.held(node.inputs[0]), self._part(node)
        number = source.storage.number
        if node.inputs[0] in made and number not in self.parts:
            self.parts[number] = part
            return []
        row = self.w.buffers.add("scratch", f"{node.name}.row", source.storage.dtype, source.storage.size)
        self.parts[row.number] = part
        return [_copied(source, Laid(row, source.shape, self.held(node.outputs[0]).channels_last))]

    def _next(self, carried: Mapping[int, str], lasts: Mapping[int, Node]) -> list[TensorCommand]:
        """Copies of what is carried on, all at once: what another copy writes over is put aside before."""
        pairs = []
        for k, node in lasts.items():
            source, result = self.held(node.inputs[0]), self.held(carried.get(k, node.outputs[0]))
            if self.root(source.storage.number).of != result.storage.number:
                pairs.append((source, result))
        written = {result.storage.number for _, result in pairs}
        aside, found = list[TensorCommand](), list[TensorCommand]()
        for source, result in pairs:
            if self.root(source.storage.number).of in written:
                own = source.storage
                kept = self.w.buffers.add("scratch", f"{own.name}.kept", own.dtype, own.size)
                aside.append(_copied(source, Laid(kept, source.shape, source.channels_last)))
                source = Laid(kept, source.shape, source.channels_last)
            found.append(_copied(source, result))
        return aside + found

    def _ends(self, now: str, last: str) -> list[TensorCommand]:
        """Behind the loop the buffer of a carried value has the last one."""
        if last in self.kept:
            return [self._copy(now, last)]
        self.parts[self.held(last).storage.number] = StoragePart(self.held(now).storage.number)
        return []

    def _copy(self, source: str, result: str) -> TensorCommand:
        return _copied(self.held(source), self.held(result))


def _copied(source: Laid, result: Laid) -> TensorCommand:
    dtype, shape = result.storage.dtype, source.shape
    item = np.dtype(dtype).itemsize
    x, y = (tuple(n * item for n in strides_of(shape, one.channels_last)) for one in (source, result))
    ends = {"x": source.storage.base, "y": result.storage.base, "x_type": dtype, "y_type": dtype}
    return TensorCommand("COPY", {**ends, "dims": shape, "x_strides": x, "y_strides": y})


def _kernel(opcode: str, layer: str) -> Kernel:
    name = opcode.lower()
    if name not in KERNELS:
        raise ModelError(
            f"{layer}: the command {opcode} has no C kernel",
            hint="weight_group = 0 under [[quantize.overrides]], if the recipe asks for scales by groups; a "
            "target without them, if the model states codes in groups",
            code="NF-PROGRAM-030",
        )
    found: Kernel = KERNELS[name]()
    return found
