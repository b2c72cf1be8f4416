"""What a layer is multiplied by where attention adds its places up.

An attention's output is a sum of values, by shares: an error of the value of a token that many attend to is
in all of their sums, and language models attend to the first token above all, while errors of tokens that
share an output may cancel. The layer that makes values is therefore rounded by sums of its columns by the
same shares. Source: J. Kim, H. Kim, E. Cho, C. Lee, J. Kim, Y. Jeon, "BoA: attention-aware post-training
quantization without backpropagation", 2024, where the moments of values are those of inputs times shares.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from npuflow.ir.graph import Graph
from npuflow.ir.loops import inside
from npuflow.ir.op import Node
from npuflow.ir.types import Array
from npuflow.tune.rounding.block_pass import folded, moved_back, rows_of

Reals = npt.NDArray[np.float64]


@dataclass(frozen=True)
class WayToAttention:
    """`steps`: from a layer to the attention that adds its places up, nodes with the operand that comes from
    the layer. Output channels of the layer do not mix on it."""

    layer: Node
    steps: tuple[tuple[Node, int], ...]

    def read(self, graph: Graph) -> list[str]:
        """What else is needed of a sample."""
        others = (v for node, at in self.steps for i, v in enumerate(node.inputs) if i != at and v)
        return [v for v in others if graph.const(v) is None]

    def shares(self, graph: Graph, known: Mapping[str, Array], count: int, seed: int) -> Reals:
        """[count, places]: what the attention multiplies the places of the layer by for `count` of its
        outputs, drawn; of each their sum is one."""
        rng, rows = np.random.default_rng(seed), list[Reals]()
        while sum(len(one) for one in rows) < count:
            found = self._drawn(graph, known, rng)
            rows.append(rng.permutation(found))
        every = np.concatenate(rows)[:count]
        total = every.sum(1, keepdims=True)
        even = np.full_like(every, 1 / every.shape[1])
        return np.where(total > 0, every / np.where(total > 0, total, 1), even)

    def _drawn(self, graph: Graph, known: Mapping[str, Array], rng: np.random.Generator) -> Reals:
        """Of one output of the attention for every output channel of the layer: they are found at once, as
        each reads a channel of its own."""
        (last, at), shape = self.steps[-1], graph.type(self.steps[-1][0].inputs[1]).shape
        back = _rows(known[last.inputs[1 - at]], shape, rng)
        for node, at in reversed(self.steps[:-1]):
            given = [known[v] if v in known else graph.const(v) for v in node.inputs]
            given[at] = np.broadcast_to(np.float32(0), graph.type(node.inputs[at]).shape)
            back = _back(node, given, at, back)
        return np.asarray(rows_of(graph, self.layer, back)[0].T)


def ways_to_attention(graph: Graph, layers: Iterable[int]) -> dict[int, WayToAttention]:
    """Of layers, by node: along what moves a layer's outputs, adds to them, or multiplies them by matrices
    from the left, to the last such matrix that holds shares. Layers without one, and those that something
    else reads, too, are left out."""
    readers: dict[str, list[tuple[Node, int]]] = {}
    for node in graph.nodes:
        for i, value in enumerate(node.inputs):
            readers.setdefault(value, []).append((node, i))
    makers, looped = {v: node for node in graph.nodes for v in node.outputs}, inside(graph.nodes)
    found = {}
    for at in layers:
        layer, steps, end = graph.nodes[at], list[tuple[Node, int]](), 0
        if at in looped or layer.op.clip is not None or layer.op.column_groups() > 1:
            continue
        value = layer.outputs[0]
        while len(own := readers.get(value, [])) == 1 and _linear(graph, *own[0]):
            steps += own
            node, _ = own[0]
            if node.op.algebra == "matrices" and _shares(graph, makers, node.inputs[0]):
                end = len(steps)
            value = node.outputs[0]
        if end:
            found[at] = WayToAttention(layer, tuple(steps[:end]))
    return found


def _linear(graph: Graph, node: Node, at: int) -> bool:
    live = [v for v in node.inputs if v and graph.const(v) is None]
    if node.op.clip is not None or len(node.outputs) != 1:
        return False
    if node.op.algebra == "matrices":
        return at == 1 and all(len(graph.type(v).shape) > 1 for v in node.inputs)
    return node.op.algebra == "sum" or (node.op.moves_data and len(live) == 1 and at == 0)


def _shares(graph: Graph, makers: Mapping[str, Node], value: str) -> bool:
    """Whether a tensor is a Softmax's, perhaps moved."""
    node = makers.get(value)
    while node is not None and node.op.moves_data and graph.const(node.inputs[0]) is None:
        node = makers.get(node.inputs[0])
    return node is not None and node.op.algebra == "shares"


def _rows(left: Array, shape: tuple[int, ...], rng: np.random.Generator) -> Reals:
    """For every column of a right operand of a shape a row of the left one, drawn of those that the product
    multiplies it by."""
    batch = np.broadcast_shapes(left.shape[:-2], shape[:-2])
    whole = np.broadcast_to(left, (*batch, *left.shape[-2:]))
    own = (*(1,) * (len(batch) - len(shape) + 2), *shape[:-2])
    each = [i for i in range(len(batch)) if own[i] == batch[i]]
    others = [i for i in range(len(batch)) if own[i] != batch[i]]
    turned = whole.transpose(*each, whole.ndim - 1, *others, whole.ndim - 2)
    rows = turned.reshape(*(batch[i] for i in each), left.shape[-1], -1)
    at = rng.integers(rows.shape[-1], size=(*rows.shape[:-2], 1, shape[-1]))
    return np.take_along_axis(rows, at, -1).reshape(shape).astype(np.float64)


def _back(node: Node, given: list[Array | None], at: int, slope: Reals) -> Reals:
    """The gradient of a node's operand."""
    source = given[at]
    assert source is not None
    if node.op.moves_data:
        return moved_back(node, given, at, slope).astype(np.float64)
    if node.op.algebra == "matrices":
        other = given[1 - at]
        assert other is not None
        slope = other.astype(np.float64).swapaxes(-1, -2) @ slope
    return folded(slope, source.shape)
