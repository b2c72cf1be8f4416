"""Makes one product of several that multiply rows of one tensor by the same matrix."""

from __future__ import annotations

from collections import Counter
from math import prod

import numpy as np

from npuflow.ir.graph import Graph
from npuflow.ir.op import Node
from npuflow.ir.queries import kind, maker, sole_user, users
from npuflow.rules import RULES, Change, Refusal
from npuflow.rules._match import VIEWS, matrix_of, plain_float
from npuflow.rules._parts import Decomposition, Parts

FEWEST = 4                                # products that are worth it

Rows = tuple[int, int, Node]              # first and last row that a product reads, and the product


@RULES.entry
class MergeRows(Decomposition):
    """As files have them that write a recurrent layer out: each product would load the matrix again, which is
    larger than all rows and their products. Rows are parts of the first dimension, in whatever shape."""

    order = 44
    triggers = ("matmul", "gemm")
    makes = ("matmul", "gemm", "reshape", "slice", "add")

    def rewrite(self, graph: Graph, node: Node) -> Change | Refusal | None:
        if not plain_float(graph, node) or (found := _source(graph, node)) is None:
            return None
        source, width = found[0], graph.type(node.inputs[0]).shape[-1]
        count, columns = graph.type(source).size // width, graph.type(node.outputs[0]).shape[-1]
        if width * columns <= count * (width + columns):
            return None
        rows = _siblings(graph, node, source, width)
        if len(rows) < FEWEST or 2 * len({r for a, b, _ in rows for r in range(a, b)}) < count:
            return None
        if rows[0][2] is not node:                          # the first of them changes all
            return None
        parts = Parts(graph, node)
        every = parts.reshape(source, (count, width))
        biases = [_bias(graph, one) for *_, one in rows]
        common = Counter(None if b is None else b.tobytes() for b in biases).most_common(1)[0][0]
        first = next(b for b in biases if (None if b is None else b.tobytes()) == common)
        more = () if first is None else (parts.const(first, "bias"),)
        whole = parts.op_as(node.op, (every, node.inputs[1], *more), "rows")
        made = [parts.slice(whole, 0, a, b, what="part") for a, b, _ in rows]
        return _done(parts, rows, made, biases, first)


def _done(
    parts: Parts, rows: list[Rows], made: list[str], biases: list[np.ndarray | None], first: np.ndarray | None
) -> Change:
    """The change that gives all products' results these values, with what their biases differ by."""
    names: dict[str, str] = {}
    for (_, _, node), part, bias in zip(rows, made, biases, strict=True):
        less = np.zeros(1, np.float32) if first is None else first
        own = np.zeros(1, np.float32) if bias is None else bias
        value = part if np.array_equal(own, less) else parts.add(part, parts.const(own - less, "less"))
        if value in names:
            value = parts.op("reshape", (value,), shape=parts.shape(value))
        names[value] = node.outputs[0]
    change = parts.done()
    nodes = tuple(
        Node(n.op, tuple(names.get(i, i) for i in n.inputs), tuple(names.get(o, o) for o in n.outputs),
             tuple(dict.fromkeys(o for *_, one in rows for o in one.origin)))
        for n in change.nodes
    )
    values = tuple(v for v in change.values if v.id not in names)
    return Change(tuple(one for *_, one in rows), nodes, values, change.consts)


def _source(graph: Graph, node: Node) -> tuple[str, int, int] | None:
    """The tensor of which a product by a constant matrix reads elements that lie one behind the other along
    its first dimension, and the first and last of them."""
    if matrix_of(graph, node) is None or len(graph.type(node.inputs[0]).shape) != 2:
        return None
    value = node.inputs[0]
    while (view := maker(graph, value)) is not None and kind(view) in VIEWS:
        if sole_user(graph, value) is None:
            return None
        value = view.inputs[0]
    if view is None or sole_user(graph, value) is None or view.op.clip is not None:
        return None
    shape, op = graph.type(view.inputs[0]).shape, view.op
    if not shape:
        return None
    if kind(view) == "gather" and op.axis == 0 and len(op.indices) == 1:  # type: ignore[attr-defined]
        begin = op.indices[0] % shape[0]  # type: ignore[attr-defined]
        end = begin + 1
    elif kind(view) == "slice" and op.axes == (0,) and op.steps == (1,):  # type: ignore[attr-defined]
        begin, end, _ = slice(op.starts[0], op.ends[0]).indices(shape[0])  # type: ignore[attr-defined]
    else:
        return None
    size = prod(shape[1:])
    return view.inputs[0], begin * size, end * size


def _siblings(graph: Graph, node: Node, source: str, width: int) -> list[Rows]:
    """The products of rows of a tensor by the same matrix, in the order of the graph."""
    digest, found = graph.values[node.inputs[1]].const, list[Rows]()
    for reader in users(graph, source):
        end: Node | None = reader
        while end is not None and kind(end) in (*VIEWS, "gather", "slice"):
            end = sole_user(graph, end.outputs[0])
        if end is None or end.op != node.op or graph.values[end.inputs[1]].const != digest:
            continue
        place = _source(graph, end)
        if place is None or place[0] != source or place[1] % width or place[2] % width:
            continue
        known = len(end.inputs) < 3 or not end.inputs[2] or _bias(graph, end) is not None
        if plain_float(graph, end) and known:
            found.append((place[1] // width, place[2] // width, end))
    place_of = {n.outputs[0]: k for k, n in enumerate(graph.nodes)}
    return sorted(found, key=lambda row: place_of[row[2].outputs[0]])


def _bias(graph: Graph, node: Node) -> np.ndarray | None:
    """The constant that a product adds to every row."""
    held = graph.const(node.inputs[2]) if len(node.inputs) > 2 and node.inputs[2] else None
    return None if held is None else np.asarray(held, np.float32).reshape(-1)
