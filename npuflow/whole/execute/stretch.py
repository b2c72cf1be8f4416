"""Consecutive integer nodes bound to arrays for a number of samples: run, they are a list of calls.

Commands that are faster together, or with channels innermost, than by the simulator's kernels go to
kernels of their own; values take turns in arrays.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import prod

import numpy as np

from npuflow.base.errors import ModelError, Where
from npuflow.hw.command import NONE, Command, FieldValue
from npuflow.hw.elements import ELEMENTS
from npuflow.hw.encode import layout
from npuflow.hw.isa import Field, opcodes
from npuflow.hw.target import Numerics
from npuflow.ir import forms
from npuflow.ir.graph import Graph
from npuflow.ir.lowering import Buffer
from npuflow.ir.op import Node, OpContext
from npuflow.ir.space import IterationDomain
from npuflow.ir.types import Array
from npuflow.kernels.fast import usable
from npuflow.kernels.opcode import Step, simulated
from npuflow.place.partition import Segment
from npuflow.whole import fusion
from npuflow.whole.execute.bench import FIRST, TensorBench
from npuflow.whole.execute.layout import BatchTensor, TensorLayout, channels_last, plain
from npuflow.whole.execute.moves import moved
from npuflow.whole.lowering import Emitted, lowered


def decoded(emitted: Iterable[Emitted]) -> list[Command]:
    """Fields left out are 0, optional pointers NONE, enums their first name."""
    return [
        Command(opcode, {f.name: _value(f, values.get(f.name)) for f, _ in layout(opcode)})
        for opcode, values in emitted
    ]


def _value(field: Field, value: object) -> FieldValue:
    if field.enum:
        return value if isinstance(value, str) else field.enum[0]
    if isinstance(value, Sequence | np.ndarray):
        return tuple(int(v) for v in value)
    if value is None:
        return (0,) * field.width if field.width > 1 else NONE if field.optional else 0
    return int(value)  # type: ignore[call-overload]


NOTHING = np.zeros(0, np.uint8)


def layouts(graph: Graph, part: Segment, numerics: Numerics) -> dict[str, TensorLayout]:
    """Value -> layout of those that do not lie in C order."""
    if not usable():
        return {}
    free: list[list[str]] = []                   # values of nodes that any layout suits
    near: set[str] = set()                       # values of convolutions
    bound: set[str] = set()                      # values that some node makes in C order
    for node in part.nodes:
        touched = [v for v in (*node.inputs, *node.outputs) if v and graph.const(v) is None]
        commands = _commands(graph, node, numerics)
        same = all(_imaged(graph, v) for v in touched)
        if commands is None or (all(opcodes()[c.opcode].any_strides for c in commands) and same):
            free.append([v for v in touched if _imaged(graph, v)])
        else:
            bound.update(node.outputs)
        if commands and any(_fast(c) for c in commands) and same:
            near.update(touched)
    chosen = set(near) - bound
    grown = True
    while grown:
        before = len(chosen)
        for values in free:
            if chosen.intersection(values):
                chosen.update(v for v in values if v not in bound)
        grown = len(chosen) > before
    return {v: channels_last(graph.values[v].type.shape) for v in chosen}


def _imaged(graph: Graph, value: str) -> bool:
    """Whether a value has a dimension of channels that is not the last."""
    return len(graph.values[value].type.shape) in (3, 4)


def _fast(c: Command) -> bool:
    """Whether there is a kernel for a convolution with channels innermost."""
    if c.opcode != "CONV" or c.vector("insert") != (1, 1) or c.text("acc_type") != "int32":
        return False
    from npuflow.whole.execute.dot import available  # slow to load

    return ELEMENTS[c.text("x_type")].bytes == 1 and ELEMENTS[c.text("w_type")].bytes == 1 and available()


def _commands(graph: Graph, node: Node, numerics: Numerics) -> list[Command] | None:
    """The node's commands on tensors in C order; None for movers."""
    site = graph.site(node)
    space = forms.space(site, numerics)
    if space is None or not all(v.type.size for v in site.outputs):
        return None
    address = iter(range(FIRST, 2 * FIRST, 1 << 32))

    def buffer(dtype: str, shape: tuple[int, ...]) -> Buffer:
        return BatchTensor(next(address), dtype, plain(shape), NOTHING).buffer

    def held(value: str) -> Buffer:
        return buffer(graph.values[value].element, graph.values[value].type.shape)

    sums = space.accumulator
    acc = None if sums is None else buffer(forms.sum_type(site, numerics), sums.shape)
    arrays = {o.name: site.array(o.name) for o in space.params}
    params = {name: buffer(array.dtype.name, array.shape) for name, array in arrays.items()}
    inputs = [held(v) if v else None for v in node.inputs]
    outputs = [held(v) for v in node.outputs if v]
    return decoded(lowered(site, space, numerics, inputs, outputs, params, acc))


def fused(bench: TensorBench, commands: Sequence[Command]) -> tuple[int, Step | None]:
    """How many of the commands the step does; None: there is no such kernel for the first of them."""
    kind = fusion.fused([(c.opcode, c.fields) for c in commands[:2]], lambda a: bench.at(a).constant)
    if kind is None:
        return 0, None
    from npuflow.whole.execute.dense import dense, product  # its kernels are slow to load

    if kind == "convolution":
        return 2, dense(bench, commands[0], commands[1])
    return 2, product(bench, commands[0], commands[1])


def arranged(c: Command) -> Command:
    """An element-wise command with the dimensions in the order in which they lie in the result's memory."""
    if "dims" not in c.fields or "y_strides" not in c.fields or "acc" in c.fields:
        return c
    strides = {name: v for name, v in c.fields.items() if name.endswith("_strides")}
    steps = c.vector("y_strides")
    if {len(v) for v in strides.values() if isinstance(v, tuple)} != {len(c.vector("dims"))}:
        return c
    order = sorted(range(len(steps)), key=lambda d: -steps[d])
    if opcodes()[c.opcode].fixed_dims or order == list(range(len(steps))):
        return c

    def turned(v: FieldValue) -> FieldValue:
        return tuple(v[d] for d in order) if isinstance(v, tuple) else v

    fields = {name: turned(v) if name in strides or name == "dims" else v for name, v in c.fields.items()}
    return replace(c, fields=fields)


class Pool:
    """Arrays of bytes for a batch; what is given back serves again, unless everything is to stay readable."""

    def __init__(self, batch: int, keep: bool) -> None:
        self.batch, self.keep = batch, keep
        self._free: list[Array] = []
        self._lent: list[tuple[Array, Array]] = []           # what was taken, and the bytes that it lies in

    def take(self, dtype: str, size: int) -> Array:
        """An array with so many elements for every sample."""
        need = self.batch * size * np.dtype(dtype).itemsize
        fits = [a for a in self._free if need <= a.size <= 4 * need]
        if fits:
            whole = min(fits, key=lambda a: a.size)
            self._free = [a for a in self._free if a is not whole]
        else:
            whole = np.zeros(-(-max(need, 1) // 64) * 64, np.uint8)
        found = whole[:need].view(dtype)
        self._lent.append((found, whole))
        return found

    def give(self, array: Array) -> None:
        """The values of this array are no longer needed."""
        taken = [whole for lent, whole in self._lent if lent is array]
        self._lent = [one for one in self._lent if one[0] is not array]
        self._free += [] if self.keep else taken


@dataclass(frozen=True)
class NodeCall:
    """One step of a node. `slow`: by the operator's own specification, sample by sample."""

    node: Node
    step: Step
    what: str
    slow: bool = False


class Stretch:
    """A segment of the NPU's for `batch` samples at a time. `keep`: every value stays readable after it."""

    def __init__(self, graph: Graph, part: Segment, numerics: Numerics, batch: int, keep: bool) -> None:
        self.graph, self.part, self.numerics, self.batch = graph, part, numerics, batch
        self.bench = TensorBench(batch)
        self.layouts = layouts(graph, part, numerics)
        self.held: dict[str, BatchTensor] = {}
        self._turned: dict[str, BatchTensor] = {}
        self._constants: dict[tuple[int, str], BatchTensor] = {}
        self._pool = Pool(batch, keep)
        self.calls: list[NodeCall] = []
        for value in part.inputs:
            self._make(value)
        last = {v: k for k, node in enumerate(part.nodes) for v in node.inputs if v}
        stay = {*part.outputs}
        for k, node in enumerate(part.nodes):
            for value in node.outputs:
                if value:
                    self._make(value)
            self._bind(node)
            done = [v for v in {*node.inputs, *node.outputs} if v in self.held]
            for value in done:
                if last.get(value, -1) <= k and value not in stay:
                    self._pool.give(self.held[value].flat)
                    if value in self._turned:
                        self._pool.give(self._turned.pop(value).flat)

    def run(self) -> None:
        """All nodes, in order; a fault of the data (an index outside a table) names its node."""
        for call in self.calls:
            try:
                call.step()
            except ModelError as error:
                raise error.at(Where(node=call.node.name)) from None

    def timed(self) -> list[tuple[NodeCall, float]]:
        """The same, with processor seconds by call."""
        found = []
        for call in self.calls:
            start = time.process_time()
            call.step()
            found.append((call, time.process_time() - start))
        return found

    def _make(self, value: str) -> BatchTensor:
        held = self.graph.values[value]
        layout = self.layouts.get(value) or plain(held.type.shape)
        self.held[value] = self._tensor(held.element, layout)
        return self.held[value]

    def _tensor(self, dtype: str, layout: TensorLayout) -> BatchTensor:
        flat = self._pool.take(ELEMENTS[dtype].numpy, layout.size)
        address = self.bench.address(layout.size * ELEMENTS[dtype].bytes)
        return self.bench.know(BatchTensor(address, dtype, layout, flat))

    def _constant(self, array: Array, element: str = "") -> BatchTensor:
        """A constant, or a parameter of a node."""
        raw = np.ascontiguousarray(array)
        address = self.bench.address(raw.nbytes)
        kind = element or raw.dtype.name
        return self.bench.know(BatchTensor(address, kind, plain(array.shape), raw.reshape(-1), True))

    def _input(self, node: Node, value: str, free: bool) -> BatchTensor:
        """What a node reads: as it lies, or in C order for a node that is not `free` of layouts."""
        array = self.graph.const(value)
        if array is not None:
            return self._constant(array, self.graph.values[value].element)
        tensor = self.held[value]
        if free or tensor.layout == plain(tensor.layout.shape):
            return tensor
        if value not in self._turned:
            turned = self._turned[value] = self._tensor(tensor.dtype, plain(tensor.layout.shape))
            step = partial(np.copyto, turned.logical, tensor.logical)
            self.calls.append(NodeCall(node, step, "layout"))
        return self._turned[value]

    def _bind(self, node: Node) -> None:
        site = self.graph.site(node)
        space = forms.space(site, self.numerics)
        free = all(v in self.layouts for v in node.outputs if v) or space is None
        inputs = [self._input(node, v, free) if v else None for v in node.inputs]
        outputs = [self.held[v] for v in node.outputs if v]
        calls = None
        if all(t.layout.size for t in outputs):
            if space is None:
                calls = self._moves(node, site, inputs, outputs)
            elif usable():
                calls = self._commands(node, site, space, inputs, outputs)
        self.calls += calls if calls is not None else [self._slow(node, site, inputs, outputs)]

    def _moves(
        self, node: Node, site: OpContext, inputs: Sequence[BatchTensor | None],
        outputs: Sequence[BatchTensor],
    ) -> list[NodeCall] | None:
        moves = site.op.moves(site)
        if moves is None:
            return None
        try:
            steps = moved(site, moves, [t for t in inputs if t is not None], outputs)
        except AssertionError:
            return None
        return [NodeCall(node, step, "move") for step in steps]

    def _commands(
        self,
        node: Node,
        site: OpContext,
        space: IterationDomain,
        inputs: Sequence[BatchTensor | None],
        outputs: Sequence[BatchTensor],
    ) -> list[NodeCall] | None:
        """The node by compiled kernels of its commands; None where one of them has none."""
        acc = None
        if space.accumulator is not None:
            shape = space.accumulator.shape
            dtype = forms.sum_type(site, self.numerics)
            flat = self.bench.scratch("sums", dtype, (self.batch * prod(shape),))
            address = self.bench.address(prod(shape) * ELEMENTS[dtype].bytes)
            acc = self.bench.know(BatchTensor(address, dtype, plain(shape), flat))
        params = {o.name: self._constant(site.array(o.name)).buffer for o in space.params}
        buffers = [None if t is None else t.buffer for t in inputs]
        sums = None if acc is None else acc.buffer
        made = [t.buffer for t in outputs]
        emitted = lowered(site, space, self.numerics, buffers, made, params, sums)
        commands = [arranged(c) for c in decoded(emitted)]
        self.bench.begin(acc)
        found: list[NodeCall] = []
        at = 0
        while at < len(commands):
            taken, step = fused(self.bench, commands[at:])
            if step is None:
                taken, step = 1, simulated(commands[at].opcode).bind(self.bench, at, commands[at])
            if step is None:
                return None
            found.append(NodeCall(node, step, "+".join(c.opcode for c in commands[at : at + taken])))
            at += taken
        return found

    def _slow(
        self, node: Node, site: OpContext, inputs: Sequence[BatchTensor | None],
        outputs: Sequence[BatchTensor],
    ) -> NodeCall:
        """The operator's specification, sample by sample."""
        views = [None if t is None else t.logical for t in inputs]
        step = partial(_specified, site, self.numerics, views, [t.logical for t in outputs], self.batch)
        return NodeCall(node, step, type(site.op).__name__, slow=True)


def _specified(
    site: OpContext, numerics: Numerics, inputs: Sequence[Array | None], outputs: Sequence[Array], batch: int
) -> None:
    for b in range(batch):
        given = [None if a is None else a[b if len(a) > 1 else 0] for a in inputs]
        results = forms.computed(site, given, numerics)
        made = [r for r, name in zip(results, site.node.outputs, strict=False) if name]
        for out, result in zip(outputs, made, strict=True):
            out[b] = result
