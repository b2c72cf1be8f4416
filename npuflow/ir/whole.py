"""Ranges of whole numbers that positions, counts or flags can be.
They are derived from the operators that give them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import ceil, floor, isfinite

import numpy as np

from npuflow.ir.graph import Graph
from npuflow.ir.op import Node
from npuflow.ir.queries import maker
from npuflow.ir.types import INDEX_BITS, Array, QuantType, Span, Value

SOME = 256  # elements of a constant that are checked before all of them
_FAR = 200  # nodes that are looked back
_NARROW = ("bool", "uint8", "int8", "uint16", "int16")  # types whose own range says enough


def whole_span(graph: Graph, value_id: str) -> Span | None:
    """The range of a value whose elements are whole numbers; None where they are not, or no range is
    known."""
    return _Search(graph).span(value_id, _FAR)


def code_type(span: Span) -> QuantType | None:
    """The type in which whole numbers of the range are their own codes, signed where that suffices."""
    half = 1 << (INDEX_BITS - 1)
    if -half <= span[0] and span[1] < half:
        return QuantType(INDEX_BITS, True, (1.0,))
    return QuantType(INDEX_BITS, False, (1.0,)) if span[0] >= 0 and span[1] < 2 * half else None


def constant_span(held: Array) -> Span | None:
    """The range of a constant of whole numbers."""
    if held.dtype.kind not in "biuf" or not held.size:
        return None
    for part in (held.flat[:SOME], held):          # the first elements of most weights are fractions already
        real = part.astype(np.float64)
        if not np.isfinite(real).all() or np.any(real != np.rint(real)):
            return None
    return int(real.min()), int(real.max())


class _Search:
    """Ranges of values of one graph, each found once."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.found: dict[str, Span | None] = {}

    def span(self, value_id: str, far: int) -> Span | None:
        if value_id not in self.found:
            self.found[value_id] = self._span(value_id, far)
        return self.found[value_id]

    def _span(self, value_id: str, far: int) -> Span | None:
        held, node = self.graph.const(value_id), maker(self.graph, value_id)
        if held is not None:
            return constant_span(held)
        known = self._result(node, value_id, far) if node is not None and far else None
        return _of_type(self.graph.type(value_id).dtype) if known is None else known

    def _result(self, node: Node, value_id: str, far: int) -> Span | None:
        site = self.graph.site(node)
        spans = [self.span(i, far - 1) if i else None for i in node.inputs]
        known = node.op.whole_result(site, spans, node.outputs.index(value_id))
        return known if known is None or node.op.clip is None else _clipped(known, node.op.clip)


def spans_of(graph: Graph) -> dict[str, Span]:
    """The ranges of all values that are whole numbers of a known range."""
    search = _Search(graph)
    for node in graph.nodes:
        for value_id in (*node.inputs, *node.outputs):
            if value_id:
                search.span(value_id, 1)
    return {value_id: span for value_id, span in search.found.items() if span is not None}


def spans_made(
    graph: Graph, nodes: Sequence[Node], values: Mapping[str, Value], consts: Mapping[str, Array]
) -> dict[str, Span | None]:
    """The ranges of what nodes give that are not in the graph yet; None: not whole numbers."""
    search = _Search(Graph((), (), tuple(nodes), {**graph.values, **values}, {**graph.consts, **consts}))
    made = {o for node in nodes for o in node.outputs}
    for node in nodes:
        for i in node.inputs:
            if i in graph.values and i not in search.found:
                search.found[i] = whole_span(graph, i)
    return {value_id: search.span(value_id, _FAR) for value_id in made}


def _of_type(dtype: str) -> Span | None:
    if dtype not in _NARROW:
        return None
    if dtype == "bool":
        return 0, 1
    known = np.iinfo(dtype)
    return int(known.min), int(known.max)


def _clipped(span: Span, clip: tuple[object, object]) -> Span | None:
    """The range after a fused clip, where its bounds are whole numbers or do not matter."""
    low, high = (np.asarray(end, np.float64) for end in clip)
    if any(isfinite(e) and e != floor(e) for end in (low, high) for e in end.reshape(-1).tolist()):
        return None
    found = [
        (max(span[0], lo), min(span[1], hi))
        for lo, hi in zip(*(a.reshape(-1).tolist() for a in np.broadcast_arrays(low, high)), strict=True)
    ]
    lo, hi = min(f[0] for f in found), max(f[1] for f in found)
    return (ceil(min(lo, hi)), floor(max(lo, hi)))
