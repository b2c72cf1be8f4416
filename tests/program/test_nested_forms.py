"""Products in loops, and pairs of loops, where loops are nested: plans, programs, and what random ones do."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from onnx import helper

from npuflow.base.errors import TargetError
from npuflow.hw.target import Target
from npuflow.ir.graph import Graph
from npuflow.ir.loops import loops
from npuflow.ir.unroll import may_nest, rolled
from npuflow.program.codegen.generate import generate
from npuflow.program.container import Program
from npuflow.run.interpret import interpret
from npuflow.schedule.per_step import made_by_step, step_products
from npuflow.search.plan import TilingPlan, plan_network
from npuflow.search.unfit import PlanRequest
from npuflow.stages import economical, tiling
from npuflow.stages.quantize import Quantized, to_plan
from tests.frontends.test_nested_loops import SIZE, outer, weight
from tests.networks import random_loops, random_nested
from tests.networks.harness import machine
from tests.networks.looped import quantised
from tests.program.test_nested_repeats import same
from tests.program.test_repeats import CORES, TARGET

NODE = helper.make_node
GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
Form = tuple[tuple[str, ...], bool]       # products in loops, and whether pairs of loops are one


def both_directions(kind: str, steps: int, inner: int, hidden: int = SIZE) -> bytes:
    """A Scan around a layer of both directions, whose last states it mixes with its own."""
    nodes = [
        NODE(kind, ["t", "lw", "lr"], ["", "yh"], hidden_size=hidden, direction="bidirectional"),
        NODE("Transpose", ["yh"], ["yt"], perm=[1, 0, 2]), NODE("Reshape", ["yt", "shape"], ["flat"]),
        NODE("MatMul", ["flat", "mix"], ["e"]), NODE("MatMul", ["s", "w"], ["m"]),
        NODE("Add", ["e", "m"], ["a"]), NODE("Tanh", ["a"], ["s2"]), NODE("Relu", ["a"], ["o"]),
    ]
    gates = GATES[kind] * hidden
    return outer(
        nodes, steps, (inner, 1, 3), shape=np.array([1, 2 * hidden]), mix=weight(2 * hidden, SIZE),
        lw=weight(2, gates, 3), lr=weight(2, gates, hidden),
    )


def forms_of(graph: Graph, target: Target) -> Iterator[Form]:
    """All products, all pairs, and both, where there are some."""
    every = tuple(v for options in step_products(graph, machine(target)) for v in options[-1])
    fewer = len(rolled(graph, True, nested=True).rolls) < len(rolled(graph, nested=True).rolls)
    for products in dict.fromkeys(((), every)):
        for paired in (False, True) if fewer else (False,):
            if products or paired:
                yield products, paired


def program_of(graph: Graph, form: Form, target: Target) -> Program:
    few = to_plan(made_by_step(graph, form[0]), paired=form[1], nested=True)
    assert any(roll.outer for roll in few.rolls)
    plan = plan_network(few, machine(target), target.numerics, 1)
    return Program.from_bytes(generate(few, plan, target).to_bytes())


@pytest.mark.slow
@pytest.mark.parametrize("kind", GATES)
def test_products_and_pairs_in_loops_in_loops(kind: str) -> None:
    graph, feeds = quantised(both_directions(kind, 11, 12), TARGET)
    forms = list(forms_of(graph, TARGET))
    # a GRU's candidate has products of its own
    assert len(forms) == 3 and len(forms[-1][0]) == (4 if kind == "GRU" else 2)
    for form in forms:
        program = program_of(graph, form, TARGET)
        assert program.meta["nested"]
        inner = {row["loop"] for row in program.meta["loops"] if "outer" in row}
        assert len(inner) == (1 if form[1] else 2)
        same(graph, feeds, program)


@pytest.mark.slow
def test_products_and_pairs_in_loops_in_loops_on_several_cores() -> None:
    graph, feeds = quantised(both_directions("GRU", 10, 11), CORES)
    for form in forms_of(graph, CORES):
        same(graph, feeds, program_of(graph, form, CORES), CORES)


def test_products_in_inner_loops_leave_all_other_values_as_they_are() -> None:
    graph, feeds = quantised(both_directions("LSTM", 5, 4), TARGET)
    (walk,) = loops(graph)
    options = step_products(graph, machine(TARGET))
    assert len(options) == len(walk.inner) == 2
    every = tuple(v for option in options for v in option[-1])
    inner = made_by_step(graph, every)
    assert not {o for n in inner.nodes for o in n.outputs} & set(every)
    wanted, given = interpret(graph, feeds, TARGET.numerics), interpret(inner, feeds, TARGET.numerics)
    for value in set(wanted) & set(given):
        np.testing.assert_array_equal(wanted[value], given[value])


def planning(graph: Graph) -> tuple[tiling.LoopForms, Quantized]:
    made = Quantized(graph)
    wanted = PlanRequest(to_plan(graph, nested=True), machine(TARGET), TARGET.numerics, 1)
    return tiling.LoopForms(wanted, made), made


def test_each_form_is_tried_and_what_is_taken_is_planned(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fewer loops, and fewer nodes in front of them, are taken for fewer cycles."""
    forms, made = planning(quantised(both_directions("LSTM", 12, 12), TARGET)[0])
    tried = list[tuple[bool, int]]()

    def planned(graph: Graph, *more: Any) -> TilingPlan:
        nested = any(roll.outer for roll in graph.rolls)
        products = [o for n in graph.nodes for o in n.outputs if "gates" in o and "_" not in o]
        whole = sum(o.count("@") == 1 for o in products)
        tried.append((nested, len(graph.rolls)))
        cycles = len(graph.rolls) + whole + 100.0 * (not nested)
        return TilingPlan((), cast(Any, None), 0, replayed=cycles, moved=1.0)

    monkeypatch.setattr(tiling, "plan_network", planned)
    monkeypatch.setattr(tiling, "log", lambda text: None)
    plan = tiling.best_plan(forms)
    assert plan.nested and plan.paired and len(plan.by_step) == 2
    few = tiling.planned_by(plan, made)
    assert len(few.rolls) < len(forms.wanted.graph.rolls) and any(roll.outer for roll in few.rolls)
    assert (True, len(few.rolls)) in tried


def test_the_plan_of_the_least_energy_is_of_the_same_form(monkeypatch: pytest.MonkeyPatch) -> None:
    _, made = planning(quantised(both_directions("RNN", 10, 11), TARGET)[0])
    plain = TilingPlan((), cast(Any, None), 0, replayed=9.0, moved=1.0)
    taken = replace(plain, nested=True, paired=True, by_step=("yh:gates",))
    seen = list[int]()

    def planned(graph: Graph, *more: Any) -> TilingPlan:
        seen.append(len(graph.rolls))
        return replace(plain, replayed=float(len(seen)))

    monkeypatch.setattr(economical, "plan_network", planned)
    monkeypatch.setattr(economical, "_spent", lambda plan, *more: plan.cycles)
    monkeypatch.setattr(economical, "log", lambda text: None)
    prices = SimpleNamespace(table=None)
    asked = SimpleNamespace(tiling=tiling.Tiling(), prices=prices, effort=SimpleNamespace(level=1))
    wanted = tiling.planned_by(taken, made)
    found = economical.economical.function(tiling.Tiled(taken), made, asked, planned_target()).plan
    assert seen == [len(wanted.rolls)] * 2 and found.cycles == 1.0
    assert (found.nested, found.paired, found.by_step) == (True, True, ("yh:gates",))


def planned_target() -> SimpleNamespace:
    return SimpleNamespace(
        compute=TARGET.compute, memory=TARGET.memory, dma=TARGET.dma, numerics=TARGET.numerics, target=TARGET
    )


@pytest.mark.slow
def test_the_search_takes_them_and_its_program_is_of_that_form() -> None:
    graph, feeds = quantised(both_directions("RNN", 10, 11), TARGET)
    forms, made = planning(graph)
    plain, plan = forms.plan(forms.wanted.graph), tiling.best_plan(forms)
    assert plan.nested and plan.cycles < plain.cycles and (plan.paired or plan.by_step)
    program = Program.from_bytes(generate(tiling.planned_by(plan, made), plan, TARGET).to_bytes())
    same(graph, feeds, program)


def random_layer(seed: int) -> None:
    """A layer of both directions in a Scan, of random sizes on a random machine, in one of its forms: its
    values are the reference's, there are no hazards, and the plan's cycles are the clock's."""
    rng = random.Random(seed)
    steps, inner, hidden = (rng.choice(some) for some in ((10, 11, 12), (10, 11, 14), (2, 3, 4, 6)))
    target = rng.choice((TARGET, TARGET, CORES))
    room = rng.choice((1 << 13, 1 << 15, 1 << 17))
    target = replace(target, memory=replace(target.memory, local_bytes=room))
    graph, feeds = quantised(both_directions(rng.choice(list(GATES)), steps, inner, hidden), target)
    form = rng.choice([((), False), *forms_of(graph, target)])
    try:
        program = program_of(graph, form, target)
    except TargetError:
        return                            # no room for it
    same(graph, feeds, program, target)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
def test_random_layers_in_loops(seed: int) -> None:
    random_layer(seed)


@pytest.mark.campaign
@pytest.mark.parametrize("first", range(100, 300, 20))
def test_many_random_layers_in_loops(first: int) -> None:
    for seed in range(first, first + 20):
        random_layer(seed)


def differences(seed: int) -> tuple[list[str], int]:
    """What differs of the programs of a seed, hazards among it; and how many forms have one."""
    one = random_nested.long_subject(seed)
    graph = None if one is None else random_loops.quantised(one)
    if one is None or graph is None or not may_nest(graph):
        return [], 0
    found, count = list[str](), 0
    for form in forms_of(graph, one.target):
        few = to_plan(made_by_step(graph, form[0]), paired=form[1], nested=True)
        if any(roll.outer for roll in few.rolls):
            wrong = random_loops.differing(one, graph, few, 1)
            found += wrong or ()
            count += wrong is not None
    return found, count


@pytest.fixture
def two_loops(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bodies have two loops of as many steps."""
    monkeypatch.setattr(random_loops, "PAIRS", True)


@pytest.mark.campaign
@pytest.mark.usefixtures("two_loops")
@pytest.mark.parametrize("first", range(1000, 2000, 50))
def test_many_random_forms(first: int) -> None:
    for seed in range(first, first + 50):
        assert not differences(seed)[0]
