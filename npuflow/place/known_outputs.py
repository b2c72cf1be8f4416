"""Gives outputs that are constants to the host, by an Identity of their own.
A program's outputs need a producer.
"""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType

from npuflow.ir.graph import Graph
from npuflow.ir.op import OPS, Node
from npuflow.onnx.run import EXPORT_OPSET

_WHY = "the output is the same for every input"


def with_known_outputs(graph: Graph) -> Graph:
    """The graph with a producer for each constant output; the constant goes on under the
    output's name and ":constant"."""
    known = {name: f"{name}:constant" for name in graph.outputs if graph.const(name) is not None}
    if not known:
        return graph
    values = dict(graph.values)
    for name, source in known.items():
        values[source] = replace(values[name], id=source)
        values[name] = replace(values[name], const=None)
    nodes = [replace(n, inputs=tuple(known.get(i, i) for i in n.inputs)) for n in graph.nodes]
    for name, source in known.items():
        op = OPS["host"](op_type="Identity", version=EXPORT_OPSET, types=(values[name].type,), reason=_WHY)
        nodes.append(Node(op, (source,), (name,)))
    return graph.replaced(nodes=tuple(nodes), values=MappingProxyType(values))
