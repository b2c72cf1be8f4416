"""What a loop does beside its steps: its rounds load constants of what follows, and its steps make products
that stood in front of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest

from npuflow.base.errors import FitError, TargetError
from npuflow.checks.agreement import compare
from npuflow.hw.encode import decode_all, encode
from npuflow.hw.target import Compute, Dma, Memory, Target
from npuflow.ir.graph import Graph
from npuflow.ir.loops import loops
from npuflow.ir.types import Array
from npuflow.ir.unroll import rolled
from npuflow.program.codegen.generate import generate
from npuflow.program.container import Program
from npuflow.program.folding import folded
from npuflow.program.order import order_of
from npuflow.program.repeats import Rounds, expanded
from npuflow.quantise.config import Activations, Quantize
from npuflow.rewrite.rewrite import rewrite
from npuflow.run.interpret import interpret
from npuflow.runner.simulated import ProgramRunner
from npuflow.schedule.per_step import made_by_step, step_products
from npuflow.search.plan import TilingPlan, plan_network
from npuflow.search.tilings import DEFAULT_LEVEL
from npuflow.search.unfit import PlanRequest
from npuflow.sim.clock import timeline_of
from npuflow.sim.hazards import hazards_of
from npuflow.stages import tiling
from npuflow.stages.quantize import Quantized
from npuflow.stages.tiling import shipped_targets
from npuflow.testing.rule import graph_of
from tests.networks.harness import machine
from tests.networks.looped import free_length, integers, quantised
from tests.networks.onnx_text import model, normal
from tests.program.test_repeats import LOAD
from tests.tiers import often

WIDE = Target(
    compute=Compute(array_rows=16, array_cols=16, vector_lanes=16, fill_cycles=16, command_cycles=4),
    memory=Memory(local_bytes=65536, local_align=16, burst=16, external_bandwidth=4.0),
    dma=Dma(setup_cycles=16),
)
EDGE = shipped_targets()["edge-4t"]
GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}


def stacked(kind: str = "LSTM", steps: int = 40, hidden: int = 48) -> bytes:
    """Two recurrent layers and a product of the last state: each loop has constants behind it."""
    rows, cell = GATES[kind] * hidden, ", c" if kind == "LSTM" else ""
    weights = {
        "wa": normal(1, 1, rows, 16, scale=.3), "ra": normal(2, 1, rows, hidden, scale=.2),
        "wb": normal(3, 1, rows, hidden, scale=.2), "rb": normal(4, 1, rows, hidden, scale=.2),
        "w": normal(5, hidden, 40, scale=.2), "one": np.array([1]), "zero": np.array([0]),
    }
    return model(
        f"float[{steps},1,16] x => float[1,40] y",
        f"""rows, h{cell} = {kind}<hidden_size={hidden}>(x, wa, ra) next = Squeeze(rows, one)
            all, last{cell.replace('c', 'd')} = {kind}<hidden_size={hidden}>(next, wb, rb)
            flat = Squeeze(last, zero) y = MatMul(flat, w)""",
        weights,
    )


def planned(graph: Graph, target: Target, without: Sequence[str] = ()) -> TilingPlan:
    return plan_network(rolled(graph), machine(target), target.numerics, without=without)


@cache
def network(kind: str) -> tuple[Graph, dict[str, Array]]:
    """The integer graph of two layers and an input, made once: no test changes them."""
    return quantised(stacked(kind), WIDE)


@cache
def plan_of(kind: str, *without: str) -> TilingPlan:
    return planned(network(kind)[0], WIDE, without)


def proved(graph: Graph, wanted: Graph, plan: TilingPlan, feeds: dict[str, Array], target: Target) -> Program:
    """The program of a plan, which gives what another graph does, without hazards."""
    program = Program.from_bytes(generate(rolled(graph), plan, target).to_bytes())
    assert not hazards_of(program, order_of(program))
    checks = compare(wanted, program, target.numerics, [feeds])
    assert not [c.value for c in checks if c.different or c.executor]
    given = interpret(wanted, feeds, target.numerics)
    for output, array in ProgramRunner(program).run(feeds).items():
        np.testing.assert_array_equal(array, given[output])
    return program


@pytest.mark.parametrize("kind", often(["RNN", "LSTM", "GRU"], 3))
def test_rounds_load_constants_of_what_follows(kind: str) -> None:
    graph, feeds = network(kind)
    plan, later = plan_of(kind), plan_of(kind, "under loops")
    assert plan.early and not later.early and plan.cycles < later.cycles
    program = proved(graph, graph, plan, feeds, WIDE)
    before = generate(rolled(graph), later, WIDE)
    assert timeline_of(program, order_of(program)).cycles < timeline_of(before, order_of(before)).cycles
    stored, every = decode_all(program.stored[0]), decode_all(program.commands[0])
    blocks = [k for k, c in enumerate(stored) if c.opcode == "REPEAT" and c.number("count") > 10]
    inner = [
        c for k in blocks
        for c in stored[k : k + 1 + stored[k].number("advances") + stored[k].number("length")]
        if c.opcode == "LOAD" and c.text("space") == "CONST"
    ]
    assert inner, "no round loads constants"
    ends = [c for c in every if c.opcode == "LOAD" and c.node == inner[0].node and c.text("space") == "CONST"]
    assert len({c.number("external") for c in ends}) == len(ends)      # each byte once


@pytest.mark.parametrize("kind", often(["RNN", "LSTM"], 2))
def test_parts_in_few_sizes_are_tried_in_networks_with_loops(kind: str) -> None:
    graph, feeds = network(kind)
    plan, without = plan_of(kind), plan_of(kind, "few sizes")
    own = [t for t in plan.tried if t.origin.endswith(", few sizes")]
    assert own and not any("few sizes" in t.origin for t in without.tried)
    assert plan.cycles == min(without.cycles, *(t.cycles for t in own if t.cycles))
    proved(graph, graph, plan, feeds, WIDE)


@pytest.mark.slow
def test_weights_of_a_loop_stay_where_halves_of_them_look_as_good() -> None:
    """480 kB of weights in 512 kB beside states of 16 bits: in one step two halves, one after the other,
    cost what the whole does, and come again in every step."""
    graph = rewrite(graph_of(stacked("GRU", steps=16, hidden=400))).graph
    feeds = {i: normal(7, *graph.type(i).shape) for i in graph.inputs}
    graph = integers(graph, feeds, EDGE, Quantize(activations=Activations(bits=16)))
    plan, without = planned(graph, EDGE), planned(graph, EDGE, ["weights stay"])
    assert plan.origin.endswith(", weights stay") and 3 * plan.cycles < without.cycles
    proved(graph, graph, plan, feeds, EDGE)


def test_rounds_whose_number_is_read_load_nothing_for_others() -> None:
    """A run of few steps would not load all of it."""
    graph, _, _ = free_length(lambda steps: stacked("RNN", steps), 24, WIDE)
    assert any(roll.counted for roll in rolled(graph).rolls)
    assert not planned(graph, WIDE).early
    assert step_products(graph, machine(WIDE)) == []


def test_a_round_loads_the_constants_behind_those_of_the_last() -> None:
    const = {**LOAD, "space": "CONST", "dims": (1, 1, 1, 1, 1, 16)}
    words = np.stack([
        encode("LOAD", {**const, "external": 32 + 16 * k, "local": 128 + 16 * k}, queue=0) for k in range(2)
    ])
    found = folded(words, [Rounds(0, 1, 6)])
    assert [(c.number("external"), c.number("local")) for c in decode_all(expanded(found))] == [
        (32 + 16 * k, 128 + 16 * k) for k in range(6)
    ]
    for field, value in (("external", 64), ("local", 160)):
        other = words.copy()
        other[1] = encode("LOAD", {**const, "external": 48, "local": 144, field: value}, queue=0)
        with pytest.raises(FitError):
            folded(other, [Rounds(0, 1, 6)])


# --- products in loops
@pytest.mark.parametrize("kind", often(["RNN", "LSTM", "GRU"], 3))
def test_products_in_front_of_a_loop_are_made_in_it(kind: str) -> None:
    graph, feeds = quantised(stacked(kind, hidden=24), WIDE)
    options = step_products(graph, machine(WIDE))
    assert len(options) == len(loops(graph)) == 2
    every = tuple(v for option in options for v in option[-1])
    inner = made_by_step(graph, every)
    assert not {o for n in inner.nodes for o in n.outputs} & set(every)
    wanted, given = interpret(graph, feeds, WIDE.numerics), interpret(inner, feeds, WIDE.numerics)
    for value in set(wanted) & set(given):
        np.testing.assert_array_equal(wanted[value], given[value])
    proved(inner, graph, planned(inner, WIDE), feeds, WIDE)


def test_only_products_whose_weights_have_room_are_made_in_a_loop() -> None:
    graph, _ = quantised(stacked(hidden=24), WIDE)
    small = replace(WIDE, memory=replace(WIDE.memory, local_bytes=3000))
    assert step_products(graph, machine(WIDE)) and not step_products(graph, machine(small))
    assert made_by_step(graph, ()) is graph


@pytest.mark.slow
def test_a_plan_with_products_in_loops_keeps_the_bounds_of_the_network(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    graph, feeds = network("LSTM")
    before = plan_of("LSTM")
    forms = tiling.LoopForms(
        PlanRequest(rolled(graph), machine(WIDE), WIDE.numerics, DEFAULT_LEVEL), Quantized(graph)
    )
    found = min(tiling._in_loops(forms, before), key=forms.worth)
    assert found.by_step and found.cycles < before.cycles and found.bounds == before.bounds
    proved(made_by_step(graph, found.by_step), graph, found, feeds, WIDE)

    def refused(*asked: Any) -> TilingPlan:
        raise TargetError("no room", code="NF-FIT-004")

    monkeypatch.setattr(tiling, "plan_network", refused)
    assert tiling._in_loops(forms, before) == [before]
