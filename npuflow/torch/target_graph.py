"""The network as the compiler sees it: a build's artifacts, and its integers for given weights and scales."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from types import MappingProxyType
from typing import Any

from npuflow.base.errors import RecipeError
from npuflow.cli._compiled import Compiled
from npuflow.hw.target import HostProcessor, Memory, Numerics, Target
from npuflow.ir.graph import Graph, constant
from npuflow.ir.types import Array, QuantType
from npuflow.place.islands import PlacementTable, Prices
from npuflow.place.place import NodePlacement
from npuflow.quantise.config import Quantize
from npuflow.quantise.graph import Quantization, quantize_graph
from npuflow.rounders import RoundedWeight
from npuflow.tune.precision.fakequant import FakeQuantNetwork


@dataclass(frozen=True)
class TargetGraph:
    """`graph`: of floats, after the rewrites; `start`: the quantised one that the build made."""

    graph: Graph
    start: Graph
    placed: NodePlacement
    scheme: Quantize
    target: Target
    ranges: Mapping[str, tuple[float, float]]
    stated: Mapping[str, QuantType]
    least: PlacementTable

    @property
    def numerics(self) -> Numerics:
        return self.target.numerics

    def groups(self) -> dict[str, tuple[tuple[str, ...], QuantType]]:
        """Values that share one type, with that type, by the first of them."""
        network = FakeQuantNetwork(self.graph, self.placed, self.scheme, self.numerics, dict(self.stated))
        types = network.types(self.ranges)
        return {group[0]: (group, types[group[0]]) for group in network.groups if group[0] in types}

    def quantized(
        self,
        constants: Mapping[str, Array],
        types: Mapping[str, QuantType],
        weights: Mapping[str, RoundedWeight],
    ) -> Quantization:
        """The quantised graph with these constants, types of activations and codes of weights."""
        prices = Prices(self.target, self.least)
        kept = {name: quant for name, quant in self.stated.items() if name not in weights}
        return quantize_graph(
            with_constants(self.graph, constants),
            self.placed.on_npu,
            self.ranges,
            self.scheme,
            self.numerics,
            {**kept, **types},
            partial(self.placed.stranded, prices=prices),
            (),
            weights,
            self.target.memory.local_bytes,
        )


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
    recipe, wired = build.recipe, build.wired

    def made(name: str) -> Any:
        return build.artifact(str(wired["quantize"].inputs[name].step))

    def table(cls: type[Any]) -> Any:
        found, faults = recipe.read(cls)
        if found is None:
            raise RecipeError(faults)
        return found

    parsed, thresholds, precision = made("graph"), made("thresholds"), made("precision")
    scheme = table(Quantize)
    scheme = replace(scheme, overrides=(*precision.overrides, *scheme.overrides))
    target = Target(numerics=table(Numerics), memory=table(Memory), host=table(HostProcessor))
    return TargetGraph(
        parsed.graph,
        build.artifact("quantize").graph,
        build.artifact("placement").placed,
        scheme,
        target,
        {**thresholds.ranges, **precision.ranges},
        {**parsed.stated, **thresholds.codes},
        table(PlacementTable),
    )
