"""Layers of a free length that work step by step, as loops over chunks of some steps each.

Such a loop carries nothing: a chunk of each tensor enters, the layers compute it as they compute the whole,
and what others read is stacked. A layer with a window along the steps of a network's input reads a chunk with
the steps around it. How many chunks run is read where the steps of recurrent layers are; behind them all is
zeros. The graph that is quantised, run and compared has no such loops.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from npuflow.hw.target import Numerics
from npuflow.ir.graph import Graph
from npuflow.ir.lengths import Length
from npuflow.ir.loops import border, counted, loops, runs
from npuflow.ir.op import OPS, No, Node
from npuflow.ir.space import DimMap, IterationDomain
from npuflow.ir.types import TensorType, Value
from npuflow.place.partition import boundary, is_npu
from npuflow.schedule.model import space_of

SIZES = (64, 32, 16, 8)                   # steps of a chunk that are tried, about
FEWEST = 12                               # chunks: of fewer steps a loop is written out
ANY = Numerics()                          # axes of operators do not depend on numbers
Halo = tuple[int, int]                    # steps that a window reads before its own one, and behind
NO_HALO: Halo = (0, 0)


def chunk_sizes(graph: Graph) -> tuple[int, ...]:
    """Steps of a chunk that may be worth a plan, the most first: those that divide the most steps, next to
    each of `SIZES`. None: no layer outside loops works step by step."""
    if not graph.lengths or not (groups := _Chunks(graph, graph.lengths[0]).groups()):
        return ()
    most, least = graph.lengths[0].most, max(SIZES[-1] // 2, *(max(halo) for _, halo in groups))
    fit = [n for n in range(least, 2 * SIZES[0]) if most % n == 0 and most // n >= FEWEST]
    return tuple(dict.fromkeys(min(fit, key=lambda n: abs(n - size)) for size in SIZES)) if fit else ()


def chunked(graph: Graph, size: int) -> Graph:
    """The graph with layers that work step by step along its free length as loops over chunks of `size`
    steps, which divides the most steps; 0: the graph as it is. Values keep their names, bits and types behind
    the loops; one that only a chunk has is a chunk's."""
    return _Chunks(graph, graph.lengths[0]).written(size) if size else graph


@dataclass(frozen=True)
class _Steps:
    """Along which dimension a value has the steps, and how many parts of it a step has."""

    axis: int
    rows: int


@dataclass
class _Chunks:
    graph: Graph
    length: Length
    steps: dict[str, _Steps] = field(default_factory=dict)
    ports: set[str] = field(default_factory=set)              # inputs: they have filling behind all steps
    halos: dict[int, Halo] = field(default_factory=dict)      # of nodes that work step by step
    depth: dict[int, int] = field(default_factory=dict)       # of nodes, see `_depths`

    def __post_init__(self) -> None:
        graph, axes = self.graph, dict(self.length.axes)
        first = {v: axes[v] for v in graph.inputs if v in axes}
        for n in graph.nodes:
            if boundary(graph, n) == "quantize" and n.inputs[0] in first:
                first[n.outputs[0]] = first[n.inputs[0]]
        self.ports.update(first)
        for loop in loops(graph):
            if counted(graph, loop):
                ends = (graph.nodes[i] for i in loop.nodes)
                first |= {n.outputs[0]: 0 for n in ends if border(n)[0] == "stack"}
        for value, axis in first.items():
            self._stepped(value, axis)
        self._depths()

    def _stepped(self, value: str, axis: int) -> bool:
        """Whether a value has steps along a dimension; it is known then."""
        shape, most = self.graph.type(value).shape, self.length.most
        if shape and shape[axis] and shape[axis] % most == 0 and self.graph.values[value].quant is not None:
            self.steps[value] = _Steps(axis, shape[axis] // most)
        return value in self.steps

    def _depths(self) -> None:
        """Numbers so that what has one odd number may run as one loop: no other node is between. Nodes that
        work step by step have odd numbers, all others even ones, and no number is less than an input's."""
        made = dict[str, int]()
        for unit in runs(self.graph):
            nodes = [self.graph.nodes[i] for i in unit]
            least = max((made.get(v, 0) for n in nodes for v in n.inputs), default=0)
            halo = self._by_steps(nodes[0]) if len(unit) == 1 else None
            if halo is not None:
                self.halos[unit[0]] = halo
            number = least + (least % 2 != (halo is not None))
            self.depth.update(dict.fromkeys(unit, number))
            made.update((o, number) for n in nodes for o in n.outputs)

    def _by_steps(self, node: Node) -> Halo | None:
        """The steps around its own that a node reads for each step of its results; None where it works in
        another way."""
        values = self._read(node)
        if not is_npu(node) or border(node)[0] or not values or any(v not in self.steps for v in values):
            return None
        outputs = [o for o in node.outputs if o]
        shape = self.graph.type(outputs[0]).shape or (1,)
        in_order = self.steps[values[0]].axis == 0 and shape[0] % self.length.most == 0
        if self._is_view(node) and in_order:
            places, halo = dict.fromkeys(outputs, 0), NO_HALO
        else:
            places, halo = self._along(node, space_of(self.graph.site(node), ANY))
        if not all(o in places and self._stepped(o, places[o]) for o in outputs):
            return None
        if halo != NO_HALO and not (len(values) == 1 and values[0] in self.ports):
            return None
        return halo if self._of(node, 2 * (max(halo) + 1), halo) is not None else None

    def _along(self, node: Node, space: IterationDomain) -> tuple[dict[str, int], Halo]:
        """Of the results which dimension one axis is that is the steps of all activations, and nothing else;
        and how far a window reads. No results: there is no such axis."""
        pairs = [(v, one) for v, one in zip(node.inputs, space.inputs, strict=False) if v and one is not None]
        ends = [(one, self.steps[v].axis) for v, one in pairs if self.graph.const(v) is None]
        maps = {one.maps[at] for one, at in ends}
        own = next(iter(maps)) if len(maps) == 1 else DimMap()
        if own.axis is None or own != DimMap(own.axis, lo=own.lo, hi=own.hi) or not own.lo <= 0 <= own.hi:
            return {}, NO_HALO
        others = [m for one, at in ends for d, m in enumerate(one.maps) if d != at]
        others += [m for v, one in pairs if self.graph.const(v) is not None for m in one.maps]
        others += [m for one in space.params for m in one.maps]
        axis = space.axis(own.axis)
        if axis.kind != "par" or axis.multiple != 1 or any(m.axis == own.axis for m in others):
            return {}, NO_HALO
        found = dict[str, int]()
        for o, one in zip(node.outputs, space.outputs, strict=False):
            at = [d for d, m in enumerate(one.maps) if m.axis == own.axis]
            if len(at) == 1 and one.maps[at[0]] == DimMap(own.axis):
                found[o] = at[0]
        return found, (-own.lo, own.hi)

    def _read(self, node: Node) -> list[str]:
        """The operands that are activations."""
        return [v for v in node.inputs if v and self.graph.const(v) is None]

    def _is_view(self, node: Node) -> bool:
        return is_npu(node) and not border(node)[0] and node.op.moves(self.graph.site(node)) == ()

    def _part(self, value: str, size: int, halo: Halo = NO_HALO) -> TensorType:
        kind, own = self.graph.type(value), self.steps[value]
        shape = list(kind.shape)
        shape[own.axis] = own.rows * size + sum(halo)
        return TensorType(tuple(shape), kind.dtype)

    def _of(self, node: Node, size: int, halo: Halo) -> Node | None:
        """The node on chunks of so many steps; None where it is another operator there."""
        wanted = [self._part(o, size) for o in node.outputs if o]
        op = node.op.with_results(wanted) or node.op
        if halo != NO_HALO:
            own, found = self.steps[self._read(node)[0]], op.border(self.graph.site(node))
            if isinstance(found, No) or own.rows != 1:
                return None
            widths, rank = list(found[0]), len(found[0]) // 2
            if (widths[own.axis], widths[rank + own.axis]) != halo:
                return None
            widths[own.axis] = widths[rank + own.axis] = 0
            op = op.with_border(widths, found[1])
        kinds = [
            self._part(v, size, halo) if v in self.steps else self.graph.type(v) if v else None
            for v in node.inputs
        ]
        return replace(node, op=op) if list(op.infer(*kinds)) == wanted else None

    def groups(self) -> list[tuple[tuple[int, ...], Halo]]:
        """Nodes that are a loop each, by position, and the widest window. Views at the ends of one stay
        outside, where they cost nothing."""
        found = [
            self._trimmed([i for i, own in self.depth.items() if own == number])
            for number in sorted(set(self.depth.values())) if number % 2
        ]
        return [(group, max(self.halos[i] for i in group)) for group in found if group and self._ends(group)]

    def _trimmed(self, numbers: Collection[int]) -> tuple[int, ...]:
        left, before, readers = set(numbers), -1, self._readers()
        while len(left) != before:
            before = len(left)
            made = {o for i in left for o in self.graph.nodes[i].outputs}
            for i in [i for i in left if self._is_view(self.graph.nodes[i])]:
                node = self.graph.nodes[i]
                inner = any(r in left for o in node.outputs for r in readers.get(o, ()))
                if not made & set(node.inputs) or not inner:
                    left.remove(i)
        return tuple(sorted(left))

    def _readers(self) -> Mapping[str, list[int]]:
        found = dict[str, list[int]]()
        for i, node in enumerate(self.graph.nodes):
            for v in dict.fromkeys(node.inputs):
                found.setdefault(v, []).append(i)
        return found

    def _ends(self, group: Collection[int]) -> bool:
        """Whether what enters a group has the steps first, or is an input, which is there before all
        commands; what it makes has the steps first; and whoever reads that takes nothing to a step from those
        behind, which are zeros where chunks do not run."""
        nodes, readers = [self.graph.nodes[i] for i in group], self._readers()
        made = {o for n in nodes for o in n.outputs}
        entering = {v for n in nodes for v in self._read(n)} - made - self.ports
        if any(self.steps[v].axis for v in entering):
            return False
        for value in self._behind(group):
            if self.steps[value].axis:
                return False
            for i in readers.get(value, ()):
                node = self.graph.nodes[i]
                by_steps = self.halos.get(i) == NO_HALO or border(node)[0] == "slice"
                if not by_steps and not set(node.outputs) <= set(self.graph.outputs):
                    return False
        return True

    def written(self, size: int) -> Graph:
        nodes, values = list[Node](), dict(self.graph.values)
        first = {group[0]: group for group, _ in self.groups()}
        inner = {i for group in first.values() for i in group}
        for i in sorted(self.depth, key=lambda i: (self.depth[i], i)):
            if i in first:
                nodes += self._loop(first[i], size, values)
            elif i not in inner:
                nodes.append(self.graph.nodes[i])
        return self.graph.replaced(nodes=tuple(nodes), values=MappingProxyType(values))

    def _loop(self, group: Sequence[int], size: int, values: dict[str, Value]) -> Iterator[Node]:
        """A loop over chunks of some nodes; its values are added to `values`."""
        own = {i: self.graph.nodes[i] for i in group}
        made = {o: o for n in own.values() for o in n.outputs if o}
        origin, first = own[group[0]].origin, own[group[0]].outputs[0]
        said = {"loop": f"{first}:chunks", "steps": self.length.most // size, "chunk": size}
        parts = dict[tuple[str, Halo], str]()
        for i, n in own.items():
            for key in [(v, self.halos[i]) for v in self._read(n) if v not in made]:
                if key in parts:
                    continue
                value, halo = key
                parts[key] = _new(f"{value}:part", values)
                kind = self._part(value, size, halo)
                values[parts[key]] = replace(self.graph.values[value], id=parts[key], type=kind)
                op = OPS["loopslice"](**said, axis=self.steps[value].axis, halo=halo)
                yield Node(op, (value,), (parts[key],), origin, ())
        behind = self._behind(group)
        made |= {v: _new(f"{v}:part", values) for v in behind}
        for value, name in made.items():
            values[name] = replace(self.graph.values[value], id=name, type=self._part(value, size))
        for i, n in own.items():
            part = self._of(n, size, self.halos[i])
            assert part is not None
            inputs = tuple(made.get(v) or parts.get((v, self.halos[i]), v) for v in n.inputs)
            yield replace(part, inputs=inputs, outputs=tuple(made.get(o, o) for o in n.outputs))
        for value in behind:
            yield Node(OPS["loopstack"](**said), (made[value],), (value,), origin, ())

    def _behind(self, group: Collection[int]) -> list[str]:
        """What a group makes and something outside reads."""
        readers, ends = self._readers(), set(self.graph.outputs)
        made = dict.fromkeys(o for i in group for o in self.graph.nodes[i].outputs if o)
        return [v for v in made if v in ends or any(r not in group for r in readers.get(v, ()))]


def _new(name: str, values: Mapping[str, Value]) -> str:
    while name in values:
        name += "'"
    return name
