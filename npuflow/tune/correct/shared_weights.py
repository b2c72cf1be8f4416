"""A network at another shape with the weights and biases of the first, corrections included."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

import numpy as np

from npuflow.hw.target import Numerics
from npuflow.ir.graph import Graph
from npuflow.ir.queries import kind
from npuflow.ir.types import Array, TensorType
from npuflow.tune.bias import rebiased, takes_bias

WEIGHTS = ("weight", "bias")


def with_weights(graph: Graph, first: Graph) -> Graph:
    """The float graph with the weights and biases that the layers of the same name have in another, where
    these were changed (equalisation)."""
    known, nodes = first.producer(), []
    values, consts = dict(graph.values), dict(graph.consts)
    for node in graph.nodes:
        other = known.get(node.outputs[0])
        inputs = list(node.inputs)
        if other is not None and kind(other) == kind(node):
            inputs += [""] * (len(other.inputs) - len(inputs))
            for i, name in enumerate(other.inputs):
                array = first.const(name)
                if array is None or node.op.role(i) not in WEIGHTS or not _fits(graph, inputs[i], array):
                    continue
                inputs[i], value = name, first.values[name]
                values[name] = value
                consts[str(value.const)] = array
        nodes.append(replace(node, inputs=tuple(inputs)))
    return graph.replaced(
        nodes=tuple(nodes), values=MappingProxyType(values), consts=MappingProxyType(consts)
    )


def _fits(graph: Graph, name: str, array: Array) -> bool:
    own = graph.const(name)
    return not name or (own is not None and own.shape == array.shape)


@dataclass(frozen=True)
class SharedWeights:
    """A quantised graph, how many layers have weights, and which of them have other codes than the first."""

    graph: Graph
    layers: int
    other: tuple[str, ...]


def with_biases(graph: Graph, first: Graph, numerics: Numerics) -> SharedWeights:
    """The quantised graph with the biases, corrections included, that the layers have in the first one."""
    known, layers, unlike = first.producer(), 0, []
    for at, node in enumerate(graph.nodes):
        if not takes_bias(graph, node):
            continue
        layers += 1
        other = known.get(node.outputs[0])
        if other is None or not _same(graph, first, node.inputs[1], other.inputs[1]):
            unlike.append(node.name)
            continue
        mine, theirs = ((*one.inputs, "")[2] for one in (node, other))
        if theirs and not (mine and _same(graph, first, mine, theirs)):
            codes = first.const(theirs)
            if codes is not None:
                graph = rebiased(graph, at, codes, first.values[theirs].quant, numerics)
    return SharedWeights(graph, layers, tuple(unlike))


def _same(graph: Graph, first: Graph, mine: str, theirs: str) -> bool:
    one, other = graph.values[mine], first.values[theirs]
    return one.const == other.const and one.quant == other.quant


def stretched(feed: Mapping[str, Array], types: Mapping[str, TensorType]) -> dict[str, Array]:
    """A sample of one shape at another: longer axes repeat it, shorter ones cut it off."""
    found = {}
    for name, array in feed.items():
        made = array
        for axis, size in enumerate(types[name].shape):
            if made.shape[axis] != size:
                made = np.take(made, np.arange(size) % made.shape[axis], axis)
        found[name] = made
    return found
