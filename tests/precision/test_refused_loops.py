"""Searches for widths where the target refuses a node of a loop: the host would run all of it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from onnx import helper

from npuflow.ir.graph import Graph
from npuflow.place.host import host_work, total_work
from npuflow.place.place import place
from npuflow.quantise.candidate import Candidate
from npuflow.quantise.config import Quantize
from npuflow.rewrite.rewrite import rewrite
from npuflow.run.floats import FloatRun
from npuflow.strategies import FLOAT, NARROW, STRATEGIES, WIDE, Budget
from npuflow.testing.rule import graph_of
from npuflow.tune.judge import Judge
from npuflow.tune.precision.fakequant import FakeQuantNetwork
from npuflow.tune.precision.harness import Harness
from npuflow.tune.precision.problem import SearchProblem, cost_of
from npuflow.tune.precision.sensitivity import noises
from tests.frontends.test_loops import info, model
from tests.networks.onnx_text import TARGET, normal

STEPS, WIDTH = 12, 8


def turning() -> bytes:
    """An angle of many turns, and its sine: no table of 16 bits has so many bends."""
    body = helper.make_graph(
        [helper.make_node("Add", ["s", "t"], ["s2"]), helper.make_node("Sin", ["s2"], ["o"])],
        "body", [info("s", 1, WIDTH), info("t", 1, WIDTH)], [info("s2", 1, WIDTH), info("o", 1, WIDTH)],
    )
    scan = helper.make_node("Scan", ["h", "x"], ["last", "y"], "walk", body=body, num_scan_inputs=1)
    ends = [info("last", 1, WIDTH), info("y", STEPS, 1, WIDTH)]
    return model(scan, [info("h", 1, WIDTH), info("x", STEPS, 1, WIDTH)], ends)


@pytest.fixture(scope="module")
def problem() -> SearchProblem:
    graph: Graph = rewrite(graph_of(turning())).graph
    feeds = [{i: 300 * normal(10 * k, *graph.type(i).shape) for i in graph.inputs} for k in range(6)]
    names = [o for n in graph.nodes for o in n.outputs if o]
    made = [{**feed, **FloatRun.of(graph, names).run(feed)} for feed in feeds]
    every = {v: np.concatenate([one[v].ravel() for one in made]) for v in made[0]}
    ranges = {v: (float(a.min()), float(a.max())) for v, a in every.items()}
    candidate = Candidate(graph, place(graph, TARGET), Quantize(), TARGET.numerics, ranges)
    harness = Harness(FakeQuantNetwork(candidate), ranges, Judge(graph, feeds[:3], feeds[3:]))
    noise = noises(harness, 2, lambda done, count: None)
    said: list[str] = []
    return SearchProblem(
        harness, cost_of(harness, TARGET), Budget(60.0, 1.1), lambda: list(noise), 2, False, said.append
    )


def test_what_would_leave_a_loop_to_the_host_is_not_widened(problem: SearchProblem) -> None:
    harness = problem.harness
    assert harness.refused((WIDE,) * len(harness.names))
    assert not harness.refused((NARROW,) * len(harness.names))
    # widths alone: float on the host is what a search may choose where these fail
    widths = replace(problem, budget=replace(problem.budget, host_db=-100.0))
    levels = STRATEGIES["auto"]()(widths)
    assert not harness.refused(levels) and FLOAT not in levels
    assert all(n.is_integer for n in harness.built(levels).nodes if "Sin" in n.op.onnx)


def test_a_verdict_on_a_loop_that_the_host_runs_says_so(problem: SearchProblem) -> None:
    assert all(one.sqnr == -200 for one in problem.verified((WIDE,) * len(problem.harness.names)))


def test_a_float_in_a_loop_costs_the_loop(problem: SearchProblem) -> None:
    """All of it is then on the host, as it is in the quantised graph."""
    cost, usual = problem.cost, (NARROW,) * len(problem.harness.names)
    sine = next(u for v, u in cost.units.items() if v in _sines(problem.harness.network.graph))
    levels = tuple(FLOAT if u == sine else NARROW for u in range(len(usual)))
    one, work = cost.cycles(levels) - cost.cycles(usual), total_work(host_work(problem.harness.built(levels)))
    assert work.elements >= 4 * STEPS * WIDTH and one >= work.cycles(TARGET)
    assert cost.delta(usual, sine, FLOAT) == pytest.approx(one)


def _sines(graph: Graph) -> set[str]:
    return {o for n in graph.nodes if n.op.onnx == "Sin" for o in n.outputs}
