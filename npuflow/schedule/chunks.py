"""Layers of a free length that work step by step, as loops over chunks of some steps each.

Such a loop carries nothing: a chunk of each tensor enters, the layers compute it as they compute the whole,
and what others read is stacked. A layer with a window along the steps reads a chunk with the steps around it;
what other layers of the loop make of these they make again in the next chunk. How many chunks run is read
where the steps of recurrent layers are; behind them all is zeros. The graph that is quantised, run and
compared has no such loops.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from types import MappingProxyType

from npuflow.ir.chunk import ChunkSteps, part_of
from npuflow.ir.graph import Graph
from npuflow.ir.loops import border
from npuflow.ir.op import OPS, Node
from npuflow.ir.types import Value
from npuflow.schedule.by_steps import NO_HALO, BySteps, Halo, widest

SIZES = (64, 32, 16, 8)                   # steps of a chunk that are tried, about
FEWEST = 12                               # chunks: of fewer steps a loop is written out


def chunk_sizes(graph: Graph) -> tuple[int, ...]:
    """Steps of a chunk that may be worth a plan, the most first: next to each of `SIZES` one that divides the
    most steps, where it is no less than half of it. Else, and where chunks make again what windows read
    around them, that size, or as many steps as `FEWEST` chunks have; behind strides the next whole number of
    steps there. None: no layer outside loops works step by step."""
    if not graph.lengths or not (groups := (made := _Chunks.of(graph)).groups):
        return ()
    most, (before, behind) = graph.lengths[0].most, widest(*(g.halo for g in groups))
    least, limit = max(SIZES[-1] // 2, before, behind), (most - max(behind, 1)) // (FEWEST - 1)
    each = made.own.stride(made.own.steps)
    if each > 1:
        wholes = dict.fromkeys(each * max(min(size, limit) // each, -(-least // each)) for size in SIZES)
        return tuple(n for n in wholes if all(made.count(g, n) >= FEWEST for g in groups))
    again = any(halo != NO_HALO for g in groups for halo in g.around.values())
    fit = [n for n in range(least, 2 * SIZES[0]) if most % n == 0 and most // n >= FEWEST]
    found = list[int]()
    for size in SIZES:
        near = min(fit, key=lambda n: abs(n - size), default=0)
        size = min(size, limit)
        found.append(near if 2 * near >= size and not again else max(size, least))
    return tuple(dict.fromkeys(size for size in found if size <= limit or size in fit))


def chunked(graph: Graph, size: int) -> Graph:
    """The graph with layers that work step by step along its free length as loops over chunks of `size`
    steps, the last one of as many as are left; 0: the graph as it is. Values keep their names, bits and
    types behind the loops; one that only a chunk has is a chunk's."""
    return _Chunks.of(graph).written(size) if size else graph


def whole_layers(graph: Graph) -> dict[str, str]:
    """Layers outside loops that follow a free length and run at the most steps, by name: why."""
    if not graph.lengths:
        return {}
    made = _Chunks.of(graph)
    inner = {i for group in made.groups for i in group.nodes}
    found = dict(made.own.whole)
    for number in sorted({made.own.depth[i] for i in made.own.windows}):
        nodes = [i for i in made.own.windows if made.own.depth[i] == number]
        why = made.obstacle(made.trimmed(nodes))
        layers = [i for i in nodes if i not in inner and not made.own.is_view(graph.nodes[i])]
        found.update(dict.fromkeys(layers if why else (), why))
    return {graph.nodes[i].name: found[i] for i in sorted(found)}


@dataclass(frozen=True)
class _Group:
    """Nodes that are a loop, by position; which steps around its own a chunk has of each value that they
    make; the same of all values, those that it reads among them; and the most, in steps of the length."""

    nodes: tuple[int, ...]
    around: Mapping[str, Halo]
    every: Mapping[str, Halo]
    halo: Halo


@dataclass(frozen=True)
class _Chunks:
    graph: Graph
    own: BySteps

    @classmethod
    def of(cls, graph: Graph) -> _Chunks:
        return cls(graph, BySteps(graph, graph.lengths[0]))

    @cached_property
    def groups(self) -> tuple[_Group, ...]:
        """The loops. Views at the ends of one stay outside, where they cost nothing."""
        depth = self.own.depth
        every = [
            self.trimmed([i for i in depth if depth[i] == number])
            for number in sorted(set(depth.values())) if number % 2
        ]
        return tuple(self._group(nodes) for nodes in every if nodes and not self.obstacle(nodes))

    def _group(self, nodes: Sequence[int]) -> _Group:
        around, most = dict[str, Halo](), NO_HALO
        for i in reversed(nodes):
            node = self.graph.nodes[i]
            made = widest(*(around.get(o, NO_HALO) for o in node.outputs))
            around.update(dict.fromkeys((o for o in node.outputs if o), made))
            for v in self.own.read(node):
                read = self.own.windows[i].around(made)
                around[v] = widest(around.get(v, NO_HALO), read)
                each = self.own.steps[v].count.stride
                most = widest(most, (each * read[0], each * read[1]))
        own = {o: around[o] for i in nodes for o in self.graph.nodes[i].outputs if o}
        return _Group(tuple(nodes), own, around, most)

    def count(self, group: _Group, size: int) -> int:
        """Of how many chunks of so many steps a loop is."""
        return min(self.own.chunks(value, size, halo) for value, halo in group.every.items())

    def trimmed(self, numbers: Collection[int]) -> tuple[int, ...]:
        left, before, readers = set(numbers), -1, self.own.readers
        while len(left) != before:
            before = len(left)
            made = {o for i in left for o in self.graph.nodes[i].outputs}
            for i in [i for i in left if self.own.is_view(self.graph.nodes[i])]:
                node = self.graph.nodes[i]
                inner = any(r in left for o in node.outputs for r in readers.get(o, ()))
                if not made & set(node.inputs) or not inner:
                    left.remove(i)
        return tuple(sorted(left))

    def obstacle(self, group: Collection[int]) -> str:
        """Why nodes are no loop over chunks. What enters it has the steps first, or is an input, which is
        there before all commands; what it makes has the steps first; and whoever reads that takes nothing to
        a step from those behind which no chunk covers: they are zeros."""
        nodes, steps, ends = [self.graph.nodes[i] for i in group], self.own.steps, set(self.graph.outputs)
        made = {o for n in nodes for o in n.outputs}
        entering = dict.fromkeys(v for n in nodes for v in self.own.read(n) if v not in made)
        for value in entering:
            if steps[value].axis and value not in self.own.ports | self.own.masks:
                return f'the steps of "{value}", which enters, are not its first dimension'
        for value in self._behind(group):
            if steps[value].axis:
                return f'the steps of "{value}", which others read, are not its first dimension'
            for i in self.own.readers.get(value, ()):
                node = self.graph.nodes[i]
                by_steps = i in self.own.windows or border(node)[0] == "slice"
                if not by_steps and not set(node.outputs) <= ends:
                    return f'{node.name} reads all of "{value}"'
        return ""

    def written(self, size: int) -> Graph:
        nodes, values, chunks = list[Node](), dict(self.graph.values), dict[str, ChunkSteps]()
        first = {group.nodes[0]: group for group in self.groups}
        inner = {i for group in first.values() for i in group.nodes}
        for i in sorted(self.own.depth, key=lambda i: (self.own.depth[i], i)):
            if i in first:
                nodes += self._loop(first[i], size, values, chunks)
            elif i not in inner:
                nodes.append(self.graph.nodes[i])
        return self.graph.replaced(
            nodes=tuple(nodes), values=MappingProxyType(values), chunks=MappingProxyType(chunks)
        )

    def _behind(self, group: Collection[int]) -> list[str]:
        """What a group makes and something outside reads."""
        readers, ends = self.own.readers, set(self.graph.outputs)
        made = dict.fromkeys(o for i in group for o in self.graph.nodes[i].outputs if o)
        return [v for v in made if v in ends or any(r not in group for r in readers.get(v, ()))]

    @cached_property
    def _beyond(self) -> Mapping[str, int]:
        return self.own.beyond()

    def _loop(
        self, group: _Group, size: int, values: dict[str, Value], chunks: dict[str, ChunkSteps]
    ) -> Iterator[Node]:
        """A loop over chunks of some nodes; its values are added to `values` and `chunks`."""
        nodes, behind = [self.graph.nodes[i] for i in group.nodes], self._behind(group.nodes)
        first, count, steps = nodes[0], self.count(group, size), self.own.steps
        said = {
            "loop": f"{first.outputs[0]}:chunks", "steps": count, "chunk": size,
            "beyond": max(steps[value].count.reached(self._beyond.get(value, 0)) for value in behind),
        }
        body = _Body(self.own, size, count, values, chunks)
        wanted = [self.own.windows[i].around(group.around[n.outputs[0]])
                  for i, n in zip(group.nodes, nodes, strict=True)]
        for n, halo in zip(nodes, wanted, strict=True):
            for value in self.own.read(n):
                if value not in group.around and (value, halo) not in body.parts:
                    part = body.made(_new(f"{value}:part", values), value, halo)
                    cut = {"axis": self.own.steps[value].axis, "in_row": value in self.own.masks}
                    op = OPS["loopslice"](**said, **cut, halo=halo, lacking=body.lacking(value))
                    yield Node(op, (value,), (part,), first.origin, ())
        for value, halo in group.around.items():
            body.made(_new(f"{value}:part", values) if value in behind else value, value, halo)
        for i, n, halo in zip(group.nodes, nodes, wanted, strict=True):
            yield from body.cuts([(v, halo) for v in self.own.read(n)], group.around, first.origin)
            around = group.around[n.outputs[0]]
            own = self.own.of(n, size, around, self.own.windows[i])
            assert own is not None
            inputs = tuple(body.parts.get((v, halo), v) for v in n.inputs)
            outputs = tuple(body.parts.get((o, around), o) for o in n.outputs)
            yield replace(own, inputs=inputs, outputs=outputs)
        yield from body.cuts([(v, NO_HALO) for v in behind], group.around, first.origin)
        for value in behind:
            op = OPS["loopstack"](**said, lacking=body.lacking(value))
            yield Node(op, (body.parts[value, NO_HALO],), (value,), first.origin, ())


@dataclass
class _Body:
    """What a loop over chunks has of values, by value and the steps around a chunk; written into `values` and
    `chunks`."""

    own: BySteps
    size: int
    count: int
    values: dict[str, Value]
    chunks: dict[str, ChunkSteps]
    parts: dict[tuple[str, Halo], str] = field(default_factory=dict)

    def made(self, name: str, value: str, halo: Halo) -> str:
        kind = self.own.part(value, self.size, halo)
        self.values[name] = replace(self.own.graph.values[value], id=name, type=kind)
        self.chunks[name] = self.own.chunk(value, self.size, self.count, halo)
        self.parts[value, halo] = name
        return name

    def lacking(self, value: str) -> int:
        """How many parts fewer the last chunk has."""
        own = self.own.steps[value]
        return (self.count * self.size // own.count.stride - self.own.most(value)) * own.rows

    def cuts(
        self, wanted: Sequence[tuple[str, Halo]], around: Mapping[str, Halo], origin: tuple[str, ...]
    ) -> Iterator[Node]:
        """Parts of what a chunk has of values that it makes, where fewer steps around it are enough."""
        for value, halo in wanted:
            if value in around and (value, halo) not in self.parts:
                source = self.parts[value, around[value]]
                part = self.made(_new(f"{value}:inner", self.values), value, halo)
                op = part_of(self.chunks[source], self.chunks[part])
                yield Node(op, (source,), (part,), origin, ())


def _new(name: str, values: Mapping[str, Value]) -> str:
    while name in values:
        name += "'"
    return name
