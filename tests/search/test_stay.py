"""Plans whose activations stay on their cores: what they may join."""

from __future__ import annotations

from dataclasses import replace

from npuflow.hw.target import Target
from npuflow.ir.graph import Graph
from npuflow.quantise.config import Quantize
from npuflow.schedule.frame import Topology
from npuflow.search.fuse import Fuser
from npuflow.search.parts import Planner
from npuflow.testing.quantised import quantize_graph
from tests.networks.harness import SMALL, machine
from tests.networks.small import Builder

HOST = 3
CORES = replace(
    SMALL, compute=replace(SMALL.compute, cores=4), dma=replace(SMALL.dma, multicast=True),
    memory=replace(SMALL.memory, local_bytes=1 << 14, external_bandwidth=1.0),
)


def with_host(target: Target) -> Graph:
    """Convolutions, one of which runs on the host."""
    b = Builder()
    x = b.input("x", (1, 8, 16, 16))
    for _ in range(6):
        x = b.conv(x, 8, 3)
    graph = Graph(("x",), (x,), tuple(b.nodes), b.values, b.consts)
    ranges = {k: (float(a.min()), float(a.max())) for k, a in b.arrays.items()}
    return quantize_graph(graph, lambda i: i != HOST, ranges, Quantize(), target.numerics).graph


def test_no_group_goes_round_the_host() -> None:
    graph = with_host(CORES)
    topology = Topology(graph, machine(CORES), CORES.numerics)
    singles = Planner(graph, machine(CORES), CORES.numerics, 3).groups()
    found = list(Fuser(topology, machine(CORES), singles, 3).finalists())
    assert any(f.origin.startswith("rows stay") and f.kept for f in found)
    for finalist in found:
        for group in finalist.groups:
            assert len({topology.segment[n] for n in group.nodes if n in topology.segment}) == 1, (
                finalist.origin
            )
