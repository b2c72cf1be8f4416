"""Consecutive integer nodes bound to arrays for a number of samples: run, they are a list of calls."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from math import prod

import numpy as np

from npuflow.base.errors import ModelError, Where
from npuflow.hw.elements import ELEMENTS
from npuflow.hw.target import Numerics
from npuflow.ir import forms
from npuflow.ir.graph import Graph
from npuflow.ir.op import Node, Site
from npuflow.ir.space import Space
from npuflow.ir.types import Array
from npuflow.kernels.fast import usable
from npuflow.kernels.opcode import Step, simulated
from npuflow.place.partition import Segment
from npuflow.whole.execute.bench import TensorBench
from npuflow.whole.execute.decoded import decoded
from npuflow.whole.execute.fused import arranged, fused
from npuflow.whole.execute.layout import BatchTensor, TensorLayout, plain
from npuflow.whole.execute.layouts import layouts
from npuflow.whole.execute.moves import moved
from npuflow.whole.execute.pool import Pool
from npuflow.whole.lowering import lowered


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
        self, node: Node, site: Site, inputs: Sequence[BatchTensor | None], outputs: Sequence[BatchTensor]
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
        site: Site,
        space: Space,
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
        self, node: Node, site: Site, inputs: Sequence[BatchTensor | None], outputs: Sequence[BatchTensor]
    ) -> NodeCall:
        """The operator's specification, sample by sample."""
        views = [None if t is None else t.logical for t in inputs]
        step = partial(_specified, site, self.numerics, views, [t.logical for t in outputs], self.batch)
        return NodeCall(node, step, type(site.op).__name__, slow=True)


def _specified(
    site: Site, numerics: Numerics, inputs: Sequence[Array | None], outputs: Sequence[Array], batch: int
) -> None:
    for b in range(batch):
        given = [None if a is None else a[b if len(a) > 1 else 0] for a in inputs]
        results = forms.computed(site, given, numerics)
        made = [r for r, name in zip(results, site.node.outputs, strict=False) if name]
        for out, result in zip(outputs, made, strict=True):
            out[b] = result
