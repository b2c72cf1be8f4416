"""What an output is judged by: the output as a whole, or the tensors that it joins.

A detector's output holds boxes of some hundred pixels and scores of at most 1. Noise over the whole says
nothing of the scores, so each kind of number is a part of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from npuflow.ir.graph import Graph
from npuflow.ir.op import Node
from npuflow.ir.queries import kind, made_by, maker
from npuflow.ir.types import Array

CAST = ("float16", "float64", "bfloat16")   # types that numbers of float32 are cast to at the end
_Places = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class OutputPart:
    """Numbers of one output, by its place among the graph's. `at`: their places in the flat output, None: all
    of them. `value`: the tensor that they are; "" where it is several. `answers`: what an application makes
    of them, as operators say. `scale`: what they are weighed as, None: as they are."""

    output: int
    name: str = ""
    value: str = ""
    at: _Places | None = None
    answers: str = ""
    scale: Callable[[Array], Array] | None = None

    def of(self, output: Array) -> Array:
        found = output if self.at is None else output.reshape(-1)[self.at]
        return found if self.scale is None else self.scale(found)


def output_parts(graph: Graph) -> tuple[OutputPart, ...]:
    """Of every output of real numbers and known shape: the tensors that a Concat in front of it joins, those
    made by the same operator together; the output itself where one operator makes all. What is cast to other
    floats at the end is what was cast."""
    found: list[OutputPart] = []
    for i, name in enumerate(graph.outputs):
        real = _before_cast(graph, name)
        if graph.type(real).dtype != "float32" or not graph.type(real).is_static:
            continue
        kinds: dict[str, list[str]] = {}
        for value in _joined(graph, real):
            node = _computed(graph, value)
            kinds.setdefault("" if node is None else kind(node), []).append(value)
        if len(kinds) < 2:
            found.append(OutputPart(i, name, real, None, _answers(graph, real)))
            continue
        places = _places(graph, real, [value for values in kinds.values() for value in values])
        for values in kinds.values():
            what = values[0] if len(values) == 1 else f"{values[0]} and {len(values) - 1} more"
            own = values[0] if len(values) == 1 else ""
            at = places[own] if own else np.concatenate([places[value].reshape(-1) for value in values])
            found.append(OutputPart(i, f"{name} ({what})", own, at, _answers(graph, values[0])))
    return tuple(found)


def _before_cast(graph: Graph, name: str) -> str:
    node = made_by(graph, name, "host:cast")
    if node is None or not {graph.type(v).dtype for v in (name, node.inputs[0])}.intersection(CAST):
        return name
    return _before_cast(graph, node.inputs[0])


def _mover(graph: Graph, value: str) -> Node | None:
    """The operator of one result that makes a value by moving data alone."""
    node = maker(graph, value)
    moves = node is not None and node.op.moves_data and node.op.shares_scale and len(node.outputs) == 1
    return node if moves else None


def _joined(graph: Graph, name: str) -> list[str]:
    """The computed tensors that an output is moved together from, in order."""
    found: dict[str, None] = {}
    waiting = [name]
    while waiting:
        value = waiting.pop()
        node = _mover(graph, value)
        if node is not None:
            waiting += [i for i in reversed(node.inputs) if i and graph.const(i) is None]
        elif graph.type(value).dtype == "float32":
            found[value] = None
    return list(found)


def _places(graph: Graph, name: str, values: list[str]) -> Mapping[str, _Places]:
    """Where the elements of each tensor are in the flat output: they are numbered, and the numbers moved."""
    known: dict[str, Array] = {}
    starts, count = {}, 0
    for value in values:
        size = graph.type(value).size
        known[value] = np.arange(count, count + size, dtype=np.int64).reshape(graph.type(value).shape)
        starts[value], count = count, count + size
    numbers = _moved(graph, name, known).reshape(-1)
    where = np.full(count, -1, np.int64)
    inside = np.flatnonzero(numbers >= 0)
    where[numbers[inside]] = inside
    found = {}
    for value, start in starts.items():
        own = where[start : start + graph.type(value).size]
        found[value] = own.reshape(graph.type(value).shape) if (own >= 0).all() else own[own >= 0]
    return found


def _moved(graph: Graph, value: str, known: dict[str, Array]) -> Array:
    if value not in known:
        held, node = graph.const(value), _mover(graph, value)
        if held is not None and (node is None or held.dtype.kind == "f"):
            known[value] = np.full(held.shape, -1, np.int64) if held.dtype.kind == "f" else held
        elif node is not None:
            operands = [_moved(graph, i, known) if i else None for i in node.inputs]
            known[value] = node.op.reference(*operands)[0]
        else:
            known[value] = np.full(graph.type(value).shape, -1, np.int64)
    return known[value]


def _computed(graph: Graph, value: str) -> Node | None:
    """What computes a value, behind the operators that only move data."""
    node = maker(graph, value)
    while node is not None and node.op.moves_data and node.op.shares_scale:
        node = maker(graph, node.inputs[0])
    return node


def _answers(graph: Graph, value: str) -> str:
    node = _computed(graph, value)
    return "" if node is None else node.op.answers
