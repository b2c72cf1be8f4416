"""Loops that a plan repeats at the cost of copies are written out where they are short and that is faster.

Two that may run beside each other become one, or each has a core of its own.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from npuflow.ir.graph import Graph
from npuflow.ir.loops import loops
from npuflow.search.plan import plan_network
from npuflow.search.strategies import others_than
from npuflow.search.unfit import PlanRequest
from npuflow.stages import tiling
from npuflow.stages.quantize import Quantized, to_plan
from npuflow.stages.simulate import Simulation
from npuflow.stages.tiling import Tiled
from tests.frontends.building import built, model
from tests.networks import looped, random_loops
from tests.networks.harness import machine
from tests.networks.onnx_text import normal
from tests.networks.random_loops import quantised, subject
from tests.program.test_pairs import PAIRS
from tests.program.test_repeats import CORES, TARGET

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
    monkeypatch.setattr(tiling, "log", lambda text: None)
    repeated = plan_network(*wanted.arguments)
    taken = tiling.best_plan(tiling.LoopForms(wanted, made))
    assert repeated.rolled and not taken.rolled and taken.cycles < repeated.cycles
    monkeypatch.setattr(tiling, "SHORT", 10)
    assert tiling.best_plan(tiling.LoopForms(wanted, made)).rolled


@pytest.mark.slow
def test_directions_run_as_one_loop_where_local_memory_holds_both(monkeypatch: pytest.MonkeyPatch) -> None:
    made = Quantized(looped.quantised(PAIRS["lstm"](), TARGET)[0])
    monkeypatch.setattr(tiling, "log", lambda text: None)
    found = {}
    for size in (32768, 1536):
        target = replace(TARGET, memory=replace(TARGET.memory, local_bytes=size))
        wanted = PlanRequest(to_plan(made.graph), machine(target), target.numerics, 1)
        found[size] = tiling.best_plan(tiling.LoopForms(wanted, made))
        assert found[size].cycles <= plan_network(*wanted.arguments).cycles
    assert found[32768].paired and not found[1536].paired
    assert "pairs of loops as one" in found[32768].loops and "pairs" not in found[1536].loops
    few = to_plan(made.graph, not found[32768].rolled, found[32768].paired)
    assert len(few.rolls) == 1


@pytest.mark.slow
def test_rivals_are_planned_by_what_found_the_first_plan_and_the_best_by_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = Quantized(looped.quantised(PAIRS["lstm"](), TARGET)[0])
    monkeypatch.setattr(tiling, "log", lambda text: None)
    calls, usual = [], tiling.plan_network
    monkeypatch.setattr(tiling, "plan_network", lambda *a: calls.append((usual(*a), a[-1])) or calls[-1][0])
    wanted = PlanRequest(to_plan(made.graph), machine(TARGET), TARGET.numerics, 1)
    best = tiling.best_plan(tiling.LoopForms(wanted, made, without=("overlapping",)))
    (first, stated), *rivals, (last, also) = calls
    assert best.paired and best.groups == last.groups and stated == also == ("overlapping",)
    left_out = {"overlapping", *others_than(first.origin)}
    assert len(rivals) > 1 and all(set(without) == left_out for _, without in rivals)
    assert last.cycles <= min(plan.cycles for plan, _ in rivals)


@pytest.mark.slow
def test_large_networks_plan_fewer_products_in_loops(monkeypatch: pytest.MonkeyPatch) -> None:
    made = Quantized(looped.quantised(PAIRS["lstm"](), TARGET)[0])
    wanted = PlanRequest(to_plan(made.graph), machine(TARGET), TARGET.numerics, 1)
    plan, counts = plan_network(*wanted.arguments), []
    for most in (8000, 1):
        monkeypatch.setattr(tiling, "TRIED", most)
        planned: list[tuple[str, ...]] = []

        def tried(forms: tiling.LoopForms, graph: Graph, planned: Any = planned, **form: Any) -> list[Any]:
            planned.append(form["by_step"])
            return []

        monkeypatch.setattr(tiling.LoopForms, "plans", tried)
        tiling._in_loops(tiling.LoopForms(wanted, made), plan)
        counts.append(len(planned))
    assert counts[0] > 1 and counts[1] == 1


@pytest.mark.slow
def test_directions_run_on_cores_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    made = Quantized(looped.quantised(PAIRS["lstm"](), CORES)[0])
    monkeypatch.setattr(tiling, "log", lambda text: None)
    plans = {}
    for target in (TARGET, CORES):
        wanted = PlanRequest(to_plan(made.graph), machine(target), target.numerics, 1)
        plans[target] = tiling.best_plan(tiling.LoopForms(wanted, made))
    assert [plan.apart for plan in plans.values()] == [1, 4]
    assert "each on one of 4 cores" in plans[CORES].loops
    alone = plan_network(to_plan(made.graph, paired=True), machine(CORES), CORES.numerics, 1)
    assert plans[CORES].bounds.cycles <= plans[CORES].cycles < min(plans[TARGET].cycles, alone.cycles)
    assert {roll.core.core for roll in tiling.planned_by(plans[CORES], made).rolls if roll.core} == {0, 1}


@pytest.mark.slow
def test_a_build_runs_both_directions_at_the_same_time(tmp_path: Path) -> None:
    weights = {"w": normal(1, 2, 64, 8, scale=.3), "r": normal(2, 2, 64, 16, scale=.3)}
    proto = model(
        """net (float[16,1,8] x) => (float[16,2,1,16] y) {
        y, h, c = LSTM<hidden_size=16, direction="bidirectional">(x, w, r) }""", weights=weights,
    )
    done = built(tmp_path, proto, {"x": normal(5, 12, 16, 1, 8)}, target="server-32t", until="simulate")
    found = done.artifact("simulate", Simulation).summary()
    assert found["different"] == found["hazards"] == 0
    plan = done.artifact("tiling", Tiled).plan
    assert plan.apart == 4
    assert found["cycles"] < 1.02 * plan.cycles
