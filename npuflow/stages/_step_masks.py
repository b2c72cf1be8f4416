"""Zeros behind the last step of a run, where convolutions look ahead over what other layers make."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from npuflow.ir.builder import Builder
from npuflow.ir.graph import Graph
from npuflow.ir.op import OPS, No
from npuflow.ir.types import TensorType
from npuflow.onnx.run import EXPORT_OPSET


def with_zeros_behind(graph: Graph, shorter: Graph) -> Graph:
    """The graph of any length, whose convolutions read zeros behind the last step as they do in a network of
    so many steps, where their border is: what other layers make of filling there is multiplied by 0.
    `shorter`: the network of one step less, which tells where steps lie. The graph itself where none needs
    it."""
    wanted = dict(_looking_ahead(graph, shorter))
    if not wanted or graph.type(graph.lengths[0].name).size > 1:
        return graph
    net, masks, masked = Builder.over(graph), dict[tuple[int, ...], str](), dict[str, str]()
    steps = _steps(net, graph)
    for node in graph.nodes:
        if node.outputs in wanted:
            source, axis = node.inputs[0], wanted[node.outputs]
            rank, most = len(net.type(source).shape), graph.lengths[0].most
            shape = tuple(most if d == axis else 1 for d in range(rank))
            if shape not in masks:
                (masks[shape],) = net.add(OPS["reshape"](shape), (steps,), (net.free(f"{steps}:along"),))
            if source not in masked:
                ends = (source, masks[shape]), (net.free(f"{source}:steps"),)
                (masked[source],) = net.add(OPS["mul"](), *ends, node.origin)
            node = replace(node, inputs=(masked[source], *node.inputs[1:]))
        net.nodes.append(node)
    return graph.replaced(nodes=tuple(net.nodes), values=net.values, consts=net.consts)


def _looking_ahead(graph: Graph, shorter: Graph) -> Iterator[tuple[tuple[str, ...], int]]:
    """Convolutions with a border behind the last step, by what they make, over what another layer makes; and
    the dimension that has the steps."""
    most = graph.lengths[0].most
    for node in graph.nodes:
        source = node.inputs[0] if node.inputs else ""
        if node.op.algebra != "convolution" or source in graph.inputs or source not in shorter.values:
            continue
        sizes = list(zip(graph.type(source).shape, shorter.type(source).shape, strict=True))
        border, rank = node.op.border(graph.site(node)), len(sizes)
        for axis in (d for d, pair in enumerate(sizes) if pair == (most, most - 1)):
            if not isinstance(border, No) and border[0][rank + axis] and node.op.framed(axis, 0, 0):
                yield node.outputs, axis


def _steps(net: Builder, graph: Graph) -> str:
    """1 for each step that a run has, and 0 for each behind the last one, [1, steps]."""
    length = graph.lengths[0]
    table = np.tri(length.most + 1, length.most, -1, np.float32)
    rows = net.constant(net.free(f"{length.dim}:lengths"), table)
    op = OPS["host"](
        op_type="Gather", version=EXPORT_OPSET, attributes=(("axis", 0),),
        types=(TensorType((1, length.most)),), reason="the index is not a constant",
    )
    return net.add(op, (rows, length.name), (net.free(f"{length.dim}:steps"),))[0]
