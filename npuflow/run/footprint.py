"""What running a network takes of memory, from the shapes of its tensors alone: nothing is run for it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from npuflow.ir.graph import Graph
from npuflow.ir.op import Node
from npuflow.ir.types import TensorType
from npuflow.onnx.types import PLAIN

AT_ONCE = 3                    # times the largest constant: it, and in float64, whenever a layer is looked at
BYTES = 4                      # of a float weight, which is a byte in the executor
WIDE = 8                       # bytes of an element whose type numpy does not have


@dataclass(frozen=True)
class Footprint:
    """Bytes of one sample on its way through a network.

    `weights`: constants, or, where they are fed, what a layer at a time makes of them. `executed`: what the
    executor keeps of them beside that. `live`: the float tensors that are needed at once, at most, and
    `codes` the same of 8-bit codes. `all_codes`: the codes of all tensors that the NPU makes together.
    `node`: the float operands of the largest node, which is `name`.
    """

    weights: int
    live: int
    codes: int
    all_codes: int
    node: int
    name: str
    executed: int = 0


def footprint(graph: Graph, on_npu: Callable[[int], bool]) -> Footprint:
    """The footprint of a float graph; tensors whose shape is not known count nothing."""
    sizes = [array.nbytes for array in graph.consts.values()]
    weights, executed = sum(sizes), 0
    if graph.fed:
        weights, executed = min(weights, AT_ONCE * max(sizes)), weights // BYTES
    live, codes = _peak(graph, _bytes), _peak(graph, _size)
    largest, name = max(((_operands(graph, node), node.name) for node in graph.nodes), default=(0, ""))
    made = sum(
        _size(graph.type(o)) for i, node in enumerate(graph.nodes) if on_npu(i) for o in node.outputs if o
    )
    return Footprint(weights, live, codes, made, largest, name, executed)


def _peak(graph: Graph, measure: Callable[[TensorType], int]) -> int:
    """The most that lives at once when nodes run in order and tensors go after their last reader."""
    last = {v: i for i, node in enumerate(graph.nodes) for v in node.inputs if v}
    alive = {v: measure(graph.type(v)) for v in graph.inputs}
    peak = sum(alive.values())
    for i, node in enumerate(graph.nodes):
        alive.update({o: measure(graph.type(o)) for o in node.outputs if o})
        peak = max(peak, sum(alive.values()))
        alive = {v: size for v, size in alive.items() if last.get(v, -1) > i or v in graph.outputs}
    return peak


def _operands(graph: Graph, node: Node) -> int:
    values = [v for v in (*node.inputs, *node.outputs) if v and graph.const(v) is None]
    return sum(_bytes(graph.type(v)) for v in dict.fromkeys(values))


def _size(kind: TensorType) -> int:
    return kind.size if kind.is_static else 0


def _bytes(kind: TensorType) -> int:
    return _size(kind) * (np.dtype(kind.dtype).itemsize if kind.dtype in PLAIN else WIDE)
