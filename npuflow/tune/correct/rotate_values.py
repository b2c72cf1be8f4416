"""Rotates the values of an attention, head by head.
The channels of each head are mixed by an orthogonal matrix between the layer that makes the values and the
layer that reads the heads' results. Exact in float.

Source: S. Ashkboos et al., "QuaRot: outlier-free 4-bit inference in rotated LLMs", 2024 (the value and output
projections). A product with the probabilities mixes rows alone, so that the rotation passes it: the matrix
folds into the weights that make the values, its inverse into those behind the product. Nothing is added to
the network. Which channels are a head's is read off labels that go through the operators in between.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from npuflow.ir.graph import Graph, prune
from npuflow.ir.op import Node
from npuflow.ir.queries import kind
from npuflow.ir.verify import verify
from npuflow.tune.correct.fold_back import Refused
from npuflow.tune.correct.products import ProductEdits
from npuflow.tune.correct.rotate import matrix_of

Ints = npt.NDArray[np.int64]
LARGEST = 1 << 24  # elements of a value that labels are followed through
FOREIGN = 0  # the label of what comes from elsewhere


@dataclass(frozen=True)
class RotatedValues:
    """One layer that makes values. `heads`: how many groups of `width` channels it makes; `readers`: the
    layers that the inverse is folded into; `obstacle`: why it was left."""

    layer: str
    readers: tuple[str, ...] = ()
    heads: int = 0
    width: int = 0
    obstacle: str = ""

    @property
    def name(self) -> str:
        """For reports."""
        if self.obstacle:
            return self.layer
        return f"{self.layer} -> {', '.join(self.readers)} ({self.heads} heads of {self.width} channels)"


@dataclass(frozen=True)
class Rotation:
    """The changed network, and every layer that makes values of an attention."""

    graph: Graph
    places: tuple[RotatedValues, ...]

    @property
    def changes(self) -> list[float | None]:
        """Of each place the number of layers that change; None: it was left."""
        return [None if one.obstacle else float(1 + len(one.readers)) for one in self.places]


@dataclass(frozen=True)
class _Arrival:
    """An operator that is more than a movement, and the labels of the operand that it reads."""

    node: Node
    index: int
    labels: Ints


def rotate_values(graph: Graph) -> Rotation:
    """Rotate the values of every attention in which it folds."""
    edits, found = ProductEdits(graph), list[RotatedValues]()
    consumers = graph.consumers()
    for node in graph.nodes:
        if not edits.constant(node):
            continue
        walk = _Walk(graph, consumers, edits)
        try:
            place = walk.fold(node)
        except Refused as why:
            place = RotatedValues(node.name, obstacle=str(why))
        if place is not None:
            found.append(place)
    if not any(one.readers for one in found):
        return Rotation(graph, tuple(found))
    return Rotation(verify(prune(edits.done()), "rotating the values of attention"), tuple(found))


@dataclass
class _Walk:
    graph: Graph
    consumers: Mapping[str, list[Node]]
    edits: ProductEdits

    def fold(self, node: Node) -> RotatedValues | None:
        """One layer that makes values; None: it makes none. Refused: why it stays as it is."""
        out = node.outputs[0]
        type_ = self.graph.type(out)
        if not type_.is_static or type_.size > LARGEST or node.op.clip is not None:
            return None
        labels = np.broadcast_to(np.arange(1, type_.shape[1] + 1), type_.shape)
        try:
            arrivals = list(self._arrivals(out, labels))
        except Refused:  # the layer is read at an output, beside others or not at all
            return None
        heads = {i: made for i, one in enumerate(arrivals) if (made := self._heads(one)) is not None}
        if not heads:
            return None
        blocks = _disjoint([row for made in heads.values() for row in made.reshape(-1, made.shape[-1])])
        taken = {channel for block in blocks for channel in block}
        for i, one in enumerate(arrivals):
            if i not in heads and not taken.isdisjoint(np.unique(one.labels).tolist()):
                raise Refused(f"{one.node.name} reads its values, too")
        inverses = [pair for i in heads for pair in self._behind(arrivals[i].node, heads[i])]
        widths = {len(block) for block in blocks}
        if len(widths) != 1:
            raise Refused("its heads have different numbers of channels")
        (width,) = widths
        matrix = matrix_of(width)
        weight, bias = self.edits.matrix(node)
        weight, bias = weight.copy(), bias.copy()
        for block in blocks:
            at = np.array(block) - 1
            weight[:, at], bias[at] = weight[:, at] @ matrix, bias[at] @ matrix
        self.edits.set(node, weight, bias)
        for reader, channels in inverses:
            weight, bias = self.edits.matrix(reader)
            weight = weight.copy()
            for at in channels:
                weight[at] = matrix.T @ weight[at]
            self.edits.set(reader, weight, bias)
        readers = tuple(dict.fromkeys(reader.name for reader, _ in inverses))
        return RotatedValues(node.name, readers, len(blocks), width)

    def _arrivals(self, value: str, labels: Ints) -> Iterator[_Arrival]:
        """Where a value goes through operators that move elements. Refused: to an output of the network."""
        if value in self.graph.outputs:
            raise Refused(f'"{value}" is an output of the network')
        for node in self.consumers.get(value, []):
            places = [i for i, v in enumerate(node.inputs) if v == value]
            if places == [0] and self._moves(node):
                site = self.graph.site(node)
                made = node.op.reference(labels, *site.consts[1:])
                for name, part in zip(node.outputs, made, strict=True):
                    if name:
                        yield from self._arrivals(name, np.asarray(part, np.int64))
            else:
                yield from (_Arrival(node, i, labels) for i in places)

    def _moves(self, node: Node) -> bool:
        """Whether all results of a node are elements of its first operand."""
        consts = [self.graph.const(v) is not None for v in node.inputs[1:] if v]
        static = all(self.graph.type(v).is_static for v in node.outputs if v)
        return node.op.moves_data and not node.op.hosted and all(consts) and node.op.clip is None and static

    def _heads(self, one: _Arrival) -> Ints | None:
        """[..., channel]: the labels of the columns of the second operand of a product of two computed
        values, where each column comes from one channel; None: it is no such operand."""
        node = one.node
        plain = kind(node) == "matmul" and one.index == 1 and one.labels.ndim >= 2 and node.op.clip is None
        other = node.inputs[0]
        if not plain or self.graph.const(other) is not None or len(self.graph.type(other).shape) < 2:
            return None
        if (one.labels == FOREIGN).any():
            return None
        columns = one.labels[..., :1, :]
        distinct = all(len(set(row)) == len(row) for row in columns.reshape(-1, columns.shape[-1]).tolist())
        return columns[..., 0, :] if distinct and (one.labels == columns).all() else None

    def _behind(self, node: Node, heads: Ints) -> list[tuple[Node, list[Ints]]]:
        """Layers that read the product, and for each head the rows of their weights in its order."""
        out, width = node.outputs[0], heads.shape[-1]
        shape = self.graph.type(out).shape
        heads = np.broadcast_to(heads, (*shape[:-2], width))
        alone = np.arange(heads[..., 0].size).reshape(heads.shape[:-1])
        _, same = np.unique(heads.reshape(-1, width), axis=0, return_inverse=True)
        reasons = []
        for ids in (alone, same.reshape(heads.shape[:-1])):
            labels = ids[..., None] * width + np.arange(1, width + 1)
            try:
                return self._inverse(out, np.broadcast_to(labels[..., None, :], shape), width)
            except Refused as why:
                reasons.append(why)
        raise reasons[-1]

    def _inverse(self, value: str, labels: Ints, width: int) -> list[tuple[Node, list[Ints]]]:
        found = []
        for one in self._arrivals(value, labels):
            columns = one.labels[0]
            if not self.edits.constant(one.node) or one.index != 0:
                raise Refused(f"{one.node.name} reads the heads' results, and is no constant product")
            if (one.labels != columns).any() or (columns == FOREIGN).any():
                raise Refused(f"{one.node.name} reads the channels of the heads in no fixed order")
            found.append((one.node, _rows(one.node, columns - 1, width)))
        return found


def _rows(node: Node, columns: Ints, width: int) -> list[Ints]:
    """For each head that a layer reads the places of its channels, in order."""
    order = np.argsort(columns, kind="stable")
    heads, places = columns[order] // width, columns[order] % width
    if len(columns) % width or (places != np.arange(len(columns)) % width).any():
        raise Refused(f"{node.name} reads only some channels of a head, or one twice")
    if (heads.reshape(-1, width) != heads[::width, None]).any():
        raise Refused(f"{node.name} reads only some channels of a head, or one twice")
    return list(order.reshape(-1, width))


def _disjoint(rows: Sequence[Ints]) -> list[tuple[int, ...]]:
    """Different heads; Refused where two share some channels."""
    blocks = list(dict.fromkeys(tuple(row.tolist()) for row in rows))
    if sum(map(len, blocks)) != len({channel for block in blocks for channel in block}):
        raise Refused("two of its heads share some channels")
    return blocks
