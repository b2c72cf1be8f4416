"""Noise of single units by sections of the network: the same as by passes of the whole network."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence

import numpy as np
import pytest

from npuflow.base import processors
from npuflow.base.processors import PROCESSORS
from npuflow.strategies import NARROW, WIDE, Noise
from npuflow.tune import tuned
from npuflow.tune.precision import prefix, sensitivity
from npuflow.tune.precision.harness import Harness
from npuflow.tune.precision.prefix import PrefixEvaluation, cuts, lives
from npuflow.tune.precision.sensitivity import noises
from tests.precision.harnesses import feeds_of, harness_of, mixed_net


def whole(harness: Harness, unit: int, level: int, samples: int) -> np.ndarray:
    """By a pass of the whole network with quantisers."""
    table, first = harness.plain.copy(), len(harness.network.groups)
    weights = {}
    if unit < first:
        table[unit] = harness.table(level)[unit]
    else:
        weights = dict(harness.weight(unit - first, level))
    return harness.probe_noise(table, weights, samples)


@pytest.fixture(name="harness")
def _rig(monkeypatch: pytest.MonkeyPatch) -> Harness:
    """Cut between every two nodes."""
    monkeypatch.setattr(prefix, "cuts", lambda graph, probes, samples: list(range(len(graph.nodes) + 1)))
    return harness_of(mixed_net())


def test_every_unit_alone_has_the_noise_of_a_whole_pass(harness: Harness) -> None:
    assert harness.prefix is not None and harness.prefix.sections == len(harness.network.graph.nodes)
    paid = 0
    for unit in range(len(harness.names)):
        for level in (NARROW, WIDE):
            found = harness.together([unit], level, 3)
            np.testing.assert_allclose(found, whole(harness, unit, level, 3), rtol=1e-3, atol=1e-11)
        paid += harness.prefix.pays([unit])
    assert paid > len(harness.names) // 2


def test_several_threads_measure_the_noise_of_one(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted, threads = noises(harness, 3, lambda *_: None), set[int]()
    other, plain = harness_of(mixed_net()), Harness.together

    def together(self: Harness, units: Sequence[int], level: int, probes: int) -> Noise:
        threads.add(threading.get_ident())
        time.sleep(0.001)
        return plain(self, units, level, probes)

    monkeypatch.setattr(Harness, "together", together)
    monkeypatch.setattr(processors, "WORTH", 0)
    monkeypatch.setattr(PROCESSORS, "count", 2)
    with PROCESSORS.at_work():
        np.testing.assert_array_equal(noises(other, 3, lambda *_: None), wanted)
    assert len(threads) > 1


def test_units_are_not_measured_again_beyond_the_effort(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, plain = list[int](), Harness.together

    def together(self: Harness, units: Sequence[int], level: int, probes: int) -> Noise:
        asked.append(probes)
        return plain(self, units, level, probes)

    monkeypatch.setattr(Harness, "together", together)
    monkeypatch.setattr(tuned, "NOISE_MACS", 0)             # 8 passes, which one sample of each run takes
    monkeypatch.setattr(sensitivity, "runs", lambda harness, count: [[u] for u in range(count + 1)])
    noises(harness, 3, lambda *_: None)
    assert set(asked) == {1}


def test_a_layer_runs_its_own_section_with_quantisers_and_none_before(harness: Harness) -> None:
    assert harness.prefix is not None
    weights = {w.value: len(harness.network.groups) + j for j, w in enumerate(harness.network.weights)}
    graph = harness.network.graph
    (at,) = [i for i, n in enumerate(graph.nodes) if n.outputs == ("y",)]
    unit = next(u for v, u in weights.items() if v in graph.nodes[at].inputs)
    assert harness.prefix.span([unit]) == (at, at)
    harness.together([unit], NARROW, 2)
    assert set(harness.prefix._fake) == {at}


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
    harness = harness_of(mixed_net())
    made = PrefixEvaluation(harness.network, harness.shown, False, feeds_of(harness.network.graph, 2))
    assert made.sections == 1 and not made.pays([0])
