"""The part of a quantised network that becomes C: all of its integer nodes, between its boundaries."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from npuflow.base.errors import ModelError
from npuflow.ir.graph import Graph
from npuflow.ir.loops import contiguous
from npuflow.ir.op import Node
from npuflow.ir.types import QuantType, Value
from npuflow.place.partition import boundary, is_npu
from npuflow.place.place import op_name

MOST = 12  # layers that a refusal lists


@dataclass(frozen=True)
class IntegerNetwork:
    """Nodes in order, and the integer values that go in and out, with the names that the model gives them."""

    graph: Graph
    nodes: tuple[Node, ...]
    inputs: tuple[tuple[str, Value], ...]
    outputs: tuple[tuple[str, Value], ...]


def _in_floats(graph: Graph, node: Node) -> bool:
    """Layers of the NPU on floats, and casts to and from them."""
    ends = [graph.values[i] for i in (*node.inputs, *node.outputs) if i]
    return is_npu(node) and any(value.number for value in ends)


def _casts(graph: Graph) -> list[Node]:
    """Casts of inputs of whole numbers, such as the positions of words: the boundary behind them takes the
    numbers themselves."""
    return [
        n
        for n in graph.nodes
        if not is_npu(n)
        and n.op.onnx_type()[1] == "Cast"
        and n.inputs[0] in graph.inputs
        and n.outputs[0] not in graph.outputs
        and np.dtype(graph.type(n.inputs[0]).dtype).kind in "iu"
        and all(boundary(graph, reader) == "quantize" for reader in graph.consumers()[n.outputs[0]])
    ]


def _handed(graph: Graph) -> tuple[list[Node], dict[str, str]]:
    """Layers of the host that hand codes on to outputs as they are: copies, changes of the type of real
    numbers, whole numbers such as the place of a maximum as integers. And the value of each result."""
    made = {n.inputs[0]: n.outputs[0] for n in graph.nodes if boundary(graph, n) == "quantize"}
    source = {i: made.get(i, i) for i in graph.inputs}
    source |= {n.outputs[0]: n.inputs[0] for n in graph.nodes if boundary(graph, n) == "dequantize"}
    nodes, found = list[Node](), dict[str, str]()
    for n in graph.nodes:
        if is_npu(n) or boundary(graph, n) is not None or n.inputs[:1] == () or n.inputs[0] not in source:
            continue
        value, kind = graph.values[source[n.inputs[0]]], n.op.onnx_type()[1]
        if kind == "Identity" or (kind == "Cast" and _keeps(value, graph.type(n.outputs[0]).dtype)):
            source[n.outputs[0]] = found[n.outputs[0]] = value.id
            nodes.append(n)
    consumers, last = graph.consumers(), set[str]()
    for n in reversed(nodes):  # what anything else reads is no end
        readers = consumers.get(n.outputs[0], [])
        if all(r.outputs[0] in last for r in readers) and (readers or n.outputs[0] in graph.outputs):
            last.add(n.outputs[0])
    return [n for n in nodes if n.outputs[0] in last], {i: v for i, v in found.items() if i in last}


def _keeps(value: Value, dtype: str) -> bool:
    """Whether a cast leaves the numbers that codes stand for as they are; of whole numbers, where the type
    has room for 16 bits, or where they are truth values."""
    if not isinstance(value.quant, QuantType):
        return False
    if dtype in ("float16", "bfloat16", "float32", "float64"):
        return True
    whole = value.quant.scale == (1.0,) and value.quant.zero_point == (0,)
    return whole and dtype in ("bool", "int16", "uint16", "int32", "uint32", "int64", "uint64")


def _joins(graph: Graph) -> list[Node]:
    """Layers of the host that join and turn what the NPU made, and make nothing but outputs of it: the parts
    are outputs, each with its own scale."""
    consumers, found = graph.consumers(), dict[tuple[str, ...], Node]()
    for node in reversed(graph.nodes):
        moves = not is_npu(node) and boundary(graph, node) is None and node.op.moves_data
        readers = [r for o in node.outputs for r in consumers.get(o, [])]
        if moves and all(r.outputs in found for r in readers):
            found[node.outputs] = node
    made = {o: n for n in graph.nodes for o in n.outputs}
    for node in [n for n in graph.nodes if n.outputs in found]:
        sources = [made[i] for i in node.inputs if i in made]
        if not all(n.outputs in found or boundary(graph, n) == "dequantize" for n in sources):
            del found[node.outputs]
    return list(found.values())


def network_of(graph: Graph, because: str = "the C program computes in integers only") -> IntegerNetwork:
    """A ModelError with the list of layers where some run on the host or in float. The nodes of a loop stand
    behind each other."""
    graph = contiguous(graph)
    casts = _casts(graph)
    ids, joins = {n.outputs[0] for n in casts}, _joins(graph)
    ends, handed = _handed(graph)
    left = [*casts, *joins, *ends]
    host = [n for n in graph.nodes if not is_npu(n) and boundary(graph, n) is None and n not in left]
    # a boundary between integer layers, or one that an output of the host needs
    given_there = {*graph.inputs, *ids}
    inner = [n for n in graph.nodes if boundary(graph, n) == "quantize" and n.inputs[0] not in given_there]
    joined = [i for n in joins for i in n.inputs]
    taken = {*graph.outputs, *joined, *(n.inputs[0] for n in ends)}
    inner += [n for n in graph.nodes if boundary(graph, n) == "dequantize" and n.outputs[0] not in taken]
    refused = host + [n for n in graph.nodes if _in_floats(graph, n)]
    refused += [n for n in inner if n not in refused]
    if refused:
        listed = [f"{n.name} ({op_name(n)})" for n in refused]
        more = f" and {len(listed) - MOST} more" if len(listed) > MOST else ""
        raise ModelError(
            f"{len(refused)} layers run on the host or in float: {', '.join(listed[:MOST])}{more}",
            because=because,
            hint="npuflow inspect gives the reasons; cut the model before them, or choose another target",
            code="NF-PROGRAM-031",
        )
    made = {n.inputs[0]: n.outputs[0] for n in graph.nodes if boundary(graph, n) == "quantize"}
    made |= {n.inputs[0]: made[n.outputs[0]] for n in casts}
    given = {n.outputs[0]: n.inputs[0] for n in graph.nodes if boundary(graph, n) == "dequantize"} | handed
    nodes = tuple(n for n in graph.nodes if is_npu(n))
    inputs = [(i, graph.values[made.get(i, i)]) for i in graph.inputs]
    first = {*made.values()}
    several = [n for n in graph.nodes if boundary(graph, n) == "quantize" and n.outputs[0] not in first]
    inputs += [(n.outputs[0], graph.values[n.outputs[0]]) for n in several]
    after = {o for n in joins for o in n.outputs}
    outputs = [(o, graph.values[given.get(o, o)]) for o in graph.outputs if o not in after]
    outputs += [(given[i], graph.values[given[i]]) for i in dict.fromkeys(joined) if i in given]
    for name, value in (*inputs, *outputs):
        if value.quant is None or not value.quant.per_tensor:
            raise ModelError(
                f'"{name}" has no integer codes',
                because="the exported network takes and gives codes",
                hint="npuflow inspect shows what runs where",
                code="NF-PROGRAM-051",
            )
    return IntegerNetwork(graph, nodes, tuple(inputs), tuple(outputs))
