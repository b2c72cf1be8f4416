"""Key and value caches in codes of 8 bits with a scale for every head.

New rows are rounded once, as they are written; the codes then stay as they are, whatever follows. Attention
reads the cache in the type that it computes in, which the codes are turned into as they are read:

    narrow = rows in the cache's type           [1, heads, new, size]
    next   = cache * kept + here @ narrow       in the cache's type: `kept` and `here` are flags of 0 and 1
    wide   = next in the type of attention
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
from npuflow.quantise.types import usable_scale
from npuflow.run.floats import FloatRun
from npuflow.run.walk import Feed

BITS = 8
HEADS = 1                                 # the dimension of a cache that has scales of its own
FLAG = QuantType(BITS, True, (1.0,))      # flags of 0 and 1 are their own codes

CacheScales = Mapping[str, tuple[float, ...]]
"""By the state that holds a cache, a scale for each head."""


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
            yield GrowingCache(given, made, moved.inputs[1], old, moved, (*flags[0], *flags[1]))


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


def cache_scales(graph: Graph, feeds: Sequence[Feed], room: float, power_of_two: bool) -> CacheScales:
    """What every cache needs by head, for rows that reach `room` times as far as those of samples."""
    known = list(growing_caches(graph))
    if not known or not feeds:
        return {}
    run, reach = FloatRun.of(graph, [one.made for one in known]), dict[str, npt.NDArray[np.float64]]()
    for feed in feeds:
        values = run.run(feed)
        for one in known:
            high = np.abs(values[one.made].astype(np.float64)).max((0, 2, 3))
            reach[one.given] = np.maximum(reach.get(one.given, 0.0), high)
    return {
        given: tuple(usable_scale(float(h) * room / FLAG.hi, power_of_two) for h in high)
        for given, high in reach.items()
    }


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


def narrowed(graph: Graph, scales: CacheScales) -> NarrowCaches:
    """Turn new rows into the type of their cache, and caches into that of what reads them."""
    known = [one for one in growing_caches(graph) if one.given in scales]
    if not known:
        return NarrowCaches(graph)
    values, types, before = dict(graph.values), dict[str, QuantType](), dict[str, Node]()
    behind, instead = dict[str, Node](), dict[str, str]()
    for one in known:
        quant = QuantType(BITS, True, scales[one.given], axis=HEADS)
        narrow, wide = f"{one.given}:narrow", f"{one.given}:wide"
        values[narrow] = Value(narrow, graph.type(one.rows))
        values[wide] = Value(wide, graph.type(one.made))
        own = (one.given, one.made, narrow, one.old.outputs[0], one.moved.outputs[0])
        types |= dict.fromkeys(own, quant) | dict.fromkeys(one.flags, FLAG)
        before[one.moved.outputs[0]] = Node(OPS["requantize"](), (one.rows,), (narrow,), one.moved.origin)
        behind[one.made] = Node(OPS["requantize"](), (one.made,), (wide,), one.moved.origin)
        instead[one.made] = wide
    nodes, rows = list[Node](), {one.moved.outputs[0]: one.rows for one in known}
    for node in graph.nodes:
        out = node.outputs[0]
        if out in before:
            own_rows = before[out].outputs[0]
            nodes.append(before[out])
            node = replace(node, inputs=tuple(own_rows if v == rows[out] else v for v in node.inputs))
        nodes.append(replace(node, inputs=tuple(instead.get(v, v) for v in node.inputs)))
        nodes += [behind[v] for v in node.outputs if v in behind]
    made = graph.replaced(nodes=tuple(nodes), values=values)
    return NarrowCaches(verify(prune(made), "caches of 8 bits"), types)
