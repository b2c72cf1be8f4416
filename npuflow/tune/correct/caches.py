"""Key and value caches in codes of 8 bits with a scale for every head.

New rows are rounded once, as they are written; the codes then stay as they are, whatever follows:

    narrow = rows in the cache's type           [1, heads, new, size]
    next   = cache * kept + here @ narrow       in the cache's type: `kept` and `here` are flags of 0 and 1

Products of integers read these codes. What they are multiplied with, or what they give, has scales by head
too, such that all heads have one multiplier: queries c / s of head h, sums of values c * s. Products of
floats read the cache in their own type, which codes are turned into:

    scores = (queries in 16 bits by head) @ transposed next         or      queries @ transposed wide
    y      = (weights @ next, in 16 bits by head) in y's type       or      weights @ wide
    wide   = next in the type of floats
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from npuflow.base.errors import ModelError, NpuflowError
from npuflow.ir.graph import Graph, prune
from npuflow.ir.op import OPS, Node
from npuflow.ir.types import QuantType, Value
from npuflow.ir.verify import verify
from npuflow.place.names import names_of
from npuflow.place.place import op_name
from npuflow.quantise.config import Quantize
from npuflow.quantise.types import usable_scale
from npuflow.run.floats import FloatRun
from npuflow.tune.walk import Feed

BITS, WIDE = 8, 16
ROOM = 1.25                               # how far queries may go beyond what samples had
HEADS = 1                                 # the dimension of a cache that has scales of its own
FLAG = QuantType(BITS, True, (1.0,))      # flags of 0 and 1 are their own codes

@dataclass(frozen=True)
class HeadScales:
    """A scale for each head of a cache, and the largest magnitude of what multiplies its codes over them:
    of queries times these scales; 0: nothing was seen."""

    scales: tuple[float, ...]
    queries: float = 0.0


CacheScales = Mapping[str, HeadScales]
"""By the state that holds a cache."""


@dataclass(frozen=True)
class CacheReader:
    """A product that reads a cache, maybe by way of a node that exchanges its last two dimensions."""

    product: Node
    turned: Node | None = None


@dataclass(frozen=True)
class GrowingCache:
    """A state to which every run adds rows: `given`, `made`, the nodes between, and the values of flags that
    say which rows stay and where new ones go."""

    given: str
    made: str
    rows: str
    old: Node
    moved: Node
    flags: tuple[str, ...]
    readers: tuple[CacheReader, ...]


def growing_caches(graph: Graph) -> Iterator[GrowingCache]:
    """States [1, heads, rows, size] that are what they were with other rows put into them."""
    makers, readers = graph.producer(), graph.consumers()
    for made, given in graph.state:
        added, shape = makers.get(made), graph.type(given).shape
        if added is None or added.op.algebra != "sum" or len(shape) != 4 or shape[0] != 1:
            continue
        parts = [n for v in added.inputs if (n := makers.get(v)) is not None]
        old = next((n for n in parts if n.op.algebra == "product" and given in n.inputs), None)
        moved = next((n for n in parts if n.op.algebra == "matrices"), None)
        if old is None or moved is None or [n.outputs for n in readers[given]] != [old.outputs]:
            continue
        kept = next(v for v in old.inputs if v != given)
        flags = [_flags(graph, makers, v) for v in (kept, moved.inputs[0])]
        if all(flags):
            own = tuple(_reader(graph, readers, node, made) for node in readers.get(made, ()))
            if all(r is not None for r in own):
                found = tuple(r for r in own if r is not None)
                yield GrowingCache(given, made, moved.inputs[1], old, moved, (*flags[0], *flags[1]), found)


def _reader(
    graph: Graph, readers: Mapping[str, Sequence[Node]], node: Node, made: str
) -> CacheReader | None:
    """The product that a reader of a cache is, or that alone reads what it exchanges dimensions of."""
    if node.op.algebra == "matrices":
        return CacheReader(node) if node.inputs[1] == made and node.inputs[0] != made else None
    behind, shape = readers.get(node.outputs[0], []), graph.type(made).shape
    turned = graph.type(node.outputs[0]).shape == (*shape[:2], shape[3], shape[2])
    if not node.op.moves_data or not turned or len(behind) != 1:
        return None
    found = behind[0].op.algebra == "matrices" and behind[0].inputs[1] == node.outputs[0]
    return CacheReader(behind[0], node) if found else None


def _flags(graph: Graph, makers: Mapping[str, Node], value: str) -> tuple[str, ...]:
    """Values from rows of a table of 0 and 1 to this one, moved alone; empty: it is not made so."""
    found = []
    while (node := makers.get(value)) is not None:
        found.append(value)
        table = graph.const(node.inputs[0]) if node.op.role(0) == "table" else None
        if table is not None:
            return tuple(found) if np.isin(table, (0, 1)).all() else ()
        if not node.op.moves_data or len(node.inputs) != 1:
            return ()
        value = node.inputs[0]
    return ()


def cache_scales(graph: Graph, feeds: Sequence[Feed], power_of_two: bool) -> CacheScales:
    """What every cache needs by head for what samples have there."""
    known = list(growing_caches(graph))
    if not known or not feeds:
        return {}
    queries = {r.product.inputs[0] for one in known for r in one.readers if r.turned is not None}
    names = [*(one.made for one in known), *sorted(queries)]
    run, reach = FloatRun.of(graph, names), dict[str, npt.NDArray[np.float64]]()
    for feed in feeds:
        values = run.run(feed)
        for name in names:
            high = np.abs(values[name].astype(np.float64)).max((0, 2, 3))
            reach[name] = np.maximum(reach.get(name, 0.0), high)
    found = {}
    for one in known:
        own = tuple(usable_scale(float(h) / FLAG.hi, power_of_two) for h in reach[one.made])
        seen = [reach[r.product.inputs[0]] * own for r in one.readers if r.turned is not None]
        found[one.given] = HeadScales(own, float(np.max(seen, initial=0.0)))
    return found


def no_cache(bits: int) -> NpuflowError:
    """The fault of a recipe that states how wide caches are, of a model that has none."""
    return ModelError(
        f"[quantize] cache = {bits}, and no state of the model is a cache of keys or values",
        because="no state [1, heads, rows, size] is what it was with other rows put into it at an index",
        hint="leave it out", code="NF-MODEL-520",
    ).at(key="quantize.cache")


@dataclass(frozen=True)
class NarrowCaches:
    """The network with caches in codes, the types of what they are made of, and the scales."""

    graph: Graph
    types: Mapping[str, QuantType] = field(default_factory=dict)


def narrowed(graph: Graph, scales: CacheScales, quantize: Quantize) -> NarrowCaches:
    """Turn new rows into the type of their cache, and caches, or what meets them, into that of what reads
    them, which the table says."""
    work = _Narrowing(graph, quantize)
    for one in growing_caches(graph):
        if one.given in scales:
            work.add(one, scales[one.given])
    return NarrowCaches(work.done(), work.types)


@dataclass
class _Narrowing:
    graph: Graph
    quantize: Quantize
    types: dict[str, QuantType] = field(default_factory=dict)
    values: dict[str, Value] = field(default_factory=dict)
    changed: dict[str, Node] = field(default_factory=dict)            # by what they make
    before: dict[str, list[Node]] = field(default_factory=dict)       # by what follows
    behind: dict[str, list[Node]] = field(default_factory=dict)       # by what they follow

    def add(self, one: GrowingCache, own: HeadScales) -> None:
        quant = QuantType(BITS, True, own.scales, axis=HEADS)
        narrow = self.value(f"{one.given}:narrow", one.rows, quant)
        self.put(self.before, one.moved, one.rows, narrow)
        self.change(one.moved, 1, narrow)
        kept = (one.given, one.made, one.old.outputs[0], one.moved.outputs[0])
        self.types |= dict.fromkeys(kept, quant) | dict.fromkeys(one.flags, FLAG)
        for reader in one.readers:
            product = reader.product
            if self.quantize.number(names_of(product), op_name(product)):
                self.widened(one, reader)
            elif reader.turned is not None:
                self.types[reader.turned.outputs[0]] = quant
                self.asked(one, product, own)
            else:
                self.answered(one, product, own)

    def widened(self, one: GrowingCache, reader: CacheReader) -> None:
        """The cache in the type of floats that a product reads."""
        wide = f"{one.given}:wide"
        if wide not in self.values:
            self.values[wide] = Value(wide, self.graph.type(one.made))
            self.behind[one.made] = [self.node(one.made, wide, one.moved)]
        self.change(reader.turned or reader.product, 0 if reader.turned is not None else 1, wide)

    def asked(self, one: GrowingCache, product: Node, own: HeadScales) -> None:
        """Queries by head: codes of all heads times those of keys have one unit."""
        unit = usable_scale(own.queries * ROOM * 2.0 ** (1 - WIDE), power_of_two=True)
        quant = QuantType(WIDE, True, tuple(unit / s for s in own.scales), axis=HEADS)
        queries = self.value(f"{one.given}:queries", product.inputs[0], quant)
        self.put(self.before, product, product.inputs[0], queries)
        self.change(product, 0, queries)

    def answered(self, one: GrowingCache, product: Node, own: HeadScales) -> None:
        """Sums by head of values times weights of 1 together: none is above the largest value."""
        quant = QuantType(WIDE, True, tuple(s * 2.0 ** (BITS - WIDE) for s in own.scales), axis=HEADS)
        sums = self.value(f"{one.given}:sums", product.outputs[0], quant)
        self.changed[product.outputs[0]] = replace(product, outputs=(sums,))
        self.put(self.behind, product, sums, product.outputs[0])

    def value(self, name: str, like: str, quant: QuantType) -> str:
        self.values[name], self.types[name] = Value(name, self.graph.type(like)), quant
        return name

    def node(self, source: str, made: str, near: Node) -> Node:
        return Node(OPS["requantize"](), (source,), (made,), near.origin)

    def put(self, where: dict[str, list[Node]], near: Node, source: str, made: str) -> None:
        where.setdefault(near.outputs[0], []).append(self.node(source, made, near))

    def change(self, node: Node, place: int, value: str) -> None:
        now = self.changed.get(node.outputs[0], node)
        inputs = tuple(value if i == place else v for i, v in enumerate(now.inputs))
        self.changed[node.outputs[0]] = replace(now, inputs=inputs)

    def done(self) -> Graph:
        nodes = list[Node]()
        for node in self.graph.nodes:
            out = node.outputs[0]
            nodes += [*self.before.get(out, ()), self.changed.get(out, node), *self.behind.get(out, ())]
        values = {**self.graph.values, **self.values}
        return verify(prune(self.graph.replaced(nodes=tuple(nodes), values=values)), "caches of 8 bits")
