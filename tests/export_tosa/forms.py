"""Reasons why operators have no exact TOSA form, node by node."""

from __future__ import annotations

from collections.abc import Sequence

from npuflow.base.errors import ModelError
from npuflow.export_tosa.builder import TosaBuilder
from npuflow.export_tosa.tensors import TosaRefusal
from npuflow.hw.target import Numerics
from npuflow.ir.graph import Graph
from npuflow.ir.op import Node


def forms_of(graph: Graph, numerics: Numerics, nodes: Sequence[Node]) -> dict[str, str]:
    """Of each node that has no exact form the reason, by its first output. Every node is taken by itself."""
    refused = {}
    for node in nodes:
        b = TosaBuilder(graph, numerics)
        try:
            for name in dict.fromkeys(node.inputs):
                if name and graph.values[name].const is None:
                    b.input(graph.values[name], name)
            b.node(node)
        except (TosaRefusal, ModelError) as why:
            refused[node.outputs[0]] = str(why)
    return refused
