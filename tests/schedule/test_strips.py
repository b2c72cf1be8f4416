"""Strips of a group: how large they are, the slots of what parts hand on, and what the search says that
they move."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from npuflow.hw.target import Target
from npuflow.ir.graph import Graph
from npuflow.ir.op import OPS
from npuflow.ir.space import elements
from npuflow.quantise.config import Quantize
from npuflow.schedule.build import schedule_of
from npuflow.schedule.frame import Frame, Topology
from npuflow.schedule.local import lay_local
from npuflow.schedule.time import time_of
from npuflow.search.finalists import places
from npuflow.search.plan import LowerBounds, TilingPlan
from npuflow.search.score import Scored, Scorer
from npuflow.search.spans import Coster
from npuflow.testing.quantised import quantize_graph
from tests.networks.harness import SMALL, check_exact, machine
from tests.networks.small import Builder

MIDDLE, LAST = 1, 2                       # parts


def network(target: Target, rows: int, width: int = 6) -> tuple[Graph, dict[str, np.ndarray]]:
    """1 x 1, 3 x 3 and 1 x 1: the second reads rows of its neighbours, the third one does not."""
    b = Builder()
    x = b.input("x", (1, 4, rows, width))
    y = b.add(OPS["conv"]((1, 1)), x, b.const((6, 4, 1, 1), 0.3))
    y = b.add(OPS["conv"]((3, 3), (1, 1), (1, 1), (1, 1, 1, 1)), y, b.const((6, 6, 3, 3), 0.2))
    y = b.add(OPS["conv"]((1, 1)), y, b.const((4, 6, 1, 1), 0.3))
    graph = Graph(("x",), (y,), tuple(b.nodes), b.values, b.consts)
    ranges = {k: (float(a.min()), float(a.max())) for k, a in b.arrays.items()}
    quantised = quantize_graph(graph, lambda _: True, ranges, Quantize(), target.numerics).graph
    return quantised, {"x": b.arrays["x"]}


def scored(topology: Topology, target: Target, strips: int, cores: int = 1) -> tuple[Scored, Frame]:
    """All parts as one group, tiled."""
    parts = [(n,) for n in topology.order if n not in topology.moving]
    found = Scorer(topology, machine(target), 0).score(
        parts, ((2, strips),), (2, cores), frozenset(), target.memory.local_bytes
    )
    assert found is not None
    return found, Frame(topology, found.group, frozenset())


def made(topology: Topology) -> list[str]:
    return [topology.graph.nodes[n].outputs[0] for n in topology.order if n not in topology.moving]


def target_of(local: int, cores: int = 1, burst: int = 16) -> Target:
    return replace(
        SMALL,
        compute=replace(SMALL.compute, cores=cores),
        memory=replace(SMALL.memory, local_bytes=local, burst=burst),
    )


@pytest.mark.parametrize("cores", [1, 2])
@pytest.mark.parametrize("strips", [3, 5])
def test_what_is_read_before_the_next_strip_has_one_slot(strips: int, cores: int) -> None:
    """And rows that move on have two; the integers are those of the reference, without hazards."""
    target = target_of(1 << 14, cores)
    graph, feed = network(target, 30 * cores)
    topology = Topology(graph, machine(target), target.numerics)
    found, frame = scored(topology, target, strips, cores)
    first, middle, _ = made(topology)
    assert dict(found.group.held)[middle] == 2
    assert frame.slots[middle] == 1
    assert frame.slots[first] == 2
    copied = [s.holds[first].copied for s in frame.strips[0][1:]]
    assert copied and all(box is not None and elements(box) for box in copied)
    check_exact(graph, feed, target, TilingPlan((found.group,), LowerBounds(0, 0, 0, 0), 0))


@pytest.mark.parametrize("rows, strips", [(7, 6), (28, 10), (11, 4)])
def test_no_strip_is_larger_than_the_first(rows: int, strips: int) -> None:
    """The search looks at the first ones alone."""
    target = target_of(1 << 15)
    topology = Topology(network(target, rows)[0], machine(target), target.numerics)
    _, frame = scored(topology, target, strips)
    sizes = [b - a for s in frame.strips[0] if (w := s.windows[LAST]) is not None for a, b in [w["oh"]]]
    assert sum(sizes) == rows and len(sizes) == strips
    assert max(sizes) == sizes[0] == -(-rows // strips)


@pytest.mark.parametrize("strips", [4, 7])
@pytest.mark.parametrize("held", [False, True])
def test_strips_move_the_bytes_that_the_search_says(held: bool, strips: int) -> None:
    """Rows of a few bytes move in whole bursts, also where a strip reads all that its window has of them."""
    target = target_of(1 << 15, burst=64)
    graph, _ = network(target, 28)
    topology = Topology(graph, machine(target), target.numerics)
    found, frame = scored(topology, target, strips)
    if held:                              # the input has a buffer of its own, as where two parts read it
        group = replace(found.group, held=(("x", 2), *found.group.held))
        again = Scorer(topology, machine(target), 0).cost(
            Frame(topology, group, frozenset()), target.memory.local_bytes
        )
        assert again is not None
        found, frame = again, Frame(topology, again.group, frozenset())
        assert dict(found.group.held)["x"] == 2
    local = lay_local([frame], (), machine(target))
    schedule = schedule_of([frame], local, machine(target), places(topology, [frame]))
    moved = sum(t.bytes for t in time_of(schedule, machine(target)).terms)
    # strips that are smaller than the first count by their rows
    assert found.costs.bytes == pytest.approx(moved, rel=0.15)


def test_strips_are_as_few_as_their_rows_allow() -> None:
    target = target_of(1 << 12)
    topology = Topology(network(target, 28)[0], machine(target), target.numerics)
    coster = Coster(topology, machine(target), 3, [], Scorer(topology, machine(target), 3))
    parts = [(n,) for n in topology.order if n not in topology.moving]
    counts = _counts(coster._strips(parts, 0, True))
    assert counts and max(counts) == 28
    assert all(-(-28 // (n - 1)) > -(-28 // n) for n in counts)


def _counts(strips: Sequence[tuple[tuple[int, int], ...]]) -> list[int]:
    return [cuts[-1][1] for cuts in strips if cuts]
