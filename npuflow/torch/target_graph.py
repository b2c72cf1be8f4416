"""The network as the compiler sees it: a build's artifacts, and its integers for given weights and scales."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from npuflow.cli._compiled import Compiled
from npuflow.hw.target import Numerics
from npuflow.ir.graph import Graph, constant
from npuflow.ir.types import Array, QuantType
from npuflow.quantise.candidate import Candidate
from npuflow.quantise.graph import Quantization, build
from npuflow.rounders import RoundedWeight
from npuflow.tune.precision.fakequant import FakeQuantNetwork


@dataclass(frozen=True)
class TargetGraph:
    """`candidate`: what was quantised, without codes of weights; `start`: what the build made of it."""

    candidate: Candidate
    start: Graph

    @property
    def graph(self) -> Graph:
        """The float network, after the rewrites."""
        return self.candidate.graph

    @property
    def numerics(self) -> Numerics:
        return self.candidate.numerics

    def groups(self) -> dict[str, tuple[tuple[str, ...], QuantType]]:
        """Values that share one type, with that type, by the first of them."""
        network = FakeQuantNetwork(self.candidate)
        types = network.types(self.candidate.ranges)
        return {group[0]: (group, types[group[0]]) for group in network.groups if group[0] in types}

    def quantized(
        self,
        constants: Mapping[str, Array],
        types: Mapping[str, QuantType],
        weights: Mapping[str, RoundedWeight],
    ) -> Quantization:
        """The quantised graph with these constants, types of activations and codes of weights."""
        kept = {name: quant for name, quant in self.candidate.stated.items() if name not in weights}
        graph = with_constants(self.graph, constants)
        return build(self.candidate.with_(graph=graph, stated={**kept, **types}, weights=weights))


def with_constants(graph: Graph, arrays: Mapping[str, Array]) -> Graph:
    """The graph with other numbers in some of its constants."""
    values, consts = dict(graph.values), dict(graph.consts)
    for name, array in arrays.items():
        values[name], made = constant(name, array)
        consts.update(made)
    return replace(graph, values=MappingProxyType(values), consts=MappingProxyType(consts))


def source_name(graph: Graph, value_id: str) -> str:
    """The value of the float graph that a value of the quantised one stands for."""
    name = value_id
    while name not in graph.values and ":" in name:
        name = name.rpartition(":")[0]
    return name


def target_graph(build: Compiled) -> TargetGraph:
    """What the stages of a build gave."""
    return TargetGraph(build.candidate, build.artifact("quantize").graph)
