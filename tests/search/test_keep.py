"""Values that stay in local memory between groups: what no allocation can place is passed over."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

import pytest

from npuflow.ir.graph import Graph
from npuflow.quantise.config import Quantize
from npuflow.schedule.frame import Topology
from npuflow.search.fuse import Fuser
from npuflow.search.parts import Planner
from npuflow.search.score import Scored
from npuflow.testing.quantised import quantize_graph
from tests.networks.harness import SMALL, machine
from tests.networks.small import Builder

ROOMY = replace(SMALL, memory=replace(SMALL.memory, local_bytes=1 << 14, external_bandwidth=1.0))


def groups() -> tuple[Fuser, list[Scored]]:
    """A chain of layers, each a group of its own."""
    b = Builder()
    x = b.input("x", (1, 8, 12, 12))
    for channels in (8, 12, 8, 6, 8):
        x = b.conv(x, channels, 3)
    graph = Graph(("x",), (x,), tuple(b.nodes), b.values, b.consts)
    ranges = {k: (float(a.min()), float(a.max())) for k, a in b.arrays.items()}
    done = quantize_graph(graph, lambda _: True, ranges, Quantize(), ROOMY.numerics).graph
    topology = Topology(done, machine(ROOMY), ROOMY.numerics)
    singles = Planner(done, machine(ROOMY), ROOMY.numerics, 3).groups()
    fuser = Fuser(topology, machine(ROOMY), singles, 3)
    return fuser, [Scored(s, s.costs, s.choice.local_bytes) for s in singles if s.choice is not None]


@pytest.mark.parametrize("unplaced", [(0,), (1,), (0, 1), (2,)])
def test_what_cannot_be_placed_is_passed_over(
    unplaced: Sequence[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    fuser, chosen = groups()
    states = fuser._keep(list(chosen))
    order = [next(iter(states.between(k, k + 1))) for k in range(len(states) - 1)]
    assert len(order) >= 4, order
    refused = {order[i] for i in unplaced}
    real = fuser._placed

    def placed(found: Sequence[Scored], kept: Collection[str]) -> bool:
        return not refused & set(kept) and real(found, set(kept))

    monkeypatch.setattr(fuser, "_placed", placed)
    found, kept = fuser._settled(states)
    assert kept == set(order) - refused
    assert placed(found, kept)


def test_a_state_is_the_one_before_with_one_value_more() -> None:
    fuser, chosen = groups()
    states = fuser._keep(list(chosen))
    assert states.at(0) == (list(chosen), set())
    for number in range(1, len(states)):
        (before, held), (after, more) = states.at(number - 1), states.at(number)
        (value,) = more - held
        changed = [k for k, (a, b) in enumerate(zip(before, after, strict=True)) if a != b]
        touched = [
            k for k, c in enumerate(before)
            for node in (fuser.topology.graph.nodes[n] for n in c.group.nodes)
            if value in (*node.inputs, *node.outputs)
        ]
        assert changed and set(changed) <= set(range(touched[0], touched[-1] + 1))
    assert states.at(-1) == states.at(len(states) - 1)
