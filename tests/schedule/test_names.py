"""Values may have any names: those of slots in local memory as well."""

from __future__ import annotations

import pytest

from npuflow.ir.graph import Graph
from npuflow.place.place import place
from npuflow.quantise.config import Quantize
from npuflow.stages.tiling import shipped_targets
from npuflow.testing.quantised import quantize_graph
from tests.networks.floats import Net
from tests.networks.harness import check_exact
from tests.precision.harnesses import extrema, feeds_of

POSITIVE = (0.0, float("inf"))


def network(names: list[str]) -> Graph:
    """As torch.export names what a Sequential in a Sequential computes."""
    net = Net(5, 1, 3, 16, 16)
    source = "x"
    for i, name in enumerate(names):
        net.conv(name, source, 8, depthwise=i % 2 == 1, clip=POSITIVE)
        source = name
    net.conv("y", source, 4)
    return net.graph("y")


@pytest.mark.parametrize("second", ["0", "1", "2", "3"])
def test_values_named_as_slots_are(second: str) -> None:
    names = [f"{a}.{second}" for a in range(4)] + ["move", "scratch"]
    graph, target = network(names), shipped_targets()["edge-4t"]
    feeds = feeds_of(graph, 4)
    placed = place(graph, target)
    made = quantize_graph(graph, placed.on_npu, extrema(graph, feeds), Quantize(), target.numerics).graph
    check_exact(made, feeds[0], target)
