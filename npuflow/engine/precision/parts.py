"""What an output is judged by: the output as a whole, or the tensors that it joins.

A detector's output holds boxes of some hundred pixels and scores of at most 1. Noise over the whole says
nothing of the scores, so each kind of number is a part of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from npuflow.ir.graph import Graph
from npuflow.ir.op import Node
from npuflow.ir.queries import kind, maker
from npuflow.ir.types import Array

_Places = npt.NDArray[np.int64]
_SAME_ORDER = ("reshape", "flatten", "squeeze", "unsqueeze")
_MOVES = (*_SAME_ORDER, "transpose", "split", "slice", "concat")


@dataclass(frozen=True, eq=False)
class Part:
    """Numbers of one output, by its place among the graph's. `at`: their places in the flat output, None: all
    of them. `value`: the tensor that they are; "" where it is several. `answers`: what an application makes
    of them, as operators say."""

    output: int
    name: str = ""
    value: str = ""
    at: _Places | None = None
    answers: str = ""

    def of(self, output: Array) -> Array:
        return output if self.at is None else output.reshape(-1)[self.at]


def output_parts(graph: Graph) -> tuple[Part, ...]:
    """Of every output of real numbers and known shape: the tensors that a Concat in front of it joins, those
    made by the same operator together; the output itself where one operator makes all."""
    found: list[Part] = []
    for i, name in enumerate(graph.outputs):
        if graph.type(name).dtype != "float32" or not graph.type(name).is_static:
            continue
        kinds: dict[str, list[tuple[str, _Places]]] = {}
        shape = graph.type(name).shape
        places = np.arange(int(np.prod(shape)), dtype=np.int64).reshape(shape)
        for value, at in _joined(graph, name, places):
            kinds.setdefault(_source(graph, value), []).append((value, at))
        if len(kinds) < 2:
            found.append(Part(i, name, name, None, _answers(graph, name)))
            continue
        for leaves in kinds.values():
            value, at = leaves[0]
            what = value if len(leaves) == 1 else f"{value} and {len(leaves) - 1} more"
            whole = at if len(leaves) == 1 else np.concatenate([a.reshape(-1) for _, a in leaves])
            own = value if len(leaves) == 1 else ""
            found.append(Part(i, f"{name} ({what})", own, whole, _answers(graph, value)))
    return tuple(found)


def _joined(graph: Graph, value: str, places: _Places) -> Iterator[tuple[str, _Places]]:
    """The computed tensors that a value joins, with where each of their elements is in the output."""
    node = maker(graph, value)
    name = "" if node is None else kind(node)
    if node is not None and name == "concat":
        axis = int(node.op.axis)  # type: ignore[attr-defined]
        sizes = [graph.type(i).shape[axis] for i in node.inputs]
        for operand, own in zip(node.inputs, np.split(places, np.cumsum(sizes)[:-1], axis), strict=True):
            if graph.const(operand) is None:
                yield from _joined(graph, operand, own)
    elif node is not None and name in _SAME_ORDER and _joins(graph, node):
        yield from _joined(graph, node.inputs[0], places.reshape(graph.type(node.inputs[0]).shape))
    elif node is not None and name == "transpose" and _joins(graph, node):
        order = np.argsort(node.op.perm)  # type: ignore[attr-defined]
        yield from _joined(graph, node.inputs[0], places.transpose(order))
    else:
        yield value, places


def _joins(graph: Graph, node: Node) -> bool:
    """Whether a Concat is behind it, with nothing but changes of shape and order between."""
    before: Node | None = node
    while before is not None and kind(before) in (*_SAME_ORDER, "transpose"):
        before = maker(graph, before.inputs[0])
    return before is not None and kind(before) == "concat"


def _computed(graph: Graph, value: str) -> Node | None:
    """What computes a value, behind the operators that only move data."""
    node = maker(graph, value)
    while node is not None and kind(node) in _MOVES:
        node = maker(graph, node.inputs[0])
    return node


def _source(graph: Graph, value: str) -> str:
    node = _computed(graph, value)
    return "" if node is None else kind(node)


def _answers(graph: Graph, value: str) -> str:
    node = _computed(graph, value)
    return "" if node is None else node.op.answers
