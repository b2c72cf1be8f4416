"""Rows that a strided layer reads in part are loaded whole where they lie together in external memory."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from npuflow.hw.target import Target
from npuflow.ir.graph import Graph
from npuflow.quantise.config import Quantize
from npuflow.schedule import frame
from npuflow.search import parts
from npuflow.search.plan import plan_network
from npuflow.testing.quantised import quantize_graph
from tests.networks.harness import SMALL, check_exact, machine
from tests.networks.small import Builder

MEMORY = replace(SMALL.memory, local_bytes=1 << 14, external_bandwidth=2.0, burst=32)
NARROW = replace(SMALL, memory=MEMORY)
CORES = replace(NARROW, compute=replace(SMALL.compute, cores=2))
TIGHT = replace(NARROW, memory=replace(MEMORY, local_bytes=440))


def strided(
    target: Target, kernel: int, readers: int, width: int = 14
) -> tuple[Graph, dict[str, np.ndarray]]:
    """Layers of stride 2 on one input."""
    b = Builder()
    x = b.input("x", (1, 16, 14, width))
    made = tuple(b.conv(x, 8, kernel, 2, clip=(0.0, 6.0)) for _ in range(readers))
    graph = Graph(("x",), made, tuple(b.nodes), b.values, b.consts)
    ranges = {k: (float(a.min()), float(a.max())) for k, a in b.arrays.items()}
    return quantize_graph(graph, lambda _: True, ranges, Quantize(), target.numerics).graph, b.arrays


def as_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Loads have the columns that windows touch."""
    for room in (frame, parts):
        monkeypatch.setattr(room, "with_whole_rows", lambda layer, *_: layer)


@pytest.mark.parametrize("readers", [1, 2])
@pytest.mark.parametrize("target", [NARROW, CORES], ids=["narrow", "cores"])
def test_rows_of_every_second_column_are_loaded_whole(
    target: Target, readers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In fewer cycles than as they are read, and to the same integers; also where the rows lie in a buffer
    that two layers read."""
    graph, arrays = strided(target, 1, readers)
    plan = plan_network(graph, machine(target), target.numerics)
    program = check_exact(graph, {"x": arrays["x"]}, target, plan)
    assert program.meta["plan"]["cycles"] == pytest.approx(plan.cycles)
    as_read(monkeypatch)
    before = plan_network(graph, machine(target), target.numerics)
    check_exact(graph, {"x": arrays["x"]}, target, before)
    assert plan.cycles < before.cycles and plan.bytes < before.bytes


@pytest.mark.parametrize(
    ("target", "kernel", "width"), [(NARROW, 3, 14), (NARROW, 1, 13), (TIGHT, 1, 14)],
    ids=["windows that meet", "no column left out", "no room"],
)
def test_other_rows_are_loaded_as_they_are_read(
    target: Target, kernel: int, width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph, arrays = strided(target, kernel, 1, width)
    plan = plan_network(graph, machine(target), target.numerics)
    check_exact(graph, {"x": arrays["x"]}, target, plan)
    as_read(monkeypatch)
    assert plan_network(graph, machine(target), target.numerics).groups == plan.groups
