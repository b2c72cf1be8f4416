"""Which layers of a free length work step by step, or by windows, and why others do not."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from math import lcm

from npuflow.base.step_count import EACH, StepCount
from npuflow.hw.target import Numerics
from npuflow.ir.chunk import ChunkSteps
from npuflow.ir.graph import Graph
from npuflow.ir.lengths import Length
from npuflow.ir.loops import border, counted, loops, runs
from npuflow.ir.op import Node
from npuflow.ir.space import DimMap, IterationDomain
from npuflow.ir.types import TensorType
from npuflow.ir.windows import window_along
from npuflow.place.partition import boundary, is_npu
from npuflow.schedule.model import space_of

ANY = Numerics()                          # axes of operators do not depend on numbers
Halo = tuple[int, int]                    # steps that a window reads before its own one, and behind
NO_HALO: Halo = (0, 0)


def widest(*halos: Halo) -> Halo:
    return max((h[0] for h in halos), default=0), max((h[1] for h in halos), default=0)


@dataclass(frozen=True)
class StepAxis:
    """Along which dimension a value has the steps, how many parts of it a step has, and how many steps there
    are."""

    axis: int
    rows: int
    count: StepCount = EACH


@dataclass(frozen=True)
class StepWindow:
    """The steps that a layer reads for each one that it makes: it goes on by `each`, and reads `halo` around
    these. It makes (steps + `more`) // `each`."""

    halo: Halo = NO_HALO
    each: int = 1
    more: int = 0

    def around(self, made: Halo) -> Halo:
        """What it reads around the steps of a chunk where it makes so many around its own."""
        return self.each * made[0] + self.halo[0], self.each * made[1] + self.halo[1]

    def beyond(self, made: int) -> int:
        """How many steps it reads beyond the last one where so many that it makes beyond are read."""
        return self.each * made + self.more + self.halo[1]


@dataclass
class BySteps:
    """The layers of a graph, as far as they follow its length."""

    graph: Graph
    length: Length
    steps: dict[str, StepAxis] = field(default_factory=dict)
    ports: set[str] = field(default_factory=set)              # inputs: they have filling behind all steps
    masks: set[str] = field(default_factory=set)              # what the length alone decides
    windows: dict[int, StepWindow] = field(default_factory=dict)      # of nodes that work step by step
    whole: dict[int, str] = field(default_factory=dict)       # why others do not
    depth: dict[int, int] = field(default_factory=dict)       # of nodes, see `_depths`
    readers: dict[str, list[int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        graph, axes = self.graph, dict(self.length.axes)
        first = {v: (axes[v], EACH) for v in graph.inputs if v in axes}
        for i, n in enumerate(graph.nodes):
            if boundary(graph, n) == "quantize" and n.inputs[0] in first:
                first[n.outputs[0]] = first[n.inputs[0]]
            for v in dict.fromkeys(n.inputs):
                self.readers.setdefault(v, []).append(i)
        self.ports.update(first)
        self._find_masks()
        for loop in loops(graph):
            if own := counted(graph, loop):
                ends = (graph.nodes[i] for i in loop.nodes)
                first |= {n.outputs[0]: (0, own.count) for n in ends if border(n)[0] == "stack"}
        for value, (axis, count) in first.items():
            self._stepped(value, axis, count)
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
            count = self.length.steps_like(shape[axis]) if shape else None
            if count is not None and self._stepped(value, axis, count):
                self.masks.add(value)

    def _stepped(self, value: str, axis: int, count: StepCount) -> bool:
        """Whether a value has steps along a dimension; it is known then."""
        shape, most = self.graph.type(value).shape, count.of(self.length.most)
        known = self.graph.values[value].quant is not None
        if shape and shape[axis] and most > 0 and shape[axis] % most == 0 and known:
            self.steps[value] = StepAxis(axis, shape[axis] // most, count)
        return value in self.steps

    def most(self, value: str) -> int:
        """How many steps a value has in all."""
        return self.steps[value].count.of(self.length.most)

    def stride(self, values: Iterable[str]) -> int:
        """Of how many steps, or a multiple, a chunk is: each of these values has whole ones of them."""
        return lcm(*(self.steps[v].count.stride for v in values if v in self.steps))

    def _depths(self) -> None:
        """Numbers so that what has one odd number may run as one loop: no other node is between. Nodes that
        work step by step have odd numbers, all others even ones, and no number is less than an input's."""
        made = dict[str, int]()
        for unit in runs(self.graph):
            nodes = [self.graph.nodes[i] for i in unit]
            least = max((made.get(v, 0) for n in nodes for v in n.inputs), default=0)
            found = self._by_steps(nodes[0]) if len(unit) == 1 else ""
            if not isinstance(found, str):
                self.windows[unit[0]] = found
            elif found:
                self.whole[unit[0]] = found
            number = least + (least % 2 != (not isinstance(found, str)))
            self.depth.update(dict.fromkeys(unit, number))
            made.update((o, number) for n in nodes for o in n.outputs)

    def _by_steps(self, node: Node) -> StepWindow | str:
        """The steps that a node reads for each step of its results; why it works in another way, or an empty
        text of nodes that do not follow the length."""
        values = self.read(node)
        stepped = self.steps.keys() - self.masks
        if not is_npu(node) or border(node)[0] or stepped.isdisjoint(values):
            return ""
        if lacking := [v for v in values if v not in self.steps]:
            return f'"{lacking[0]}", which it reads, does not follow the steps'
        kinds = {(self.steps[v].count.stride, self.most(v)) for v in values}
        if len(kinds) > 1:
            return f'"{values[0]}" and others that it reads have different numbers of steps'
        outputs = [o for o in node.outputs if o]
        shape, count = self.graph.type(outputs[0]).shape or (1,), self.steps[values[0]].count
        in_order = self.steps[values[0]].axis == 0 and shape[0] % self.most(values[0]) == 0
        if self.is_view(node) and in_order:
            places, window, why = dict.fromkeys(outputs, 0), StepWindow(), ""
        else:
            places, window, why = self._along(node, space_of(self.graph.site(node), ANY))
        behind = count.behind(window.each, window.more)
        if why or not all(o in places and self._stepped(o, places[o], behind) for o in outputs):
            return why or "it makes another number of steps than it reads"
        if window != StepWindow() and len(values) > 1:
            return "its windows are over several values"
        size = self.stride((*values, *outputs)) * 2 * (max(window.halo) + 1)
        whole = self.of(node, size, NO_HALO, window) is not None
        return window if whole else "a part of it is another layer"

    def _along(self, node: Node, space: IterationDomain) -> tuple[dict[str, int], StepWindow, str]:
        """Of the results which dimension one axis is that is the steps of all activations, and nothing else;
        what a window reads; and why there is no such axis."""
        pairs = [(v, one) for v, one in zip(node.inputs, space.inputs, strict=False) if v and one is not None]
        ends = [(one, self.steps[v].axis) for v, one in pairs if self.graph.const(v) is None]
        maps = {one.maps[at] for one, at in ends}
        own, nothing = next(iter(maps)) if len(maps) == 1 else DimMap(), StepWindow()
        if own.axis is None or own != DimMap(own.axis, own.num, 1, own.lo, own.hi) or own.num < 1:
            return {}, nothing, "it mixes steps"
        if not own.lo <= 0 <= own.hi:
            return {}, nothing, "it mixes steps"
        others = [m for one, at in ends for d, m in enumerate(one.maps) if d != at]
        others += [m for v, one in pairs if self.graph.const(v) is not None for m in one.maps]
        others += [m for one in space.params for m in one.maps]
        axis = space.axis(own.axis)
        if axis.kind != "par":
            return {}, nothing, "it mixes steps"
        if axis.multiple != 1 or any(m.axis == own.axis for m in others):
            return {}, nothing, "it has constants of its own for each step"
        found = dict[str, int]()
        for o, one in zip(node.outputs, space.outputs, strict=False):
            at = [d for d, m in enumerate(one.maps) if m.axis == own.axis]
            if len(at) == 1 and one.maps[at[0]] == DimMap(own.axis):
                found[o] = at[0]
        halo = -own.lo, max(own.hi + 1 - own.num, 0)
        return found, StepWindow(halo, own.num, self._more(node, own, found)), ""

    def _more(self, node: Node, own: DimMap, places: Mapping[str, int]) -> int:
        """Of windows that make (steps + more) // each: what is added, their border without what one reads."""
        source = next(v for v in self.read(node) if v in self.steps)
        axis, shape = self.steps[source].axis, self.graph.type(source).shape
        made = [self.graph.type(o).shape[at] for o, at in places.items()]
        if (own.num == 1 and made == [shape[axis]] * len(made)) or node.op.framed(axis, 0, 0) is None:
            return 0
        # the fewest that make so many of all steps, and at each number of steps no fewer
        window = window_along(node.op, shape, axis)
        more = window.before + window.after - window.span + own.num
        return more if (shape[axis] + more) // own.num == made[0] else more + own.num - 1

    def read(self, node: Node) -> list[str]:
        """The operands that are activations."""
        return [v for v in node.inputs if v and self.graph.const(v) is None]

    def is_view(self, node: Node) -> bool:
        return is_npu(node) and not border(node)[0] and node.op.moves(self.graph.site(node)) == ()

    def chunk(self, value: str, size: int, count: int, halo: Halo) -> ChunkSteps:
        """Which steps of a value each of so many chunks has."""
        own = self.steps[value]
        return ChunkSteps(
            own.axis, own.rows, size // own.count.stride, self.most(value), count - 1, *halo
        )

    def chunks(self, value: str, size: int, halo: Halo) -> int:
        """Of how many chunks of so many steps of the length a value is. The last one has as many steps at
        least as are read behind a chunk: so the one before it reads as much as all others."""
        return (self.most(value) - max(halo[1], 1)) // (size // self.steps[value].count.stride) + 1

    def part(self, value: str, size: int, halo: Halo) -> TensorType:
        """The type of a chunk that has all steps around its own."""
        kind, own = self.graph.type(value), self.steps[value]
        shape = list(kind.shape)
        shape[own.axis] = own.rows * (size // own.count.stride + sum(halo))
        return TensorType(tuple(shape), kind.dtype)

    def of(self, node: Node, size: int, around: Halo, window: StepWindow) -> Node | None:
        """The node on chunks of so many steps, and those around them; None where it is another operator
        there. `window`: what it reads for each step."""
        wanted = [self.part(o, size, around) for o in node.outputs if o]
        op = node.op.with_results(wanted) or node.op
        if window != StepWindow():
            own = self.steps[self.read(node)[0]]
            as_it_is, framed = op.framed(own.axis, *window.halo), op.framed(own.axis, 0, 0)
            alike = window.each > 1 or window.more or as_it_is == op
            if own.rows != 1 or framed is None or not alike:
                return None
            op = framed if window.halo != NO_HALO else op
        read, most = window.around(around), self.graph.type
        kinds = [
            self.part(v, size, read) if v in self.steps else most(v) if v else None for v in node.inputs
        ]
        return replace(node, op=op) if list(op.infer(*kinds)) == wanted else None

    def beyond(self) -> Mapping[str, int]:
        """How many steps behind the last one of a run others read, by value: those that work step by step
        ask for as many of what they read as others do of their results, and windows for more."""
        found = dict[str, int]()
        for i in sorted(self.windows, key=lambda i: (self.depth[i], i), reverse=True):
            node = self.graph.nodes[i]
            far = self.windows[i].beyond(max(found.get(o, 0) for o in node.outputs))
            for v in self.read(node):
                found[v] = max(found.get(v, 0), far)
        return found
