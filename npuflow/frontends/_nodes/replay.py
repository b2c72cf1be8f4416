"""A finished graph through the builder once more, so that the recipe's bindings hold for it."""

from __future__ import annotations

from collections.abc import Mapping

from npuflow.base.errors import NpuflowError
from npuflow.base.wording import counted
from npuflow.frontends import Bindings, Reading
from npuflow.frontends._nodes import ends
from npuflow.frontends._nodes.build import NodeBuilder
from npuflow.ir.graph import Graph
from npuflow.ir.types import QuantType
from npuflow.onnx.run import EXPORT_OPSET
from npuflow.onnx.types import value_info


def replayed(graph: Graph, stated: Mapping[str, QuantType], bindings: Bindings) -> Reading:
    """The graph with the recipe's cut points and constants."""
    builder = NodeBuilder({"": EXPORT_OPSET})
    infos = [value_info(name, graph.type(name)) for name in graph.inputs]
    fed, faults = ends.inputs(builder, infos, list(graph.values), bindings)
    for value in graph.values.values():
        array = graph.const(value.id)
        if array is not None:
            builder.constant(value.id, array)
    try:
        casts = set(builder.singles.values())  # of inputs in half precision, which the builder has made again
        for node in graph.nodes:
            if casts.intersection(node.outputs):
                continue
            types = [graph.type(o) for o in node.outputs if o]
            builder.add(node.op, node.inputs, node.outputs, node.origin, types)
    except NpuflowError as fault:
        raise ends.together([*faults, fault]) from None
    for name, quant in stated.items():
        if name in builder.values:
            builder.state(name, quant)
    if builder.stated:
        builder.notes.append(
            f"the model states the codes of {counted(len(builder.stated), 'tensor')}; their scales are kept"
        )
    wanted = ends.outputs(builder, graph.outputs, fed, bindings, faults)
    return ends.reading(builder, fed, wanted, {})
