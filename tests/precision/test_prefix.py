"""Noise of single units by sections of the network: the same as by passes of the whole network."""

from __future__ import annotations

import numpy as np
import pytest

from npuflow.strategies import NARROW, WIDE
from npuflow.tune.precision import prefix
from npuflow.tune.precision.harness import Harness
from npuflow.tune.precision.prefix import PrefixEvaluation, cuts, lives
from tests.precision.rigs import feeds_of, mixed_net, rig_of


def whole(rig: Harness, unit: int, level: int, samples: int) -> np.ndarray:
    """By a pass of the whole network with quantisers."""
    table, first = rig.plain.copy(), len(rig.network.groups)
    weights = {}
    if unit < first:
        table[unit] = rig.table(level)[unit]
    else:
        weights = dict(rig.weight(unit - first, level))
    return rig.probe_noise(table, weights, samples)


@pytest.fixture(name="rig")
def _rig(monkeypatch: pytest.MonkeyPatch) -> Harness:
    """Cut between every two nodes."""
    monkeypatch.setattr(prefix, "cuts", lambda graph, probes, samples: list(range(len(graph.nodes) + 1)))
    return rig_of(mixed_net())


def test_every_unit_alone_has_the_noise_of_a_whole_pass(rig: Harness) -> None:
    assert rig.prefix is not None and rig.prefix.sections == len(rig.network.graph.nodes)
    paid = 0
    for unit in range(len(rig.names)):
        for level in (NARROW, WIDE):
            found = rig.together([unit], level, 3)
            np.testing.assert_allclose(found, whole(rig, unit, level, 3), rtol=1e-3, atol=1e-11)
        paid += rig.prefix.pays([unit])
    assert paid > len(rig.names) // 2


def test_a_layer_runs_its_own_section_with_quantisers_and_none_before(rig: Harness) -> None:
    assert rig.prefix is not None
    weights = {w.value: len(rig.network.groups) + j for j, w in enumerate(rig.network.weights)}
    graph = rig.network.graph
    (at,) = [i for i, n in enumerate(graph.nodes) if n.outputs == ("y",)]
    unit = next(u for v, u in weights.items() if v in graph.nodes[at].inputs)
    assert rig.prefix.span([unit]) == (at, at)
    rig.together([unit], NARROW, 2)
    assert set(rig.prefix._fake) == {at}


def test_cuts_are_where_few_bytes_pass_and_bounded_by_what_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = mixed_net()
    known = lives(graph, graph.outputs)
    assert known["x"] == (0, 0) and known["map"][1] == len(graph.nodes)
    found = cuts(graph, graph.outputs, 4)
    assert found[0] == 0 and found[-1] == len(graph.nodes) and sorted(set(found)) == found
    monkeypatch.setattr(prefix.tuned, "SECTION_VALUES", 1)
    assert cuts(graph, graph.outputs, 4) == [0, len(graph.nodes)]


def test_a_single_section_is_left_to_whole_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prefix.tuned, "SECTION_VALUES", 1)
    rig = rig_of(mixed_net())
    made = PrefixEvaluation(rig.network, rig.shown, False, feeds_of(rig.network.graph, 2))
    assert made.sections == 1 and not made.pays([0])
