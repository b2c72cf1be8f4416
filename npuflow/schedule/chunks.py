"""Layers of a free length that work step by step, as loops over chunks of some steps each.

Such a loop carries nothing: a chunk of each tensor enters, the layers compute it as they compute the whole,
and what others read is stacked. How many chunks run is read where the steps of recurrent layers are. The
graph that is quantised, run and compared has no such loops.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from npuflow.hw.target import Numerics
from npuflow.ir.graph import Graph
from npuflow.ir.lengths import Length
from npuflow.ir.loops import border, counted, loops, runs
from npuflow.ir.op import OPS, Node
from npuflow.ir.space import DimMap, IterationDomain
from npuflow.ir.types import TensorType, Value
from npuflow.place.partition import boundary, is_npu
from npuflow.schedule.model import space_of

SIZES = (8, 16, 32, 64)                   # steps of a chunk that are tried, about
FEWEST = 12                               # chunks: of fewer steps a loop is written out
ANY = Numerics()                          # axes of operators do not depend on numbers


def chunk_sizes(graph: Graph) -> tuple[int, ...]:
    """Steps of a chunk that may be worth a plan, the fewest first: those that divide the most steps, next to
    each of `SIZES`. None: no layer outside loops works step by step."""
    if not graph.lengths or not _Chunks(graph, graph.lengths[0]).groups():
        return ()
    most = graph.lengths[0].most
    fit = [n for n in range(SIZES[0] // 2, 2 * SIZES[-1]) if most % n == 0 and most // n >= FEWEST]
    return tuple(sorted({min(fit, key=lambda n: abs(n - size)) for size in SIZES})) if fit else ()


def chunked(graph: Graph, size: int) -> Graph:
    """The graph with layers that work step by step along its free length as loops over chunks of `size`
    steps, which divides the most steps. Values keep their names, bits and types behind the loops; one that
    only a chunk has is a chunk's."""
    return _Chunks(graph, graph.lengths[0]).written(size) if size else graph


@dataclass
class _Chunks:
    """`rows`: of values that have the steps along their first dimension, how many parts of it a step has."""

    graph: Graph
    length: Length
    rows: dict[str, int] = field(default_factory=dict)
    depth: dict[int, int] = field(default_factory=dict)       # of chunks an odd one: see `_depths`

    def __post_init__(self) -> None:
        axes = dict(self.length.axes)
        first = {v for v in self.graph.inputs if axes.get(v) == 0}
        first |= {
            n.outputs[0] for n in self.graph.nodes
            if boundary(self.graph, n) == "quantize" and n.inputs[0] in first
        }
        for loop in loops(self.graph):
            if counted(self.graph, loop):
                ends = (self.graph.nodes[i] for i in loop.nodes)
                first |= {n.outputs[0] for n in ends if border(n)[0] == "stack"}
        for value in first:
            self._stepped(value)
        self._depths()

    def _stepped(self, value: str) -> bool:
        shape, most = self.graph.type(value).shape, self.length.most
        if shape and shape[0] and shape[0] % most == 0 and self.graph.values[value].quant is not None:
            self.rows[value] = shape[0] // most
        return value in self.rows

    def _depths(self) -> None:
        """Numbers so that what has one odd number may run as one loop: no other node is between. Nodes that
        work step by step have odd numbers, all others even ones, and no number is less than an input's."""
        made = dict[str, int]()
        for unit in runs(self.graph):
            nodes = [self.graph.nodes[i] for i in unit]
            least = max((made.get(v, 0) for n in nodes for v in n.inputs), default=0)
            odd = len(unit) == 1 and self._by_steps(nodes[0])
            number = least + (least % 2 != odd)
            self.depth.update(dict.fromkeys(unit, number))
            made.update((o, number) for n in nodes for o in n.outputs)

    def _by_steps(self, node: Node) -> bool:
        """Whether a node computes each part of its results along the first dimension from the same part of
        its operands."""
        given = self._given(node)
        if not is_npu(node) or border(node)[0] or not given or any(v not in self.rows for v in given):
            return False
        if not self._is_view(node) and not self._along(node, space_of(self.graph.site(node), ANY)):
            return False
        return all([self._stepped(o) for o in node.outputs if o]) and self._of(node, 1) is not None

    def _along(self, node: Node, space: IterationDomain) -> bool:
        """Whether one axis is the first dimension of activations and results, and nothing else."""
        sides = (*zip(node.inputs, space.inputs, strict=False), *zip(node.outputs, space.outputs, strict=False))
        ends = [(self.graph.const(v) is None, one) for v, one in sides if v and one is not None]
        firsts = {one.maps[0] for varies, one in ends if varies}
        axis = next(iter(firsts)).axis if len(firsts) == 1 else None
        if axis is None or firsts != {DimMap(axis)}:
            return False
        others = [m for varies, one in ends for m in one.maps[varies:]] + [m for p in space.params for m in p.maps]
        known = space.axis(axis)
        return known.kind == "par" and known.multiple == 1 and all(m.axis != axis for m in others)

    def _given(self, node: Node) -> list[str]:
        """The operands that are activations."""
        return [v for v in node.inputs if v and self.graph.const(v) is None]

    def _is_view(self, node: Node) -> bool:
        return is_npu(node) and not border(node)[0] and node.op.moves(self.graph.site(node)) == ()

    def _part(self, value: str, size: int) -> TensorType:
        kind = self.graph.type(value)
        return TensorType((self.rows[value] * size, *kind.shape[1:]), kind.dtype)

    def _of(self, node: Node, size: int) -> Node | None:
        """The node on chunks of so many steps; None where it is another operator there."""
        wanted = [self._part(o, size) for o in node.outputs if o]
        op = node.op.with_results(wanted) or node.op
        kinds = [self._part(v, size) if v in self.rows else self.graph.type(v) if v else None for v in node.inputs]
        return replace(node, op=op) if list(op.infer(*kinds)) == wanted else None

    def groups(self) -> list[tuple[int, ...]]:
        """Nodes that are a loop each, by position. Views at the ends of one stay outside, where they cost
        nothing."""
        found = [
            tuple(self._trimmed([i for i, own in self.depth.items() if own == number]))
            for number in sorted(set(self.depth.values())) if number % 2
        ]
        return [group for group in found if group]

    def _trimmed(self, numbers: Collection[int]) -> list[int]:
        left, before, readers = set(numbers), -1, self.graph.consumers()
        place = {id(n): i for i, n in enumerate(self.graph.nodes)}
        while len(left) != before:
            before = len(left)
            made = {o for i in left for o in self.graph.nodes[i].outputs}
            for i in [i for i in left if self._is_view(self.graph.nodes[i])]:
                node = self.graph.nodes[i]
                inner = [place[id(r)] in left for o in node.outputs for r in readers.get(o, ())]
                if not made & set(node.inputs) or not any(inner):
                    left.remove(i)
        return sorted(left)

    def written(self, size: int) -> Graph:
        nodes, values = list[Node](), dict(self.graph.values)
        first = {group[0]: group for group in self.groups()}
        inner = {i for group in first.values() for i in group}
        for i in sorted(self.depth, key=lambda i: (self.depth[i], i)):
            if i in first:
                nodes += self._loop(first[i], size, values)
            elif i not in inner:
                nodes.append(self.graph.nodes[i])
        return self.graph.replaced(nodes=tuple(nodes), values=MappingProxyType(values))

    def _loop(self, group: Sequence[int], size: int, values: dict[str, Value]) -> Iterator[Node]:
        """A loop over chunks of some nodes; its values are added to `values`."""
        own = [self.graph.nodes[i] for i in group]
        made = {o for n in own for o in n.outputs if o}
        names = {v: f"{v}:part" for n in own for v in self._given(n) if v not in made}
        said = {"loop": f"{own[0].outputs[0]}:chunks", "steps": self.length.most // size, "chunk": size}
        for value, part in names.items():
            yield Node(OPS["loopslice"](**said), (value,), (part,), own[0].origin, ())
        behind = [v for v in dict.fromkeys(o for n in own for o in n.outputs if o) if self._read(v, group)]
        names |= {v: f"{v}:part" for v in behind}
        for value in (*names, *made):
            name = names.get(value, value)
            values[name] = replace(self.graph.values[value], id=name, type=self._part(value, size))
        values.update((v, self.graph.values[v]) for v in names)
        for node in own:
            part = self._of(node, size)
            assert part is not None
            yield replace(
                part, inputs=tuple(names.get(v, v) for v in node.inputs),
                outputs=tuple(names.get(o, o) for o in node.outputs),
            )
        for value in behind:
            yield Node(OPS["loopstack"](**said), (names[value],), (value,), own[0].origin, ())

    def _read(self, value: str, group: Collection[int]) -> bool:
        """Whether something outside reads what a group makes."""
        if value in self.graph.outputs:
            return True
        return any(value in n.inputs for i, n in enumerate(self.graph.nodes) if i not in group)
