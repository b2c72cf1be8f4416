"""Which layers of a free length work step by step, or by windows, and why others do not."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from npuflow.hw.target import Numerics
from npuflow.ir.chunk import ChunkSteps
from npuflow.ir.graph import Graph
from npuflow.ir.lengths import Length
from npuflow.ir.loops import border, counted, loops, runs
from npuflow.ir.op import Node
from npuflow.ir.space import DimMap, IterationDomain
from npuflow.ir.types import TensorType
from npuflow.place.partition import boundary, is_npu
from npuflow.schedule.model import space_of

ANY = Numerics()                          # axes of operators do not depend on numbers
Halo = tuple[int, int]                    # steps that a window reads before its own one, and behind
NO_HALO: Halo = (0, 0)


def added(one: Halo, other: Halo) -> Halo:
    return one[0] + other[0], one[1] + other[1]


def widest(*halos: Halo) -> Halo:
    return max((h[0] for h in halos), default=0), max((h[1] for h in halos), default=0)


@dataclass(frozen=True)
class StepAxis:
    """Along which dimension a value has the steps, and how many parts of it a step has."""

    axis: int
    rows: int


@dataclass
class BySteps:
    """The layers of a graph, as far as they follow its length."""

    graph: Graph
    length: Length
    steps: dict[str, StepAxis] = field(default_factory=dict)
    ports: set[str] = field(default_factory=set)              # inputs: they have filling behind all steps
    masks: set[str] = field(default_factory=set)              # what the length alone decides
    halos: dict[int, Halo] = field(default_factory=dict)      # of nodes that work step by step
    whole: dict[int, str] = field(default_factory=dict)       # why others do not
    depth: dict[int, int] = field(default_factory=dict)       # of nodes, see `_depths`
    readers: dict[str, list[int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        graph, axes = self.graph, dict(self.length.axes)
        first = {v: axes[v] for v in graph.inputs if v in axes}
        for i, n in enumerate(graph.nodes):
            if boundary(graph, n) == "quantize" and n.inputs[0] in first:
                first[n.outputs[0]] = first[n.inputs[0]]
            for v in dict.fromkeys(n.inputs):
                self.readers.setdefault(v, []).append(i)
        self.ports.update(first)
        self._find_masks()
        for loop in loops(graph):
            if counted(graph, loop):
                ends = (graph.nodes[i] for i in loop.nodes)
                first |= {n.outputs[0]: 0 for n in ends if border(n)[0] == "stack"}
        for value, axis in first.items():
            self._stepped(value, axis)
        self._depths()

    def _find_masks(self) -> None:
        """What the length alone decides, and has its steps one behind the other, as a mask of those that a
        run has: all of it is there, whatever runs."""
        found = {self.length.name}
        for node in self.graph.nodes:
            read = self.read(node)
            if read and found.issuperset(read) and not border(node)[0]:
                found.update(o for o in node.outputs if o)
        for value in found - {self.length.name}:
            shape = self.graph.type(value).shape
            axis = next((d for d, size in enumerate(shape) if size > 1), 0)
            if shape and shape[axis] == self.length.most and self._stepped(value, axis):
                self.masks.add(value)

    def _stepped(self, value: str, axis: int) -> bool:
        """Whether a value has steps along a dimension; it is known then."""
        shape, most = self.graph.type(value).shape, self.length.most
        if shape and shape[axis] and shape[axis] % most == 0 and self.graph.values[value].quant is not None:
            self.steps[value] = StepAxis(axis, shape[axis] // most)
        return value in self.steps

    def _depths(self) -> None:
        """Numbers so that what has one odd number may run as one loop: no other node is between. Nodes that
        work step by step have odd numbers, all others even ones, and no number is less than an input's."""
        made = dict[str, int]()
        for unit in runs(self.graph):
            nodes = [self.graph.nodes[i] for i in unit]
            least = max((made.get(v, 0) for n in nodes for v in n.inputs), default=0)
            found = self._by_steps(nodes[0]) if len(unit) == 1 else ""
            if not isinstance(found, str):
                self.halos[unit[0]] = found
            elif found:
                self.whole[unit[0]] = found
            number = least + (least % 2 != (not isinstance(found, str)))
            self.depth.update(dict.fromkeys(unit, number))
            made.update((o, number) for n in nodes for o in n.outputs)

    def _by_steps(self, node: Node) -> Halo | str:
        """The steps around its own that a node reads for each step of its results; why it works in another
        way, or an empty text of nodes that do not follow the length."""
        values = self.read(node)
        stepped = self.steps.keys() - self.masks
        if not is_npu(node) or border(node)[0] or stepped.isdisjoint(values):
            return ""
        if lacking := [v for v in values if v not in self.steps]:
            return f'"{lacking[0]}", which it reads, does not follow the steps'
        outputs = [o for o in node.outputs if o]
        shape = self.graph.type(outputs[0]).shape or (1,)
        in_order = self.steps[values[0]].axis == 0 and shape[0] % self.length.most == 0
        if self.is_view(node) and in_order:
            places, halo, why = dict.fromkeys(outputs, 0), NO_HALO, ""
        else:
            places, halo, why = self._along(node, space_of(self.graph.site(node), ANY))
        if why or not all(o in places and self._stepped(o, places[o]) for o in outputs):
            return why or "it makes another number of steps than it reads"
        if halo != NO_HALO and len(values) > 1:
            return "its windows are over several values"
        size = 2 * (max(halo) + 1)
        return halo if self.of(node, size, NO_HALO, halo) is not None else "a part of it is another layer"

    def _along(self, node: Node, space: IterationDomain) -> tuple[dict[str, int], Halo, str]:
        """Of the results which dimension one axis is that is the steps of all activations, and nothing else;
        how far a window reads; and why there is no such axis."""
        pairs = [(v, one) for v, one in zip(node.inputs, space.inputs, strict=False) if v and one is not None]
        ends = [(one, self.steps[v].axis) for v, one in pairs if self.graph.const(v) is None]
        maps = {one.maps[at] for one, at in ends}
        own = next(iter(maps)) if len(maps) == 1 else DimMap()
        if own.axis is not None and own.num > own.den:
            return {}, NO_HALO, f"its windows go on by {own.num // own.den} steps"
        if own.axis is None or own != DimMap(own.axis, lo=own.lo, hi=own.hi) or not own.lo <= 0 <= own.hi:
            return {}, NO_HALO, "it mixes steps"
        others = [m for one, at in ends for d, m in enumerate(one.maps) if d != at]
        others += [m for v, one in pairs if self.graph.const(v) is not None for m in one.maps]
        others += [m for one in space.params for m in one.maps]
        axis = space.axis(own.axis)
        if axis.kind != "par":
            return {}, NO_HALO, "it mixes steps"
        if axis.multiple != 1 or any(m.axis == own.axis for m in others):
            return {}, NO_HALO, "it has constants of its own for each step"
        found = dict[str, int]()
        for o, one in zip(node.outputs, space.outputs, strict=False):
            at = [d for d, m in enumerate(one.maps) if m.axis == own.axis]
            if len(at) == 1 and one.maps[at[0]] == DimMap(own.axis):
                found[o] = at[0]
        return found, (-own.lo, own.hi), ""

    def read(self, node: Node) -> list[str]:
        """The operands that are activations."""
        return [v for v in node.inputs if v and self.graph.const(v) is None]

    def is_view(self, node: Node) -> bool:
        return is_npu(node) and not border(node)[0] and node.op.moves(self.graph.site(node)) == ()

    def chunk(self, value: str, size: int, count: int, halo: Halo) -> ChunkSteps:
        """Which steps of a value each of so many chunks has."""
        own, most = self.steps[value], self.length.most
        return ChunkSteps(own.axis, own.rows, size, most, count - 1, *halo)

    def part(self, value: str, size: int, halo: Halo) -> TensorType:
        """The type of a chunk that has all steps around its own."""
        kind, own = self.graph.type(value), self.steps[value]
        shape = list(kind.shape)
        shape[own.axis] = own.rows * (size + sum(halo))
        return TensorType(tuple(shape), kind.dtype)

    def of(self, node: Node, size: int, around: Halo, halo: Halo) -> Node | None:
        """The node on chunks of so many steps, and those around them; None where it is another operator
        there. `halo`: what it reads beside."""
        wanted = [self.part(o, size, around) for o in node.outputs if o]
        op = node.op.with_results(wanted) or node.op
        if halo != NO_HALO:
            own = self.steps[self.read(node)[0]]
            as_it_is, framed = op.framed(own.axis, *halo), op.framed(own.axis, 0, 0)
            if own.rows != 1 or framed is None or as_it_is != op:
                return None
            op = framed
        kinds = [
            self.part(v, size, added(around, halo)) if v in self.steps else self.graph.type(v) if v else None
            for v in node.inputs
        ]
        return replace(node, op=op) if list(op.infer(*kinds)) == wanted else None

    def beyond(self) -> Mapping[str, int]:
        """How many steps behind the last one of a run others read, by value: those that work step by step
        ask for as many of what they read as others do of their results, and windows for more."""
        found = dict[str, int]()
        for i in sorted(self.halos, key=lambda i: (self.depth[i], i), reverse=True):
            node = self.graph.nodes[i]
            far = max(found.get(o, 0) for o in node.outputs) + self.halos[i][1]
            for v in self.read(node):
                found[v] = max(found.get(v, 0), far)
        return found
