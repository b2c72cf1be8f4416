"""Loops that a plan repeats at the cost of copies are written out where they are short and that is faster.
Two that may run beside each other become one."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from npuflow.ir.loops import loops
from npuflow.search.plan import plan_network
from npuflow.search.unfit import PlanRequest
from npuflow.stages import tiling
from npuflow.stages.quantize import Quantized, to_plan
from tests.networks import looped, random_loops
from tests.networks.harness import machine
from tests.networks.random_loops import quantised, subject
from tests.program.test_pairs import PAIRS
from tests.program.test_repeats import TARGET

SEED, STEPS = 33, (10, 11, 12, 13, 14, 17, 20, 24)


@pytest.fixture(scope="module")
def case() -> tuple[PlanRequest, Quantized]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(random_loops, "STEPS", STEPS)
        one = subject(SEED)
    assert one is not None
    made = Quantized(quantised(one))
    return PlanRequest(to_plan(made.graph), machine(one.target), one.target.numerics, 1), made


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


def test_directions_run_as_one_loop_where_local_memory_holds_both(monkeypatch: pytest.MonkeyPatch) -> None:
    made, costs = Quantized(looped.quantised(PAIRS["lstm"](), TARGET)[0]), SimpleNamespace(memo=None)
    monkeypatch.setattr(tiling, "log", lambda text: None)
    found = {}
    for size in (32768, 1536):
        target = replace(TARGET, memory=replace(TARGET.memory, local_bytes=size))
        wanted = PlanRequest(to_plan(made.graph), machine(target), target.numerics, 1)
        found[size] = tiling._planned(wanted, made, cast(Any, costs), ())
        assert found[size].cycles <= plan_network(*wanted.arguments).cycles
    assert found[32768].paired and not found[1536].paired
    few = to_plan(made.graph, not found[32768].rolled, found[32768].paired)
    assert len(few.rolls) == 1
