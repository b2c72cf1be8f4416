"""Blocks in blocks: programs of nested loops whose plans have some steps of both."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import numpy as np
import pytest

from npuflow.base.errors import FitError
from npuflow.checks.agreement import compare
from npuflow.hw.encode import Words, decode, encode
from npuflow.hw.target import Target
from npuflow.ir.graph import Graph
from npuflow.ir.types import Array
from npuflow.ir.unroll import may_nest, rolled
from npuflow.program.container import Program
from npuflow.program.folding import folded
from npuflow.program.order import order_of
from npuflow.program.repeats import Rounds, expanded, head
from npuflow.search.plan import TilingPlan
from npuflow.search.unfit import PlanRequest
from npuflow.sim.clock import timeline_of
from npuflow.sim.hazards import hazards_of
from npuflow.sim.rounds import proof_of_rounds
from npuflow.stages import tiling
from npuflow.stages.quantize import Quantized, to_plan
from tests.frontends.test_nested_loops import layer_in_scan, loop_in_scan, scan_in_scan
from tests.networks import random_nested
from tests.networks.harness import machine
from tests.networks.looped import program_of, quantised
from tests.networks.random_loops import program_differences
from tests.program.test_repeats import CORES, LOAD, TARGET, TENSORS, changes_of, orderly, unseen
from tests.tiers import often

FILES = {
    "a Loop of 11": loop_in_scan(12, 11), "a Scan of 12": scan_in_scan(10, 12),
    "an LSTM of 20": layer_in_scan("LSTM", 4, 10, 20),
}
Feeds = dict[str, Array]
RANDOM = (20, 30)                         # on one core, and on two


def case(name: str, target: Target = TARGET) -> tuple[Graph, Feeds, Program]:
    graph, feeds = quantised(FILES[name], target)
    return graph, feeds, program_of(graph, target, nested=True, level=1)


@pytest.fixture(scope="module")
def scan() -> tuple[Graph, Feeds, Program]:
    return case("a Scan of 12")


def blocks(words: Words) -> list[tuple[int, int, int]]:
    """Where a core's REPEAT commands stand, how many rounds each has, and in how many blocks it is."""
    found, open_ = list[tuple[int, int, int]](), list[int]()
    for at in range(len(words)):
        open_ = [end for end in open_ if end > at]
        one = decode(words[at])
        if one.opcode == "REPEAT":
            found.append((at, one.number("count"), len(open_)))
            open_.append(at + 1 + one.number("advances") + one.number("length"))
    return found


def same(graph: Graph, feeds: Feeds, program: Program, target: Target = TARGET) -> list[str]:
    """The values that the program has, all of which are those of the reference; no hazards; the plan's
    cycles are the clock's."""
    checks = compare(graph, program, target.numerics, [feeds])
    assert not [c.value for c in checks if c.different or c.executor or not c.elements]
    order = order_of(program)
    assert not hazards_of(program, order)
    planned = program.meta["plan"]["cycles"]
    assert timeline_of(program, order).cycles == pytest.approx(planned, rel=0.01)
    return [c.value for c in checks]


@pytest.mark.parametrize("name", often(FILES, 3))
def test_a_loop_in_a_loop_is_a_block_in_a_block(name: str) -> None:
    graph, feeds, program = case(name)
    values = same(graph, feeds, program)
    depths = [depth for _, _, depth in blocks(program.stored[0])]
    # in the outer block, in a round of two steps, two inner ones
    assert depths.count(1) == 2 and program.meta["nested"]
    # the last inner step of outer step 2
    last = int(name.split()[-1]) - 1
    assert any(value.endswith(f"@{last}@2") for value in values)


def test_several_cores_meet_in_blocks_in_blocks() -> None:
    graph, feeds, program = case("a Loop of 11", CORES)
    same(graph, feeds, program, CORES)
    assert any(depth for _, _, depth in blocks(program.stored[0]))


@pytest.mark.slow
def test_more_inner_steps_are_as_many_commands() -> None:
    sizes = []
    for inner in (16, 64):
        graph, _ = quantised(layer_in_scan("GRU", 3, 12, inner), TARGET)
        few = rolled(graph, nested=True)
        sizes.append((len(few.nodes), len(program_of(graph, TARGET, nested=True, level=1).stored[0])))
    # the products of all steps come in more tiles
    assert sizes[0][0] == sizes[1][0] and sizes[1][1] < 1.2 * sizes[0][1]
    flat = program_of(graph, TARGET, level=1).stored[0]
    assert sizes[1][1] < 0.6 * len(flat)


@pytest.mark.parametrize(("outer", "inner"), [(9, 12), (12, 9), (4, 40)])
def test_too_few_steps_for_rounds_of_both(outer: int, inner: int) -> None:
    graph, _ = quantised(scan_in_scan(outer, inner), TARGET)
    assert not may_nest(graph)
    assert rolled(graph, nested=True).rolls == rolled(graph).rolls


def test_no_number_of_rounds_has_a_hazard(scan: tuple[Graph, Feeds, Program]) -> None:
    *_, program = scan
    proof = proof_of_rounds(program)
    assert proof.proved, proof.why
    (words,) = program.stored
    waiting = [k for k, row in enumerate(words) if row[2:10].any() and decode(row).opcode != "REPEAT"]
    lacking = words.copy()
    lacking[waiting, 2:10] = 0
    assert not proof_of_rounds(replace(program, stored=(lacking,))).proved


@pytest.mark.slow
def test_other_words_of_a_block_in_a_block_are_refused_or_told_apart(
    scan: tuple[Graph, Feeds, Program]
) -> None:
    """A count, a step, the end of a block, a wait: none of them can be wrong unseen."""
    _, feeds, program = scan
    (words,) = program.stored
    changes = changes_of(words, next(at for at, _, depth in blocks(words) if depth))
    assert len(changes) > 15 and not unseen(program, changes, feeds)


@pytest.mark.slow
def test_random_loops_in_loops() -> None:
    for seed in RANDOM:
        assert program_differences(seed, random_nested.long_subject) == ([], "nested")


@pytest.mark.campaign
@pytest.mark.parametrize("first", range(1000, 2500, 100))
def test_many_random_loops_in_loops(first: int) -> None:
    for seed in range(first, first + 100):
        assert not program_differences(seed, random_nested.long_subject)[0]


@pytest.mark.slow
def test_a_plan_has_some_steps_of_both_or_writes_one_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """The one of fewer cycles; and one written out where the other has no plan, which the log says."""
    said = list[str]()
    monkeypatch.setattr(tiling, "log", said.append)
    made = Quantized(quantised(scan_in_scan(10, 12), TARGET)[0])
    wanted = PlanRequest(to_plan(made.graph, nested=True), machine(TARGET), TARGET.numerics, 1)
    forms = tiling.LoopForms(wanted, made)
    monkeypatch.setattr(tiling, "FLAT", 10)
    nested = tiling.best_plan(forms)
    assert nested.nested and nested.loops == "some steps of loops in some steps of others"
    assert not said and tiling.planned_by(nested, made).rolls == wanted.graph.rolls
    monkeypatch.undo()
    monkeypatch.setattr(tiling, "log", said.append)
    best = tiling.best_plan(forms)
    assert best.cycles <= nested.cycles and best.nested == (not any("one of two" in text for text in said))

    plan, said[:] = tiling.plan_network, []

    def refusing(graph: Graph, *more: Any) -> Any:
        if any(roll.outer for roll in graph.rolls):
            raise FitError("no plan of a loop: there is no room for it", code="NF-FIT-012")
        return plan(graph, *more)

    monkeypatch.setattr(tiling, "plan_network", refusing)
    other = tiling.best_plan(forms)
    assert not other.nested and other.rolled and tiling.planned_by(other, made).rolls
    assert said[0] == "one of two nested loops is written out: no plan of a loop: there is no room for it"


def test_the_log_says_what_is_taken_and_not_what_a_rival_took(monkeypatch: pytest.MonkeyPatch) -> None:
    """The rival with one loop written out takes none as loops; the plan with both is taken all the same."""
    said = list[str]()
    made = Quantized(quantised(scan_in_scan(10, 12), TARGET)[0])
    wanted = PlanRequest(to_plan(made.graph, nested=True), machine(TARGET), TARGET.numerics, 1)
    plan = TilingPlan((), cast(Any, None), 0, replayed=1.0, moved=1.0)

    def planned(graph: Graph, *more: Any) -> TilingPlan:
        nested = any(roll.outer for roll in graph.rolls)
        return replace(plan, replayed=least if nested else 300.0 if graph.rolls else 200.0)

    monkeypatch.setattr(tiling, "plan_network", planned)
    monkeypatch.setattr(tiling, "log", said.append)
    straight = replace(tiling.NO_LOOPS, may=lambda forms: True)
    monkeypatch.setattr(tiling, "RIVALS", (tiling.ONE_LEVEL, straight))
    least = 100.0
    assert tiling.best_plan(tiling.LoopForms(wanted, made)).nested and not said
    least = 250.0
    assert not tiling.best_plan(tiling.LoopForms(wanted, made)).nested
    assert said == [
        "loops are written out, step after step: 200 cycles, not 300",
        "one of two nested loops is written out: 200 cycles, not 250",
    ]


def test_loops_in_loops_need_no_plan_with_one_written_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """The rival has no plan in any form: the first one is taken."""
    made = Quantized(quantised(scan_in_scan(10, 12), TARGET)[0])
    wanted = PlanRequest(to_plan(made.graph, nested=True), machine(TARGET), TARGET.numerics, 1)
    plan = TilingPlan((), cast(Any, None), 0, replayed=1.0, moved=1.0)

    def refusing(graph: Graph, *more: Any) -> TilingPlan:
        if not any(roll.outer for roll in graph.rolls):
            raise FitError("no plan of a loop: there is no room for it", code="NF-FIT-012")
        return plan

    monkeypatch.setattr(tiling, "plan_network", refusing)
    monkeypatch.setattr(tiling, "log", lambda text: None)
    assert tiling.best_plan(tiling.LoopForms(wanted, made)).nested


def transfers(rounds: int) -> Words:
    """Rounds of a LOAD and a STORE, each of which waits for the other queue's last command."""
    waits = [((0, k), (k + 1,)) for k in range(rounds)]
    return np.stack([
        encode(("LOAD", "STORE")[q], {**LOAD, "external": 64 + 8 * k}, queue=q, wait=waits[k][q])
        for k in range(rounds) for q in range(2)
    ])


@pytest.mark.parametrize(("outer", "inner"), [(3, 5), (9, 3), (7, 900), (700, 100), (4, 30_000)])
def test_waits_of_blocks_in_blocks(outer: int, inner: int) -> None:
    """Every LOAD waits for the STORE before it, and every STORE for its LOAD, also where counts pass 2^16.
    Two lead in; in each of two rounds are two of an inner loop and one behind them; one is the last."""
    words = transfers(2 + 2 * (2 + 1) + 1)
    loops = [Rounds(4 + 6 * k, 2, inner, TENSORS, "inner") for k in range(2)]
    whole = Rounds(4, 6, outer, ((0, 1 << 20, 24),), "outer", more=2 * (inner - 2))
    stored = folded(words, [whole, *loops])
    assert len(stored) < 20 and [depth for _, _, depth in blocks(stored)] == [0, 1]
    count = 2 + outer * (inner + 1) + 1
    made = orderly(expanded(stored))
    waits = np.ascontiguousarray(made[:, 2:10]).view("<u2").astype(np.int64)
    assert len(made) == 2 * count
    assert (waits[::2, 1] == np.arange(count) & 0xFFFF).all()
    assert (waits[1::2, 0] == np.arange(1, count + 1) & 0xFFFF).all()


def test_a_wait_of_a_block_in_a_block_goes_on_from_a_count_that_16_bits_have_as_0() -> None:
    rows = [encode("STORE", LOAD, queue=1, wait=(0xFFFE,)), encode("LOAD", LOAD, queue=0)]
    inner = np.concatenate([head(2, 2, [], 0), np.stack(rows)])
    made = expanded(np.concatenate([head(2, len(inner), [], 0), inner]))
    waits = np.ascontiguousarray(made[:, 2:10]).view("<u2").astype(int)
    assert waits[::2, 0].tolist() == [0xFFFE, 0xFFFF, 0, 1] and not waits[1::2].any()


def test_rounds_of_an_outer_loop_with_other_inner_blocks_are_no_block() -> None:
    words = transfers(2 + 2 * (2 + 1) + 1)
    loops = [Rounds(4 + 6 * k, 2, 5 + k, TENSORS, "inner") for k in range(2)]
    with pytest.raises(FitError, match=r'"outer" as repeated commands: .*, REPEAT has another count'):
        folded(words, [Rounds(4, 6, 9, ((0, 1 << 20, 24),), "outer", more=6), *loops])
