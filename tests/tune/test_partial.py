"""A budget that is missed is known after few samples, and what is said of it is what all samples say."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest

from npuflow.ir.graph import Graph
from npuflow.ir.op import OPS
from npuflow.quantise.graph import build
from npuflow.strategies import Budget
from npuflow.tune import judge as judging
from npuflow.tune.error import Feed, outputs_of
from npuflow.tune.judge import AT_ONCE, Judge, PartialOutputs, judged_outputs
from npuflow.tune.quality import MAP, Outputs
from tests.networks.floats import Net
from tests.tune.test_judge import candidate


def small(answers: str = "", side: int = 6) -> Net:
    net = Net(4, 1, 4, side, side)
    net.conv("a", "x", 4)
    net.add("b", OPS["relu"](), "a")
    net.conv("c" if answers else "y", "b", 3)
    if answers:
        net.add("y", OPS[answers](), "c")
    return net


def scaled(graph: Graph, by: float, ran: list[int]) -> Callable[[Sequence[Feed]], Outputs]:
    """The outputs times a number; how many samples were run goes into a list."""
    def run(feeds: Sequence[Feed]) -> Outputs:
        ran.append(len(feeds))
        return [[by * array for array in column] for column in outputs_of(graph, feeds)]

    return run


@pytest.fixture(autouse=True)
def looked(monkeypatch: pytest.MonkeyPatch) -> None:
    """These networks are so small that their outputs take longer than they do."""
    monkeypatch.setattr(judging, "LOOKED", 1)


@pytest.mark.parametrize("answers", ["", "sigmoid", "softmax"])
def test_budgets_hold_as_by_all_samples(answers: str) -> None:
    net = small(answers)
    one = candidate(net)
    judge, made = Judge(one.graph, net.feeds(3 * AT_ONCE + 1)), build(one).graph
    whole = judged_outputs(judge.score(made))
    level = min(min(found.sqnr, found.low) for found in whole)
    answered = min((found.agreement for found in whole if found.agreement is not None), default=0.5)
    for least in (level - 5, level - 1e-6, level + 1e-6, level + 1, level + 40):
        for share in (answered - 1e-6, answered, answered + 1e-6, 1.0):
            budget, partly = Budget(least, share), PartialOutputs.of(judge, made)
            assert partly.hold(budget) == budget.holds(whole)
            assert partly.judged == whole and partly.complete


def test_a_clear_miss_ends_the_run_and_the_rest_is_made_when_asked_for() -> None:
    net, ran = small(), list[int]()
    one = candidate(net)
    judge = Judge(one.graph, net.feeds(4 * AT_ONCE))

    partly = PartialOutputs.of(judge, scaled(one.graph, 1.5, ran))
    assert not partly.hold(Budget(20.0)) and not partly.complete and sum(ran) < len(judge.held)
    assert partly.judged[0].sqnr == pytest.approx(20 * np.log10(2.0), abs=1e-3)
    assert sum(ran) == len(judge.held) and partly.complete


def test_samples_that_were_noisy_come_first_and_change_no_figure() -> None:
    """Four samples are ruined, the last ones: the second network is known to miss the budget by them."""
    one, ran = candidate(small()), list[int]()
    judge = Judge(one.graph, small().feeds(4 * AT_ONCE))
    last = judge.held[-AT_ONCE:]

    def ruined(feeds: Sequence[Feed]) -> Outputs:
        ran.append(len(feeds))
        noise = [3.0 if any(feed is some for some in last) else 1.001 for feed in feeds]
        return [[by * a for by, a in zip(noise, c, strict=True)] for c in outputs_of(one.graph, feeds)]

    counts = list[int]()
    for _ in range(2):
        ran.clear()
        partly = PartialOutputs.of(judge, ruined)
        assert not partly.hold(Budget(20.0))
        counts.append(sum(ran))
        whole = judged_outputs(judge.of(ruined(judge.held)))
        assert partly.judged == whole and not Budget(20.0).holds(whole)
    assert counts == [len(judge.held), AT_ONCE]
    assert sorted(judge.noisiest_first[:AT_ONCE]) == list(range(3 * AT_ONCE, 4 * AT_ONCE))


def test_maps_with_few_answers_are_judged_by_all_samples() -> None:
    """How their scores are weighed depends on every sample."""
    net, ran = small("sigmoid", side=12), list[int]()
    one = candidate(net)
    assert one.graph.type("y").size >= MAP
    judge = Judge(one.graph, net.feeds(3 * AT_ONCE))

    assert not PartialOutputs.of(judge, scaled(one.graph, 0.0, ran)).hold(Budget(20.0))
    assert ran == [len(judge.held)]


def test_outputs_that_take_longer_than_networks_are_looked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(judging, "LOOKED", 1 << 40)
    one, ran = candidate(small()), list[int]()
    judge = Judge(one.graph, small().feeds(3 * AT_ONCE))

    assert not PartialOutputs.of(judge, scaled(one.graph, 0.0, ran)).hold(Budget(20.0))
    assert ran == [len(judge.held)]
