"""Values that are parts of other values' bytes: reshapes, contiguous slices,
concatenations written in place."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod

import numpy as np

from npuflow.ir.graph import Graph
from npuflow.ir.moves import Move, merged
from npuflow.ir.op import Node


@dataclass
class Views:
    """Values that are parts of other values' bytes: id -> (owner, byte offset), and
    the moves that this saves."""

    graph: Graph
    inside: dict[str, tuple[str, int]] = field(default_factory=dict)
    saved: set[tuple[int, int]] = field(default_factory=set)     # (node index, move index)

    def root(self, value_id: str) -> tuple[str, int]:
        offset = 0
        while value_id in self.inside:
            value_id, more = self.inside[value_id]
            offset += more
        return value_id, offset

    def owners(self, value_id: str) -> Iterator[str]:
        """The values whose bytes a value is a part of, from the inmost one."""
        while value_id in self.inside:
            value_id, _ = self.inside[value_id]
            yield value_id

    def bytes(self, value_id: str) -> int:
        return self.graph.values[value_id].type.size * self.item(value_id)

    def item(self, value_id: str) -> int:
        return np.dtype(self.graph.values[value_id].dtype).itemsize

    def put(self, inner: str, owner: str, offset: int) -> bool:
        """Make `inner` a part of `owner` if its own storage can move there whole."""
        root, at = self.root(inner)
        top, _ = self.root(owner)
        if root == top or at or self.bytes(root) != self.bytes(inner):
            return False
        self.inside[root] = (owner, offset)
        return True


def views_of(graph: Graph, nodes: Sequence[tuple[int, Node]], moves: Mapping[int, tuple[Move, ...]]) -> Views:
    """Reshapes share bytes; contiguous slices lie inside their source; contiguous
    concatenations are written in place."""
    views = Views(graph)
    for index, node in nodes:
        if index not in moves:
            continue
        found = moves[index]
        live = [i for i in node.inputs if i and graph.values[i].const is None]
        if not found:
            if live:
                views.put(node.outputs[0], live[0], 0)
            continue
        by_output: dict[int, list[int]] = {}
        for n, move in enumerate(found):
            by_output.setdefault(move.output, []).append(n)
        for output, numbers in by_output.items():
            _elide(views, index, node, found, output, numbers)
    return views


def _elide(
    views: Views, index: int, node: Node, moves: Sequence[Move], output: int, numbers: Sequence[int]
) -> None:
    graph, out = views.graph, node.outputs[output]
    size, item = graph.values[out].type.size, np.dtype(graph.values[out].dtype).itemsize
    for n in numbers:
        move = merged(moves[n])
        if move.source is None or not contiguous(move):
            continue
        source = node.inputs[move.source]
        if graph.values[source].const is not None:
            continue
        count = prod(move.dims)
        whole_output = len(numbers) == 1 and count == size
        whole_input = count == graph.values[source].type.size and move.src_offset == 0
        if whole_output:
            done = views.put(out, source, move.src_offset * item)
        elif whole_input:
            done = views.put(source, out, move.dst_offset * item)
        else:
            done = False
        if done:
            views.saved.add((index, n))


def contiguous(move: Move) -> bool:
    """Whether a move takes elements that lie one behind the other, and leaves them so."""
    return len(move.dims) == 1 and (
        move.dims[0] == 1 or (move.src_strides[0] == 1 and move.dst_strides[0] == 1)
    )
