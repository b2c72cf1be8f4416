"""What a judge sees and how often it builds; whose samples those are."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from npuflow.flow.signature import signature
from npuflow.flow.stage import STAGES
from npuflow.hw.target import Memory, Target
from npuflow.ir.op import OPS
from npuflow.place.islands import Prices
from npuflow.quantise.candidate import Candidate
from npuflow.quantise.config import Activations, Quantize
from npuflow.quantise.graph import build
from npuflow.stages._calibration import TuningSamples
from npuflow.stages.choose import ChoosingSample
from npuflow.stages.fit import FitSample
from npuflow.stages.verify import VerifyingSample
from npuflow.testing.quantised import placed_by
from npuflow.tune import judge as judging
from npuflow.tune.bias import correct_biases, mean_outputs
from npuflow.tune.error import output_error, outputs_of
from npuflow.tune.improve import ASKED
from npuflow.tune.judge import KEPT, Judge, judged_outputs
from npuflow.tune.quality import quality
from tests.networks.floats import USUAL, Net, floats


def candidate(net: Net, scheme: Quantize | None = None) -> Candidate:
    graph = net.graph("y")
    seen = [floats(graph, feed) for feed in net.feeds(8)]
    ends = {v: [(float(f[v].min()), float(f[v].max())) for f in seen] for v in "xabcy" if v in seen[0]}
    ranges = {v: (min(lo for lo, _ in some), max(hi for _, hi in some)) for v, some in ends.items()}
    return Candidate(graph, placed_by(graph, lambda _: True), scheme or Quantize(), USUAL, ranges)


@pytest.fixture
def net() -> Net:
    net = Net(4, 1, 4, 6, 6)
    net.conv("a", "x", 4)
    net.add("b", OPS["relu"](), "a")
    net.conv("y", "b", 3)
    return net


def test_a_score_is_what_comes_of_building_running_and_comparing(net: Net) -> None:
    one = candidate(net)
    judge = Judge(one.graph, net.feeds(6), net.feeds(6, mean=0.2))
    truth, plain = outputs_of(one.graph, judge.held), build(one).graph
    assert judge.score(one).error == output_error(truth, outputs_of(plain, judge.held)) > 0
    better = correct_biases(one.graph, plain, USUAL, judge.fit, (), ASKED).graph
    corrected, made = judge.score(one, judge.fit), outputs_of(better, judge.held)
    assert corrected.error == output_error(truth, made) != judge.score(one).error
    assert judged_outputs(corrected) == quality(one.graph, truth, made)
    assert judge.score(one.graph).error == 0.0


def test_equal_candidates_are_built_once_and_others_are_not_taken_for_them(
    net: Net, monkeypatch: pytest.MonkeyPatch
) -> None:
    built: list[Candidate] = []

    def recorded(one: Candidate) -> Any:
        built.append(one)
        return build(one)

    monkeypatch.setattr(judging, "build", recorded)
    one = candidate(net)
    judge = Judge(one.graph, net.feeds(2))
    for same in (one, one, one.with_ranges(dict(one.ranges))):
        judge.built(same)
    assert len(built) == 1
    lo, hi = one.ranges["a"]
    others = [
        one.with_ranges({"a": (lo, hi * 1.5)}),
        one.with_(scheme=Quantize(activations=Activations(bits=16))),
        one.with_(prices=Prices(Target(memory=Memory(local_bytes=1024)))),
        one.with_(coded=frozenset("x")),
        one.with_(graph=one.graph.replaced()),
        one.with_(weights={}),
    ]
    for k, other in enumerate(others, 2):
        judge.built(other)
        assert len(built) == k
    judge.built(one)                                       # more than are kept came between
    assert len(others) > KEPT and len(built) == len(others) + 2


def test_the_float_layers_means_are_taken_once(net: Net, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of candidates with the same layers; other samples that fit have means of their own."""
    taken: list[tuple[int, int]] = []

    def counted(graph: Any, names: Any, fit: Any) -> Any:
        taken.append((len(names), len(fit)))
        return mean_outputs(graph, names, fit)

    monkeypatch.setattr(judging, "mean_outputs", counted)
    one = candidate(net)
    judge = Judge(one.graph, net.feeds(2), net.feeds(6, mean=0.2))
    other = one.with_(scheme=Quantize(activations=Activations(bits=16)))
    for some in (one, other):
        built = judge.built(some, judge.fit)
        assert built.consts.keys() == correct_biases(
            one.graph, build(some).graph, USUAL, judge.fit, (), ASKED
        ).graph.consts.keys()
    assert taken == [(2, 6)]
    judge.built(other, judge.fit[:3])
    assert taken == [(2, 6), (2, 3)]


def test_only_the_verdict_can_see_samples_that_verify() -> None:
    """Stages that choose are given no others, by their signatures."""
    readers = {
        stage for stage in STAGES
        if any(one.kind is VerifyingSample for one in signature(STAGES[stage]).upstream.values())
    }
    assert readers == {"verdict"}


def test_a_judge_of_few_samples_has_those_that_choose(net: Net) -> None:
    """The samples that choose judge, those that fit do not, however many are asked for."""
    import npuflow.input.data.config as data

    def content(value: float) -> Any:
        return data.InputSample({"x": np.full((4, 6, 6), value, np.float32)})

    fit = {f"f{k}": FitSample(content(k)) for k in range(9)}
    choose = {f"c{k}": ChoosingSample(content(100 + k)) for k in range(5)}
    samples = TuningSamples(fit, choose)                   # type: ignore[arg-type]
    graph = candidate(net).graph
    for count, held_out in ((64, 16), (64, 2), (6, 16), (3, 1)):
        judge = samples.judge(graph, count, held_out)
        assert judge.held and all(feed["x"].max() >= 100 for feed in judge.held)
        assert judge.fit and all(feed["x"].max() < 100 for feed in judge.fit)
        assert len(judge.held) <= held_out and len(judge.held) + len(judge.fit) <= count
