"""Loops that a plan repeats at the cost of copies are written out where they are short and that is faster."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from npuflow.ir.loops import loops
from npuflow.search.plan import plan_network
from npuflow.search.unfit import PlanRequest
from npuflow.stages import tiling
from npuflow.stages.quantize import Quantized
from tests.networks import random_loops
from tests.networks.harness import machine
from tests.networks.random_loops import quantised, subject

SEED, STEPS = 33, (10, 11, 12, 13, 14, 17, 20, 24)


@pytest.fixture(scope="module")
def case() -> tuple[PlanRequest, Quantized]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(random_loops, "STEPS", STEPS)
        one = subject(SEED)
    assert one is not None
    made = Quantized(quantised(one))
    return PlanRequest(made.planned(), machine(one.target), one.target.numerics, 2), made


def test_a_short_loop_takes_the_fewer_cycles(
    case: tuple[PlanRequest, Quantized], monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted, made = case
    assert loops(made.graph) and wanted.graph.rolls
    costs: Any = SimpleNamespace(memo=None)
    monkeypatch.setattr(tiling, "log", lambda text: None)
    repeated = plan_network(*wanted.arguments)
    taken = tiling._planned(wanted, made, costs, ())
    assert repeated.rolled and not taken.rolled and taken.cycles < repeated.cycles
    monkeypatch.setattr(tiling, "SHORT", 10)
    assert tiling._planned(wanted, made, costs, ()).rolled
