"""Clipping ranges by default: outputs and bounded functions keep their extrema, and min-max
stays where clipping harms."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest

from npuflow.calibrators import Grid
from npuflow.ir.graph import Graph
from npuflow.ir.op import OPS
from npuflow.strategies import Budget
from npuflow.tune.judge import Judge
from npuflow.tune.precision.clipping import clip, unclippable
from tests.networks.floats import Feed, Net
from tests.precision.harnesses import Span, extrema, feeds_of, harness_of, mixed_net

GRID = Grid(8, True, False, False, False)
MISSED, HELD = Budget(90.0, 1.0), Budget(1.0)      # by any range of 8 bits; by none
KEPT = ("y", "open", "map")                # outputs of the network and of Sigmoids


def times(ranges: Mapping[str, Span], factor: float) -> dict[str, Span]:
    return {name: (factor * lo, factor * hi) for name, (lo, hi) in ranges.items()}


def outliers(graph: Graph, count: int) -> list[Feed]:
    """One input in a thousand is far out: clipping it makes the others' steps finer."""
    feeds = feeds_of(graph, count)
    for i, feed in enumerate(feeds):
        feed["x"].reshape(-1)[(37 * i) % 256] = 60.0 if i == count - 1 else feed["x"].reshape(-1)[0]
    return feeds


def test_outputs_and_bounded_functions_may_not_be_clipped() -> None:
    graph = mixed_net()
    groups = [("x",), ("c1", "open"), ("y",), ("gated",), ("map",)]
    assert unclippable(graph, groups) == {1, 2, 4}


@pytest.mark.parametrize("factor", [0.4, 3.0])
def test_they_keep_what_calibration_saw_whatever_a_method_says(factor: float) -> None:
    """Neither below the extremes (.4 of them) nor beyond them (three times: beyond 1 for a Sigmoid)."""
    graph = mixed_net()
    feeds = outliers(graph, 24)
    harness = harness_of(graph, feeds=feeds)
    wide = {**harness.wide_ranges, "x": (-4.0, 60.0)}
    done = clip(
        harness,
        {"minmax": wide, "other": {**times(wide, factor), "x": (-4.0, 4.0)}},
        dict.fromkeys(wide, GRID),
        4,
        MISSED,
    )
    for name in KEPT:
        assert done.ranges[name] == wide[name] and done.methods[name] == "minmax"
    assert done.ranges["map"][1] <= 1.0 and done.ranges["map"][0] >= 0.0


def test_the_better_method_is_taken_for_what_it_helps() -> None:
    """An outlier that no held-out sample has: clipping the input is better for the network, and said so."""
    graph = mixed_net()
    harness = harness_of(graph, feeds=outliers(graph, 24))
    wide = dict(harness.wide_ranges)
    tight = extrema(graph, feeds_of(graph, 23))
    done = clip(harness, {"minmax": wide, "tight": tight}, dict.fromkeys(wide, GRID), 8, MISSED)
    assert done.rated["tight"] > done.rated["minmax"] + 3
    assert done.ranges["x"] == tight["x"] and done.methods["x"] == "tight"
    assert done.taken == pytest.approx(done.rated["tight"], abs=0.5)


def test_nothing_is_clipped_where_the_extrema_hold_the_budget() -> None:
    graph = mixed_net()
    harness = harness_of(graph, feeds=outliers(graph, 24))
    wide, tight = dict(harness.wide_ranges), extrema(graph, feeds_of(graph, 23))
    done = clip(harness, {"minmax": wide, "tight": tight}, dict.fromkeys(wide, GRID), 8, HELD)
    assert done.ranges == wide and set(done.methods.values()) == {"minmax"}
    assert list(done.rated) == ["minmax"]


def test_a_method_must_gain_on_every_part_of_the_samples() -> None:
    """The mean over all samples is 3 dB better, and of the last two samples one reaches as far as calibration
    saw."""
    graph = mixed_net()
    feeds = outliers(graph, 24)
    wide, tight = extrema(graph, feeds), extrema(graph, feeds_of(graph, 23))
    held = [*feeds[:7], feeds[23]]
    harness = harness_of(graph, feeds=[*held, *feeds[8:]])
    done = clip(harness, {"minmax": wide, "tight": tight}, dict.fromkeys(wide, GRID), 8, MISSED)
    assert done.rated["tight"] > done.rated["minmax"] + 2
    assert done.ranges == wide and set(done.methods.values()) == {"minmax"}


def test_a_method_must_beat_the_extrema_clearly() -> None:
    graph = mixed_net()
    harness = harness_of(graph)
    wide = dict(harness.wide_ranges)
    nearly = {**wide, "c1": (wide["c1"][0], 0.999 * wide["c1"][1])}
    done = clip(harness, {"minmax": wide, "nearly": nearly}, dict.fromkeys(wide, GRID), 8, MISSED)
    assert done.ranges["c1"] == wide["c1"] and set(done.methods.values()) == {"minmax"}


def test_a_tensor_that_clipping_harms_at_its_reader_keeps_its_extrema() -> None:
    """The method wins for the network by the input, and spoils one tensor: min-max
    is held against it there."""
    graph = mixed_net()
    harness = harness_of(graph, feeds=outliers(graph, 24))
    wide, tight = dict(harness.wide_ranges), extrema(graph, feeds_of(graph, 23))
    tight["gate"] = (0.5 * tight["gate"][0], 0.5 * tight["gate"][1])
    done = clip(harness, {"minmax": wide, "tight": tight}, dict.fromkeys(wide, GRID), 8, MISSED)
    assert done.ranges["x"] == tight["x"]
    assert done.ranges["gate"] == wide["gate"] and done.methods["gate"] == "minmax"


def test_only_free_tensors_are_touched() -> None:
    graph = mixed_net()
    harness = harness_of(graph, feeds=outliers(graph, 24))
    wide = dict(harness.wide_ranges)
    done = clip(harness, {"minmax": wide, "tight": times(wide, 0.2)}, {"c1": GRID}, 4, MISSED)
    assert set(done.ranges) == {"c1"} == set(done.methods)


def test_large_networks_are_rated_on_fewer_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = mixed_net()
    seen: list[int] = []
    usual = Judge.noise

    def noise(judge: Judge, made: list[list[np.ndarray]]) -> np.ndarray:
        seen.append(len(made[0]))
        return usual(judge, made)

    monkeypatch.setattr(Judge, "noise", noise)
    harness = harness_of(graph)
    wide = dict(harness.wide_ranges)
    clip(harness, {"minmax": wide, "other": times(wide, 0.9)}, {"c1": GRID}, 8, MISSED)
    assert set(seen) == {8}
    seen.clear()
    monkeypatch.setattr("npuflow.tune.precision.clipping.EFFORT", 1.0)
    clip(harness, {"minmax": wide, "other": times(wide, 0.9)}, {"c1": GRID}, 8, MISSED)
    assert set(seen) == {2}


def test_groups_that_share_a_scale_with_an_output_keep_theirs() -> None:
    net = Net(3, 1, 4, 8, 8)
    net.conv("c", "x", 4, clip=(0.0, float("inf")))
    graph = net.graph(net.add("y", OPS["reshape"]((1, 256)), "c"))
    harness = harness_of(graph)
    wide = dict(harness.wide_ranges)
    done = clip(harness, {"minmax": wide, "tight": times(wide, 0.3)}, dict.fromkeys(wide, GRID), 4, MISSED)
    assert done.ranges["c"] == wide["c"] and done.ranges["y"] == wide["y"]
