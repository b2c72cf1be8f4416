"""The graph cut into stretches that the NPU or the host runs, with the bytes that cross each boundary."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from npuflow.ir.graph import Graph
from npuflow.ir.loops import loops
from npuflow.ir.macs import node_macs
from npuflow.ir.op import Node
from npuflow.onnx.export import export_model

Kind = Literal["npu", "host"]
StepKind = Literal["model", "quantize", "dequantize"]


@dataclass(frozen=True)
class Segment:
    """Consecutive nodes with one place. `inputs`: values made elsewhere (constants left out); `outputs`:
    values needed elsewhere or by the caller; `numbers`: positions of the nodes in the graph."""

    kind: Kind
    numbers: tuple[int, ...]
    nodes: tuple[Node, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


@dataclass(frozen=True)
class HostStep:
    """A part of a host segment: an onnxruntime model of float nodes, or one boundary
    node done in integers."""

    kind: StepKind
    nodes: tuple[Node, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


def segments(graph: Graph, on_npu: Callable[[Node], bool] | None = None) -> tuple[Segment, ...]:
    """Segments in an order that may run, as few as a greedy schedule finds. `on_npu` judges a
    node (default: integer nodes)."""
    judge = on_npu if on_npu is not None else is_npu
    best: list[tuple[bool, list[int]]] = []
    sides = [judge(n) for n in graph.nodes]
    for first in (False, True):
        found = _grouped(graph, range(len(sides)), sides, first)
        if not best or len(found) < len(best):
            best = found
    users = _users(graph)
    return tuple(
        Segment("npu" if npu else "host", tuple(numbers), *_border(graph, numbers, users))
        for npu, numbers in best
    )


def npu_share(graph: Graph, float_macs: int = 0) -> float:
    """Part of the network's multiply-accumulates that the NPU does in a quantised graph. `float_macs`: of the
    float network, the measure for every way to quantise it (0: of this graph)."""
    nodes = [n for n in graph.nodes if boundary(graph, n) is None]
    npu = [n for n in nodes if is_npu(n)]
    own = sum(node_macs(graph, n) for n in nodes)
    return share(sum(node_macs(graph, n) for n in npu), max(float_macs, own), len(npu), len(nodes))


def share(npu_macs: int, macs: int, npu_nodes: int, nodes: int) -> float:
    """The NPU's part of the multiply-accumulates; of the nodes in a network that multiplies nothing."""
    if macs:
        return npu_macs / macs
    return npu_nodes / nodes if nodes else 1.0


def is_npu(node: Node) -> bool:
    """Integer nodes run on the NPU; boundary nodes and float nodes do not."""
    return node.is_integer and not _is_boundary_op(node)


def boundary(graph: Graph, node: Node) -> StepKind | None:
    """Whether a node is a quantisation boundary made by the quantiser (and not part of the source model)."""
    if not _is_boundary_op(node):
        return None
    if node.op.makes == "codes" and graph.values[node.outputs[0]].quant is not None:
        return "quantize"
    if node.op.makes == "floats" and graph.values[node.inputs[0]].quant is not None:
        return "dequantize"
    return None


def _is_boundary_op(node: Node) -> bool:
    return bool(node.op.makes)


def host_steps(graph: Graph, segment: Segment) -> tuple[HostStep, ...]:
    """A host segment as runs of float nodes between its boundary nodes, in order."""
    users = _users(graph)
    steps: list[HostStep] = []
    sides = [boundary(graph, n) is None for n in graph.nodes]
    for is_float, numbers in _grouped(graph, segment.numbers, sides, False):
        if is_float:
            steps.append(HostStep("model", *_border(graph, numbers, users)))
            continue
        for node in (graph.nodes[n] for n in numbers):
            kind = boundary(graph, node)
            assert kind is not None
            steps.append(HostStep(kind, (node,), (node.inputs[0],), node.outputs))
    return tuple(steps)


def host_model(graph: Graph, part: Segment | HostStep) -> bytes:
    """ONNX bytes of the float nodes of a host segment or step."""
    if isinstance(part, HostStep):
        return export_model(graph, part.outputs, part.nodes, part.inputs)
    floats = [n for n in part.numbers if boundary(graph, graph.nodes[n]) is None]
    nodes, inputs, outputs = _border(graph, floats, _users(graph))
    return export_model(graph, outputs, nodes, inputs)


def boundary_bytes(graph: Graph, parts: Sequence[Segment]) -> tuple[tuple[str, str, int], ...]:
    """(value id, "npu->host" or "host->npu", bytes) for every value that one side
    makes and the other reads."""
    made: dict[str, Kind] = {o: s.kind for s in parts for o in s.outputs}
    crossings: dict[tuple[str, str], int] = {}
    for part in parts:
        for value_id in part.inputs:
            source = made.get(value_id, "host")
            if source != part.kind:
                crossings[value_id, f"{source}->{part.kind}"] = nbytes(graph, value_id)
    for value_id in graph.outputs:
        if made.get(value_id) == "npu":
            crossings.setdefault((value_id, "npu->host"), nbytes(graph, value_id))
    return tuple((value_id, way, size) for (value_id, way), size in crossings.items())


def nbytes(graph: Graph, value_id: str) -> int:
    """Bytes of a value as it is stored; 0 where its size is not known."""
    value = graph.values[value_id]
    try:
        item = np.dtype(value.dtype).itemsize
    except TypeError:
        return 0
    return value.type.size * item if value.type.is_static else 0


def _users(graph: Graph) -> dict[str, set[int]]:
    found: dict[str, set[int]] = {}
    for number, node in enumerate(graph.nodes):
        for value_id in node.inputs:
            found.setdefault(value_id, set()).add(number)
    return found


def _border(
    graph: Graph, numbers: Sequence[int], users: dict[str, set[int]]
) -> tuple[tuple[Node, ...], tuple[str, ...], tuple[str, ...]]:
    """Nodes with what they read of others and what others read of them."""
    inside, nodes = set(numbers), tuple(graph.nodes[n] for n in numbers)
    made = [o for n in nodes for o in n.outputs if o]
    own = set(made)
    read = dict.fromkeys(
        i for n in nodes for i in n.inputs if i and i not in own and graph.values[i].const is None
    )
    needed = tuple(o for o in made if o in graph.outputs or users.get(o, set()) - inside)
    return nodes, tuple(read), needed


def _grouped(
    graph: Graph, numbers: Sequence[int], sides: Sequence[bool], first: bool
) -> list[tuple[bool, list[int]]]:
    """Topological order that stays on one side as long as anything there is ready; a loop is taken as a
    whole. `sides`: of every node of the graph."""
    made = {o for n in numbers for o in graph.nodes[n].outputs}
    owner = _read_by_loops(graph)
    ready: set[str] = set()
    waiting, groups, side = list(numbers), [], first
    while waiting:
        taken, left = list[int](), []
        for n in waiting:                 # graph order is topological: one sweep suffices
            read = owner[n] if n in owner else graph.nodes[n].inputs
            if sides[n] is side and all(i not in made or i in ready for i in read):
                ready.update(graph.nodes[n].outputs)
                taken.append(n)
            else:
                left.append(n)
        waiting = left
        if taken:
            groups.append((side, taken))
        side = not side
    return groups


def _read_by_loops(graph: Graph) -> dict[int, Sequence[str]]:
    """By node of a loop, or of the steps that stand for one: what all of it reads of the outside."""
    found: dict[int, Sequence[str]] = {n: loop.inputs for loop in loops(graph) for n in loop.nodes}
    for roll in (roll for roll in graph.rolls if not roll.outer):
        numbers = [n for step in roll.steps for n in step]
        own = {o for n in numbers for o in graph.nodes[n].outputs}
        read = tuple({v: None for n in numbers for v in graph.nodes[n].inputs if v and v not in own})
        found.update(dict.fromkeys(numbers, read))
    return found
