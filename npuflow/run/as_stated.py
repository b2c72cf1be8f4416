"""The float network with the roundings that its file states, by which programs of such models are judged."""

from __future__ import annotations

from collections.abc import Mapping

from npuflow.ir.graph import Graph
from npuflow.ir.op import OPS, Node
from npuflow.ir.types import QuantType, Value
from npuflow.run.qdq import QdqBuilder


def stated_activations(graph: Graph, stated: Mapping[str, QuantType]) -> dict[str, QuantType]:
    """The stated types that are those of activations in float32, with one scale."""
    return {
        name: quant
        for name, quant in stated.items()
        if name in graph.values
        and graph.const(name) is None
        and graph.type(name).dtype == "float32"
        and isinstance(quant, QuantType)
        and quant.axis is None
    }


def as_stated(graph: Graph, stated: Mapping[str, QuantType]) -> Graph:
    """The network with a rounding behind every activation whose codes are stated. Its values keep their
    names; an input that is rounded has its rounded form beside it."""
    rounded = stated_activations(graph, stated)
    if not rounded:
        return graph
    values, nodes = dict(graph.values), list[Node]()
    renamed: dict[str, str] = {}

    def free(name: str) -> str:
        while name in values:
            name += "'"
        return name

    def rounding(source: str, out: str, quant: QuantType) -> None:
        codes = free(f"{out}:stated")
        values[codes] = Value(codes, values[source].type, quant)
        values[out] = Value(out, values[source].type)
        nodes.append(Node(OPS["quantizelinear"](), (source,), (codes,), (codes,)))
        nodes.append(Node(OPS["dequantizelinear"](), (codes,), (out,), (out,)))

    for name in graph.inputs:
        if name in rounded:
            renamed[name] = free(f"{name}:rounded")
            rounding(name, renamed[name], rounded[name])
    for node in graph.nodes:
        inputs, outputs = tuple(renamed.get(i, i) for i in node.inputs), list(node.outputs)
        for k, name in enumerate(node.outputs):
            if name in rounded:
                outputs[k] = free(f"{name}:unrounded")
                values[outputs[k]] = Value(outputs[k], graph.type(name))
        nodes.append(Node(node.op, inputs, tuple(outputs), node.origin, node.params))
        for own, name in zip(outputs, node.outputs, strict=True):
            if own != name:
                rounding(own, name, rounded[name])
    builder = QdqBuilder(graph.replaced(nodes=tuple(nodes), values=values))
    for node in nodes:
        builder.node(node)
    made = builder.graph(graph.inputs, graph.outputs)
    return made.replaced(state=graph.state, lengths=graph.lengths, rings=graph.rings)
