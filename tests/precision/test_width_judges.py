"""Which samples judge widths: those that choose, and where these are few, some that fit."""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest

from npuflow.stages._calibration import CalibrationData
from npuflow.tune.judge import Judge
from npuflow.tune.precision.config import Probing
from tests.networks.floats import Net


@dataclass(frozen=True)
class Ready:
    judge: Judge


def judged(held: int, fit: int, **probing: int) -> tuple[list[Any], Judge, Judge]:
    """The feeds, and the judge without and with those that are added."""
    net = Net(3, 1, 4, 8, 8)
    net.conv("y", "x", 4)
    feeds = net.feeds(held + fit)
    plain = Judge(net.graph("y"), feeds[:held], feeds[held:])
    data: Any = SimpleNamespace(harness=lambda *wanted: Ready(plain))
    network: Any = None
    return feeds, plain, CalibrationData.width_harness(data, network, (), Probing(**probing)).judge


@pytest.mark.parametrize(
    ("held", "fit", "held_out", "wanted"), [(8, 24, 32, 16), (8, 24, 10, 10), (8, 3, 32, 11), (1, 2, 32, 3)]
)
def test_few_that_choose_are_helped_by_some_that_fit(held: int, fit: int, held_out: int, wanted: int) -> None:
    feeds, _, judge = judged(held, fit, held_out=held_out)
    assert len(judge.held) == wanted and all(a is b for a, b in zip(judge.held, feeds, strict=False))
    assert list(judge.fit) == feeds[held:]


@pytest.mark.parametrize(("held", "fit"), [(16, 24), (20, 4), (0, 5)])
def test_enough_judge_alone_and_nothing_is_judged_where_none_chooses(held: int, fit: int) -> None:
    _, plain, judge = judged(held, fit)
    assert judge is plain
