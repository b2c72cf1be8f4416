"""A Gemm whose columns are split, as of queries, keys and values, becomes one Gemm for each part."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import accumulate, pairwise
from math import prod

import numpy as np

from npuflow.ir.graph import Graph, constant
from npuflow.ir.op import OPS, Node, Op
from npuflow.ir.queries import made_by, sole_user
from npuflow.ir.types import Array, TensorType, Value
from npuflow.rules import RULES, Change, Refusal, Rule
from npuflow.rules._match import fresh, origins

Shape = tuple[int, ...]


@dataclass(frozen=True)
class _Above:
    """What a Split cuts: a product with constants, whose columns are given another shape and order. `axis`:
    the dimension of that shape, before the order, where the Split cuts."""

    gemm: Node
    between: tuple[Node, ...]
    shape: Shape
    perm: Shape
    axis: int


@RULES.entry
class SplitProduct(Rule):
    """A Reshape and a Transpose may lie between. The Split would go through external memory; the edges of the
    array may cost less than that."""

    order = 46
    triggers = ("split",)
    makes = ("gemm", "reshape", "transpose")
    asks = True

    def rewrite(self, graph: Graph, node: Node) -> Change | Refusal | None:
        above = _above(graph, node)
        sizes: Shape = node.op.sizes  # type: ignore[attr-defined]
        if above is None or not all(sizes):
            return None
        rows, columns = graph.type(above.gemm.outputs[0]).shape
        width = prod(above.shape[above.axis + 1 :])
        if rows == 1 or prod(above.shape[: above.axis]) != rows:
            return None
        depth = graph.type(above.gemm.inputs[0]).size // rows
        parts = sum(self.hardware.passes(1, depth, size * width, rows) for size in sizes)
        if parts - self.hardware.passes(1, depth, columns, rows) > self.hardware.moved(2 * rows * columns):
            return Refusal("split_product", node.name, "narrow parts leave too much of the array idle")
        nodes: list[Node] = []
        values: list[Value] = []
        consts: dict[str, Array] = {}
        ends = pairwise(accumulate((size * width for size in sizes), initial=0))
        origin = origins(above.gemm, *above.between, node)
        for out, size, (begin, end) in zip(node.outputs, sizes, ends, strict=True):
            inputs = [above.gemm.inputs[0]]
            for position, array in _columns(graph, above.gemm, begin, end).items():
                made, content = constant(fresh(graph, f"{out}:const{position}"), array)
                values.append(made)
                consts |= content
                inputs.append(made.id)
            wanted = graph.type(out).shape
            steps = [
                (above.gemm.op, (rows, end - begin)),
                *_moved(above, size),
                (OPS["reshape"](wanted), wanted),
            ]
            for k, (op, shape) in enumerate(steps, 1):
                name = out if k == len(steps) else fresh(graph, f"{out}:{k}")
                values += [Value(name, TensorType(shape))] if name != out else []
                nodes.append(Node(op, tuple(inputs), (name,), origin))
                inputs = [name]
        gone = (above.gemm, *above.between, node)
        return Change(gone, tuple(nodes), tuple(values), tuple(consts.items()))


def _above(graph: Graph, node: Node) -> _Above | None:
    """What a Split reads through to the Gemm, if nobody else reads any of it."""
    between: list[Node] = []
    value = node.inputs[0]
    perm = tuple(range(len(graph.type(value).shape)))
    shape = graph.type(value).shape
    for wanted in ("transpose", "reshape"):
        found = made_by(graph, value, wanted)
        if found is not None and sole_user(graph, value) is not None:
            between.insert(0, found)
            perm = found.op.perm if wanted == "transpose" else perm  # type: ignore[attr-defined]
            value = found.inputs[0]
            shape = graph.type(value if wanted == "transpose" else found.outputs[0]).shape
    gemm = made_by(graph, value, "gemm")
    if gemm is None or sole_user(graph, value) is None or gemm.op.transA:  # type: ignore[attr-defined]
        return None
    if any(n.op.clip is not None for n in (node, gemm, *between)):
        return None
    if any(graph.const(v) is None for v in gemm.inputs[1:] if v):
        return None
    return _Above(gemm, tuple(between), shape, perm, perm[node.op.axis])  # type: ignore[attr-defined]


def _columns(graph: Graph, gemm: Node, begin: int, end: int) -> Mapping[int, Array]:
    """Weights and bias of some columns of the result, by position among the inputs."""
    found: dict[int, Array] = {}
    for position, value in enumerate(gemm.inputs[1:], 1):
        array = graph.const(value) if value else None
        if array is None:
            continue
        axis = array.ndim - 1
        if position == 1:
            axis = 0 if gemm.op.transB else 1  # type: ignore[attr-defined]
        spread = position > 1 and (array.ndim == 0 or array.shape[axis] == 1)
        found[position] = array if spread else np.take(array, np.arange(begin, end), axis)
    return found


def _moved(above: _Above, size: int) -> Iterator[tuple[Op, Shape]]:
    """The Reshape and the Transpose of a part, with their shapes; a dimension of extent 1 is left out."""
    kept = [d for d in range(len(above.shape)) if d != above.axis or size > 1]
    cut = tuple(size if d == above.axis else above.shape[d] for d in kept)
    order = tuple(kept.index(p) for p in above.perm if p in kept)
    yield OPS["reshape"](cut), cut
    yield OPS["transpose"](order), tuple(cut[p] for p in order)
