"""Lets nodes read values where they lie, and parts of them, so that no command copies them.

In a plan of caches that grow by some rows, what reads one reads external memory, where the new rows are
stored, and a product reads it as it lies. In a plan of loops, a Slice whose readers work point by point is
left out: they read its source, each from the place where its part begins. So do those of an LSTM's gates,
which one product makes. The graph that is quantised, run and compared has neither.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from npuflow.ir.graph import Graph
from npuflow.ir.op import OPS, InnerPart, Node
from npuflow.ir.space import DimMap, IterationDomain, Operand
from npuflow.ir.types import QuantType


def in_wholes(space: IterationDomain, inner: Sequence[InnerPart]) -> IterationDomain:
    """The space with operands that speak of the whole values."""
    inputs = list(space.inputs)
    for place, begins, _, whole in inner:
        operand = inputs[place]
        assert operand is not None
        moved = (replace(m, lo=m.lo + b, hi=m.hi + b) for m, b in zip(operand.maps, begins, strict=True))
        inputs[place] = Operand(operand.name, whole, tuple(moved))
    return replace(space, inputs=tuple(inputs))


def reading_inner(graph: Graph, within: Collection[tuple[str, ...]], chunks: Collection[str] = ()) -> Graph:
    """The graph with readers of parts in the place of Slices. `within`: nodes by what they make; others
    stay. `chunks`: parts that convolutions may read, too."""
    consumers, nodes = graph.consumers(), {n.outputs: n for n in graph.nodes}
    for node in graph.nodes:
        begins = _begins(graph, node) if node.outputs in within else None
        out = node.outputs[0]
        readers = [n.outputs for n in consumers.get(out, [])]
        if begins is None or out in graph.outputs or not readers:
            continue
        if not all(r in within and _in_place(graph, nodes[r], out, out in chunks) for r in readers):
            continue
        part = begins, graph.type(out).shape, graph.type(node.inputs[0]).shape
        for r in readers:
            nodes[r] = _reading(nodes[r], out, node.inputs[0], part)
        del nodes[node.outputs]
    return graph.replaced(nodes=tuple(nodes[n.outputs] for n in graph.nodes if n.outputs in nodes))


def _begins(graph: Graph, node: Node) -> tuple[int, ...] | None:
    """Where the part begins that a node cuts out of its only input; None of other nodes."""
    if not node.is_integer or len(node.outputs) != 1 or len(node.inputs) != 1 or node.op.inner:
        return None
    site = graph.site(node)
    space = site.op.local_space(site) if site.consts[0] is None and node.op.moves(site) else None
    source = graph.values[node.inputs[0]]
    same = type(source.quant) is QuantType and source.quant == site.outputs[0].quant
    if space is None or not same or space.inputs[0] is None or site.shape(0) == site.out_shape:
        return None
    maps = space.inputs[0].maps
    plain = all(m == DimMap(f"d{d}", lo=m.lo, hi=m.lo) and m.lo >= 0 for d, m in enumerate(maps))
    return tuple(m.lo for m in maps) if plain and len(maps) == len(site.out_shape) else None


def _in_place(graph: Graph, node: Node, value: str, chunk: bool) -> bool:
    """Whether a node can read a part of a value where it lies: point by point, or the pixels of a
    convolution, whose border is around the part."""
    pixels = chunk and node.is_integer and node.op.algebra == "convolution" and node.inputs[0] == value
    return pixels or _pointwise(graph, node, value)


def _pointwise(graph: Graph, node: Node, value: str) -> bool:
    """Whether a node reads a value point by point, and does so once."""
    shape = graph.type(value).shape
    alike = node.is_integer and node.op.elementwise and graph.type(node.outputs[0]).shape == shape
    return alike and len(node.outputs) == 1 and node.inputs.count(value) == 1


def _reading(
    node: Node, part: str, whole: str, where: tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]
) -> Node:
    place = node.inputs.index(part)
    inputs = tuple(whole if v == part else v for v in node.inputs)
    inner = tuple(sorted((*node.op.inner, (place, *where))))
    return replace(node, op=replace(node.op, inner=inner), inputs=inputs)


def reading_caches(graph: Graph) -> Graph:
    """The graph whose caches are read where they lie: states to which a product adds rows. All readers read a
    value that is the cache's bytes in external memory."""
    makers, users = graph.producer(), graph.consumers()
    nodes, values = {n.outputs: [n] for n in graph.nodes}, dict(graph.values)
    for made in _caches(graph, makers, users):
        rows = f"{made}:rows"
        values[rows] = replace(values[made], id=rows)
        nodes[makers[made].outputs].append(Node(OPS["looprows"]((0,), 1), (made,), (rows,), params=()))
        sources = [(made, rows)]
        for n in users.get(made, []):
            if n.is_integer and n.op.retypes:          # products read what it makes in the place of the cache
                nodes[n.outputs] = [replace(n, inputs=(rows,))]
                sources.append((n.outputs[0], n.outputs[0]))
        for source, taken in sources:
            _read(graph, source, taken, nodes, users)
    every = tuple(n for group in nodes.values() for n in group)
    return graph.replaced(nodes=every, values=MappingProxyType(values))


def _read(
    graph: Graph, source: str, taken: str, nodes: dict[tuple[str, ...], list[Node]],
    users: Mapping[str, Sequence[Node]],
) -> None:
    """What reads a cache reads the value `taken`; products do so as it lies."""
    for reader in (n for n in users.get(source, []) if n.is_integer and not n.op.makes and not n.op.retypes):
        product = _exchanged(graph, reader, users)
        if product is not None:
            del nodes[reader.outputs]
        read, last = (source, reader) if product is None else (reader.outputs[0], product)
        (own,) = nodes[last.outputs]
        cached = own.op.reading_cache(own.inputs.index(read), product is not None) or own.op
        inputs = tuple(taken if v == read else v for v in own.inputs)
        nodes[last.outputs] = [replace(own, op=cached, inputs=inputs)]


def _caches(
    graph: Graph, makers: Mapping[str, Node], users: Mapping[str, Sequence[Node]]
) -> Iterator[str]:
    """What becomes a state: the sum of a product, and of the state times what says which rows stay."""
    for output, given in graph.state:
        last = makers.get(output)
        made = last.inputs[0] if last is not None and last.op.makes == "floats" else output
        first = [n for n in users.get(given, []) if n.op.makes == "codes"]
        held = first[0].outputs[0] if first else given
        added = makers.get(made)
        if added is None or not added.is_integer or added.op.algebra != "sum":
            continue
        parts = [n for v in added.inputs if (n := makers.get(v)) is not None]
        kept = any(n.op.algebra == "product" and held in n.inputs for n in parts)
        if kept and any(n.op.algebra == "matrices" for n in parts):
            yield made


def _exchanged(graph: Graph, node: Node, users: Mapping[str, Sequence[Node]]) -> Node | None:
    """The product that alone reads what a node exchanges the last two dimensions of, and can do it itself."""
    site, readers = graph.site(node), users.get(node.outputs[0], [])
    space = site.op.local_space(site) if site.consts[0] is None and node.op.moves(site) else None
    if space is None or space.inputs[0] is None or len(readers) != 1 or node.outputs[0] in graph.outputs:
        return None
    axes = [DimMap(f"d{d}") for d in range(len(site.out_shape))]
    exchanged = len(axes) > 1 and list(space.inputs[0].maps) == [*axes[:-2], axes[-1], axes[-2]]
    (reader,) = readers
    able = reader.is_integer and reader.inputs[1:] == node.outputs
    return reader if exchanged and able and reader.op.reading_cache(1, True) is not None else None
