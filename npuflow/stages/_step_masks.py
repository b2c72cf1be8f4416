"""Zeros behind the last step of a run, where windows look ahead over what other layers make."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace

import numpy as np

from npuflow.base.step_count import EACH, StepCount
from npuflow.ir.builder import Builder
from npuflow.ir.graph import Graph
from npuflow.ir.op import OPS
from npuflow.ir.types import Array, TensorType
from npuflow.onnx.run import EXPORT_OPSET
from npuflow.stages._step_counts import ValueSteps, around, windowed


def with_zeros_behind(
    graph: Graph, steps: Mapping[str, ValueSteps], others: Mapping[int, Graph], pooled: Collection[str] = ()
) -> Graph:
    """The graph of any length, whose convolutions read zeros behind the last step as they do in a network of
    so many steps, where their border is: what other layers make of filling there is multiplied by 0.
    `steps`: where values have them; `others`: networks of other lengths; `pooled`: values of which pooling
    reads zeros there, too. The graph itself where none needs it."""
    wanted = dict(_looking_ahead(graph, steps, others, pooled))
    if not wanted or graph.type(graph.lengths[0].name).size > 1:
        return graph
    net, masked = Builder.over(graph), dict[str, str]()
    masks = dict[tuple[StepCount, tuple[int, ...]], str]()
    rows = {count: _steps(net, graph, count) for count in dict.fromkeys(w.count for w in wanted.values())}
    for node in graph.nodes:
        if node.outputs in wanted:
            source, own = node.inputs[0], wanted[node.outputs]
            sizes, row = net.type(source).shape, rows[own.count]
            key = own.count, tuple(size if d == own.axis else 1 for d, size in enumerate(sizes))
            if key not in masks:
                (masks[key],) = net.add(OPS["reshape"](key[1]), (row,), (net.free(f"{row}:along"),))
            if source not in masked:
                ends = (source, masks[key]), (net.free(f"{source}:steps"),)
                (masked[source],) = net.add(OPS["mul"](), *ends, node.origin)
            node = replace(node, inputs=(masked[source], *node.inputs[1:]))
        net.nodes.append(node)
    (length,) = graph.lengths
    inner = dict.fromkeys((*length.inner, *(count for count in rows if count != EACH)))
    return graph.replaced(
        nodes=tuple(net.nodes), values=net.values, consts=net.consts,
        lengths=(replace(length, inner=tuple(inner)),),
    )


def _looking_ahead(
    graph: Graph, steps: Mapping[str, ValueSteps], others: Mapping[int, Graph], pooled: Collection[str]
) -> Iterator[tuple[tuple[str, ...], ValueSteps]]:
    """Layers whose windows reach behind the last step at some length, by what they make, over what another
    layer makes; and where that has steps."""
    makers = {n: one.producer() for n, one in others.items()}
    for node, axis in windowed(graph, steps):
        source, name = node.inputs[0], node.outputs[0]
        if source in graph.inputs or not (source in pooled or node.op.algebra == "convolution"):
            continue
        twins = ((one, makers[n].get(name)) for n, one in others.items())
        reach = (around(one, twin, axis)[1] for one, twin in twins if twin is not None)
        if max(around(graph, node, axis)[1], *reach) > 0:
            yield node.outputs, steps[source]


def _steps(net: Builder, graph: Graph, count: StepCount) -> str:
    """1 for each step that a run has, and 0 for each behind the last one, [1, steps]."""
    length = graph.lengths[0]
    table = net.constant(net.free(f"{length.dim}:lengths"), step_table(length.most, count))
    op = OPS["host"](
        op_type="Gather", version=EXPORT_OPSET, attributes=(("axis", 0),),
        types=(TensorType((1, count.of(length.most))),), reason="the index is not a constant",
    )
    return net.add(op, (table, length.name), (net.free(f"{length.dim}:steps"),))[0]


def step_table(most: int, count: StepCount) -> Array:
    """Row n is that of a run of n steps: 1 for each step that it has, 0 for those behind."""
    rows = np.tri(count.of(most) + 1, count.of(most), -1, np.float32)
    return rows if count == EACH else rows[counts_table(most, count)]


def counts_table(most: int, count: StepCount) -> Array:
    """Entry n: how many steps a run of n has behind strides."""
    return np.array([max(count.of(steps), 0) for steps in range(most + 1)], np.int32)
