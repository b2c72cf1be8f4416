"""What the search thinks that tiles cost beside the schedule time of each tile."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import pytest

from npuflow.ir.graph import Graph
from npuflow.ir.op import OPS
from npuflow.quantise.config import Quantize
from npuflow.schedule.choice import TileChoice
from npuflow.schedule.cycles import array_cycles, extents_of
from npuflow.schedule.frame import Topology
from npuflow.schedule.parts import tiles_of
from npuflow.search.cost import tensor_cycles
from npuflow.testing.quantised import quantize_graph
from tests.networks.harness import SMALL, machine
from tests.networks.random_tilings import grid_of
from tests.networks.small import Builder


# of a tile; the last tile has the one that is left of 7
@pytest.mark.parametrize("groups", [1, 2, 3])
@pytest.mark.parametrize("each", [1, 2, 5])                    # channels that a group makes of its own one
@pytest.mark.parametrize("dataflow", ["weight_stationary", "output_stationary"])
def test_the_array_takes_a_lone_group_of_a_depthwise_layer_as_a_dense_one(
    dataflow: Literal["weight_stationary", "output_stationary"], each: int, groups: int
) -> None:
    b = Builder()
    x = b.input("x", (1, 7, 8, 8))
    y = b.add(OPS["conv"]((1, 1), group=7), x, b.const((7 * each, 1, 1, 1), 1.0))
    graph = Graph(("x",), (y,), tuple(b.nodes), b.values, b.consts)
    ranges = {k: (float(a.min()), float(a.max())) for k, a in b.arrays.items()}
    graph = quantize_graph(graph, lambda _: True, ranges, Quantize(), SMALL.numerics).graph
    target = replace(SMALL, compute=replace(SMALL.compute, dataflow=dataflow, depthwise_macs=16))
    topology = Topology(graph, machine(target), target.numerics)
    (node,) = (n for n in topology.order if n not in topology.moving)
    layer = topology.member((node,), frozenset()).layer
    sizes = {a.name: a.size for a in layer.axes} | {layer.mac.group_axis: groups * each}
    choice = TileChoice(tuple(sizes.items()), tuple(sizes), (2,) * len(layer.streams), 0)
    tiles = list(tiles_of({a.name: (0, a.size) for a in layer.axes}, choice))
    sums = float(tensor_cycles(layer, machine(target), grid_of(layer, sizes))[0])
    assert sums == pytest.approx(
        sum(array_cycles(layer, extents_of(t), target.compute) for t in tiles), abs=len(tiles)
    )
