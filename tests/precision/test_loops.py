"""What looks into loops: moments, searches for ranges, costs, the check of the QDQ model, `inspect`."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from npuflow.calibrators import Grid
from npuflow.checks.qdq_check import parted
from npuflow.cli._app import run as command
from npuflow.hw.target import Target
from npuflow.ir.elements import node_elements
from npuflow.ir.graph import Graph
from npuflow.ir.loops import has_loops, loops
from npuflow.ir.macs import graph_macs
from npuflow.ir.types import Array
from npuflow.ir.unroll import unnested, written_out
from npuflow.place.place import place
from npuflow.quantise.candidate import Candidate
from npuflow.quantise.config import Quantize
from npuflow.rewrite.rewrite import rewrite
from npuflow.run.floats import FloatRun
from npuflow.run.qdq import to_qdq
from npuflow.strategies import NARROW, WIDE
from npuflow.testing.quantised import quantize_graph
from npuflow.testing.rule import graph_of
from npuflow.tune.judge import Judge
from npuflow.tune.precision.fakequant import FakeQuantNetwork
from npuflow.tune.precision.harness import Harness
from npuflow.tune.precision.loop_cost import LoopWeights
from npuflow.tune.precision.problem import cost_of
from npuflow.tune.precision.range_search import judged
from npuflow.tune.rounding.columns import ColumnObserver, columns
from npuflow.tune.rounding.layers import WeightedLayer
from npuflow.tune.walk import SampleWalk
from tests.frontends.test_nested_loops import layer_in_scan
from tests.networks.onnx_text import TARGET, normal
from tests.program.test_round_loads import EDGE, stacked
from tests.rules.test_recurrent import BATCH, HIDDEN, layer

STEPS = 9
Feed = dict[str, Array]


@pytest.fixture(scope="module")
def graph() -> Graph:
    return rewrite(graph_of(layer("RNN", steps=STEPS))).graph


@pytest.fixture(scope="module")
def feeds(graph: Graph) -> list[Feed]:
    return [{i: normal(seed, *graph.type(i).shape) for i in graph.inputs} for seed in range(6)]


def values(graph: Graph, feed: Feed) -> Feed:
    names = [o for n in graph.nodes for o in n.outputs if o]
    return {**feed, **FloatRun.of(graph, names).run(feed)}


def ranges(graph: Graph, feeds: list[Feed]) -> dict[str, tuple[float, float]]:
    made = [values(graph, feed) for feed in feeds]
    lows, highs = ({v: [float(end(one[v])) for one in made] for v in made[0]} for end in (np.min, np.max))
    return {v: (min(lows[v]), max(highs[v])) for v in lows}


def recurrent(graph: Graph) -> WeightedLayer:
    """The product of the state."""
    (loop,) = loops(graph)
    now = loop.carried[0].now
    at = next(i for i in loop.nodes if graph.nodes[i].inputs[0] == now and graph.nodes[i].op.onnx == "Gemm")
    node = graph.nodes[at]
    return WeightedLayer(at, node.name, node.inputs[1], now, "", 10, STEPS * BATCH, 1, STEPS)


def test_a_layer_in_a_loop_has_the_columns_of_all_steps(graph: Graph, feeds: list[Feed]) -> None:
    one = recurrent(graph)
    found = ColumnObserver(graph, [one]).columns(feeds[0])[0].codes
    state = values(graph, feeds[0])[one.source]
    assert found.shape == (1, STEPS * BATCH, HIDDEN)
    np.testing.assert_array_equal(found[0], np.rint(state.reshape(-1, HIDDEN) * 2**10).astype(np.int16))
    some = replace(one, places=5)
    (few,) = ColumnObserver(graph, [some]).columns(feeds[0])
    np.testing.assert_array_equal(few.codes, found[:, few.chosen.places])
    np.testing.assert_array_equal(few.codes, columns(graph, some, state, few.chosen))


def test_a_walk_stops_in_front_of_a_loop(graph: Graph, feeds: list[Feed]) -> None:
    one, walk = recurrent(graph), SampleWalk(graph, feeds)
    walk.to(one.node)
    assert walk.at == loops(graph)[0].nodes[0]
    for array, feed in zip(walk.read(one.node, one.source), feeds, strict=True):
        np.testing.assert_allclose(array, values(graph, feed)[one.source], 1e-5, 1e-6)


def test_ranges_are_judged_over_all_steps(graph: Graph, feeds: list[Feed]) -> None:
    one = recurrent(graph)
    spans = [(-1.0, 1.0), (-0.25, 0.25)]
    grid = Grid(8, signed=True, symmetric=False)
    found = judged(graph, lambda _: True, {one.source: spans}, {one.source: grid}, feeds)[one.source]
    real = graph.const(one.weight)
    assert real is not None
    state = np.concatenate([values(graph, feed)[one.source] for feed in feeds])
    clipped = np.clip(state, -0.25, 0.25) - state
    assert found[0, 1] == pytest.approx(((clipped @ real.T) ** 2).sum(), rel=0.05)
    assert 0 < found[0, 0] < found[0, 1]


def test_what_a_loop_costs_grows_with_its_steps(feeds: list[Feed]) -> None:
    """As the plan of the same written out says."""
    found = {}
    for steps in (8, 40):
        graph = rewrite(graph_of(layer("RNN", steps=steps))).graph
        given = [{i: normal(k, *graph.type(i).shape) for i in graph.inputs} for k in range(4)]
        placed = place(graph, TARGET)
        candidate = Candidate(graph, placed, Quantize(), TARGET.numerics, ranges(graph, given))
        harness = Harness(FakeQuantNetwork(candidate), dict(candidate.ranges), Judge(graph, given, given))
        cost = cost_of(harness, TARGET)
        levels = (0,) * len(harness.names)
        assert 0.4 < cost.cycles(levels) / cost.replayed() < 2.5
        found[steps] = cost.cycles(levels)
    assert 3 < found[40] / found[8] < 7


@pytest.mark.slow
def test_what_widths_of_a_loop_cost_is_what_plans_say() -> None:
    """Weights that stay are loaded once, so that a wide state or a wide weight shows; of a product of one row
    most is what a command takes before its first result."""
    graph = rewrite(graph_of(stacked("GRU", steps=24, hidden=96))).graph
    given = [{i: normal(k, *graph.type(i).shape) for i in graph.inputs} for k in range(2)]
    candidate = Candidate(graph, place(graph, EDGE), Quantize(), EDGE.numerics, ranges(graph, given))
    harness = Harness(FakeQuantNetwork(candidate), dict(candidate.ranges), Judge(graph, given, given))
    cost, narrow = cost_of(harness, EDGE), (NARROW,) * len(harness.names)
    usual, planned = cost.cycles(narrow), cost.replayed()
    assert usual == pytest.approx(planned, rel=0.1)
    for k, (_, name) in enumerate(harness.names):
        if name in ("rows:initial", "rows:gates_r", "all:gates_r"):
            levels = (*narrow[:k], WIDE, *narrow[k + 1 :])
            real = cost.replayed(harness.built(levels)) / planned
            assert real > 1.03 and cost.cycles(levels) / usual == pytest.approx(real, abs=0.1)
            assert cost.delta(narrow, k, WIDE) == pytest.approx(cost.cycles(levels) - usual)


def test_weights_that_no_longer_fit_are_loaded_in_every_step() -> None:
    held = LoopWeights({4: 1000, 5: 500}, 40, 2000)
    assert held.reloaded(lambda _: 1.0) == 0.0
    assert held.reloaded(lambda unit: 2.0 if unit == 4 else 1.0) == 39 * 500


def test_the_qdq_model_is_compared_inside_loops(graph: Graph, feeds: list[Feed]) -> None:
    numerics = Target().numerics
    placed = place(graph, Target())
    made = quantize_graph(graph, placed, ranges(graph, feeds), Quantize(), numerics).graph
    assert has_loops(made)
    found = parted(made, to_qdq(made).model, numerics, feeds[:2])
    inner = loops(made)[0].carried[0].now
    assert found[inner].elements == 2 * STEPS * BATCH * HIDDEN
    assert sum(one.different for one in found.values()) <= 0.02 * sum(one.elements for one in found.values())


def test_multiply_accumulates_count_all_steps(graph: Graph) -> None:
    assert graph_macs(graph) == graph_macs(written_out(graph))


def test_the_host_cuts_a_tensor_into_steps_once(graph: Graph) -> None:
    """What it moves for that does not grow with the square of the steps."""
    cut = [n for n in graph.nodes if n.op.border_of_loop == "slice"]
    assert cut
    assert [node_elements(graph, n) for n in cut] == [graph.type(n.inputs[0]).size for n in cut]


def test_inspect_lists_loops(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "net.onnx"
    path.write_bytes(layer("GRU", steps=STEPS))
    assert command(["inspect", str(path), "--nodes"]) == 0
    out = capsys.readouterr().out
    assert f"{STEPS} steps of " in out and "1 carried value" in out and "  npu     loopcarry" in out
    assert command(["inspect", str(path), "--set", "parse.loops=false"]) == 0
    assert "loopcarry" not in capsys.readouterr().out


def test_inspect_lists_a_loop_in_a_loop(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "net.onnx"
    path.write_bytes(layer_in_scan("GRU", 3, 6, 5))
    assert command(["inspect", str(path), "--nodes"]) == 0
    lines = capsys.readouterr().out.splitlines()
    outer, inner = (next(i for i, line in enumerate(lines) if line.startswith(start)) for start in (
        "  loop walk: 6 steps of ", "    loop ",
    ))
    assert inner == outer + 1 and ": 5 steps of " in lines[inner]
    assert sum("    loopcarry" in line for line in lines) == 2
    assert sum("      loopcarry" in line for line in lines) == 1
    assert command(["inspect", str(path), "--json"]) == 0
    report = json.loads(capsys.readouterr().out.splitlines()[-1])
    (one,) = report["loops"]
    assert [within["steps"] for within in one["inner"]] == [5]
    assert {place["loop"] for place in report["places"] if "inner" in place} == {one["loop"]}


def test_what_is_seen_of_a_loop_in_a_loop() -> None:
    """The walk of samples, the layer's columns and the check of the QDQ model see all steps of both."""
    graph = rewrite(graph_of(layer_in_scan("RNN", 1, 6, 5))).graph
    given = [{i: normal(seed, *graph.type(i).shape) for i in graph.inputs} for seed in range(3)]
    (outer,) = loops(graph)
    (inner,) = outer.inner
    now = inner.carried[0].now
    at = next(i for i in inner.nodes if graph.nodes[i].inputs[0] == now and graph.nodes[i].op.onnx == "Gemm")
    node = graph.nodes[at]
    one = WeightedLayer(at, node.name, node.inputs[1], now, "", 10, 30, 1, 30)
    found = ColumnObserver(graph, [one]).columns(given[0])[0].codes
    state = values(graph, given[0])[now]
    assert found.shape == (1, 30, state.shape[-1])
    np.testing.assert_array_equal(found[0], np.rint(state * 2**10).astype(np.int16))
    assert graph_macs(graph) == graph_macs(written_out(graph)) == graph_macs(unnested(graph))
    placed = place(graph, TARGET)
    candidate = Candidate(graph, placed, Quantize(), TARGET.numerics, ranges(graph, given))
    harness = Harness(FakeQuantNetwork(candidate), dict(candidate.ranges), Judge(graph, given, given))
    cost = cost_of(harness, TARGET)
    assert 0.4 < cost.cycles((0,) * len(harness.names)) / cost.replayed() < 2.5
    walk = SampleWalk(graph, given)
    walk.to(at)
    assert walk.at == outer.nodes[0]
    for array, feed in zip(walk.read(at, now), given, strict=True):
        np.testing.assert_allclose(array, values(graph, feed)[now], 1e-5, 1e-6)
