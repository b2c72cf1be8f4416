"""Float types of the NPU as levels of a search: what they do to values, layers, casts, cycles and recipes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from npuflow.hw.floats import rounded
from npuflow.hw.target import Compute, FloatRate, Memory, Numerics, Target
from npuflow.ir.graph import Graph
from npuflow.ir.op import OPS
from npuflow.ir.types import FloatType
from npuflow.quantise.config import Override, Quantize
from npuflow.quantise.graph import build
from npuflow.run.interpret import interpret
from npuflow.strategies import NARROW, OWN, STRATEGIES, WIDE, Budget, Levels
from npuflow.tune.precision.harness import Harness
from npuflow.tune.precision.levels import LevelTypes
from npuflow.tune.precision.problem import SearchProblem, cost_of
from npuflow.tune.precision.sensitivity import noises
from tests.networks.floats import Net
from tests.networks.harness import check_exact
from tests.precision.harnesses import feeds_of, harness_of, mixed_net
from tests.tiers import often

NUMERICS = Numerics(
    weight_bits=(8, 16), activation_bits=(8, 16), float_types=("bfloat16", "float16"), float_chunk=8
)
RATES = (FloatRate("bfloat16"), FloatRate("float16"))
TARGET = Target(
    numerics=NUMERICS,
    compute=Compute(float_rates=RATES, array_rows=4, array_cols=4, vector_lanes=8),
    memory=Memory(local_bytes=1 << 19, external_bandwidth=16384.0),
)
BF16, FP16 = OWN, OWN + 1


def ready(graph: Graph | None = None, **more: object) -> Harness:
    """A harness with both float types, without room limits."""
    scheme = more.pop("scheme", None)
    harness = harness_of(graph or mixed_net(), scheme=scheme, numerics=NUMERICS)  # type: ignore[arg-type]
    return replace(harness, types=LevelTypes(floats=("bf16", "fp16"), **more))  # type: ignore[arg-type]


def unit(harness: Harness, name: str) -> int:
    return [held for _, held in harness.names].index(name)


def at(harness: Harness, **levels: int) -> Levels:
    found = [NARROW] * len(harness.names)
    for name, level in levels.items():
        found[unit(harness, name)] = level
    return tuple(found)


def problem_of(harness: Harness, **budget: float) -> SearchProblem:
    noise = noises(harness, 2, lambda done, count: None)
    cost = cost_of(harness, TARGET)
    return SearchProblem(harness, cost, Budget(**budget), lambda: list(noise), 2, False, print)


@pytest.mark.parametrize(("level", "number"), [(BF16, "bfloat16"), (FP16, "float16")])
def test_a_value_at_a_float_level_is_rounded_to_the_type(level: int, number: str) -> None:
    net = Net(1, 1, 2, 3, 5)
    net.add("y", OPS["relu"](), "x")
    harness = ready(net.graph("y"))
    held = [
        {"x": np.ldexp(feed["x"], k).astype(np.float32)}
        for k, feed in zip((-18, 0, 9), harness.judge.held, strict=False)
    ]
    (made,) = harness.mixed(at(harness, x=level, y=level), held)
    for feed, y in zip(held, made, strict=True):
        np.testing.assert_array_equal(y, rounded(np.maximum(feed["x"], 0), number).astype(np.float32))


def test_weights_of_layers_in_floats_are_rounded_and_what_they_alone_share_is_float_too() -> None:
    harness = ready()
    settled = harness.settled(at(harness, c1=BF16))       # c1's layer and its readers, c2 and the sum
    names = [name for _, name in harness.names]
    shared = {name for name, level in zip(names, settled, strict=True) if level == BF16}
    assert {"c1", "c2"} <= shared and "sum" not in shared, "the gate reads the sum in integers"
    weights = {w.value for w in harness.network.weights if w.value in shared}
    assert len(weights) == 2
    _, given = harness.mixture(at(harness, c1=BF16))
    for name in weights:
        real = harness.network.graph.const(name)
        np.testing.assert_array_equal(given[name], rounded(real, "bfloat16").astype(np.float32))


def test_overrides_name_the_layers_that_touch_a_unit_in_floats() -> None:
    harness = ready()
    (one,) = harness.choice(at(harness, c1=BF16)).overrides
    assert one.type == "bf16" and set(one.layers) == {"c1", "c2", "sum"}
    done = harness.built(at(harness, c1=BF16))
    held = {v.id for v in done.values.values() if isinstance(v.quant, FloatType) and v.const is None}
    assert {"c1", "c2", "sum"} <= held
    check_exact(done, harness.judge.held[0], TARGET)


def test_what_a_float_layer_writes_may_be_read_in_sixteen_bits() -> None:
    """The width belongs to the reader then: its producer has no codes."""
    harness = ready()
    levels = at(harness, c1=BF16, sum=WIDE)
    done = harness.built(levels)
    gate = next(n for n in done.nodes if n.outputs[0] == "gate")
    quant = done.values[gate.inputs[0]].quant
    assert quant is not None and quant.bits == 16 and not isinstance(quant, FloatType)


def test_layers_and_operators_may_be_picked_and_a_pinned_type_stays() -> None:
    """A tensor is held in a type where all layers that write and read it may compute in it."""
    assert unit(harness := ready(layers=("sigmoid", "gated")), "open") in harness.floatable(BF16)
    assert not {unit(harness, "c1"), unit(harness, "gate")} & harness.floatable(BF16)
    pinned = ready(scheme=Quantize(overrides=(Override(("c2",), type="int"),)))
    assert unit(pinned, "c1") not in pinned.floatable(BF16) and unit(pinned, "gate") in pinned.floatable(BF16)
    small = ready(room=1 << 12)
    assert unit(small, "gate") not in small.floatable(BF16), "the table of Sigmoid does not fit"


def test_numbers_beyond_float16_are_no_candidates_for_it() -> None:
    harness = ready()
    wide = replace(harness, wide_ranges={**harness.wide_ranges, "sum": (0.0, 70000.0)})
    k = unit(harness, "sum")
    assert k in wide.floatable(BF16) and k not in wide.floatable(FP16) and k in harness.floatable(FP16)


def test_layers_in_floats_by_the_recipe_have_no_units() -> None:
    """Nothing quantises them: a unit would measure noise that there is not."""
    harness = ready(scheme=Quantize(mode="bf16", overrides=(Override(("heat",), type="int"),)))
    weights = (w.value for w in harness.network.weights)
    assert {name for _, name in harness.names} == {"gated", "heat", *weights}


def test_cycles_count_the_rate_the_casts_and_the_bytes() -> None:
    harness = ready()
    cost = cost_of(harness, TARGET)
    narrow = (NARROW,) * len(harness.names)
    some, every = at(harness, c1=BF16), (BF16,) * len(harness.names)
    assert cost.cycles(narrow) < cost.cycles(some) < cost.cycles(every)
    k = unit(harness, "c1")
    assert cost.delta(narrow, k, BF16) == pytest.approx(cost.cycles(some) - cost.cycles(narrow))
    faster = replace(TARGET, compute=replace(TARGET.compute, float_rates=(FloatRate("bfloat16", 1.0),)))
    assert cost_of(harness, faster).cycles(every) < cost.cycles(every)
    # without the casts at its borders a float layer costs less
    settled = harness.settled(at(harness, c1=BF16, c2=BF16, x=BF16, sum=BF16, gate=BF16))
    assert cost.cycles(settled) <= cost.cycles(at(harness, c1=BF16, gate=BF16))


@pytest.mark.parametrize("strategy", often(["auto", "greedy", "ilp", "qtable", "suffix"], 3))
def test_every_strategy_mixes_floats_in(strategy: str) -> None:
    """At a third of the price of 16 bits bfloat16 is what is chosen; the quantised network has its types."""
    rates = (FloatRate("bfloat16", 1.0), FloatRate("float16", 0.1))
    harness = replace(ready(), types=LevelTypes(floats=("bf16",)))
    cheap = replace(TARGET, compute=replace(TARGET.compute, float_rates=rates))
    noise = noises(harness, 2, lambda done, count: None)
    budget = Budget(sqnr_db=46.0, agreement=1.1)
    problem = SearchProblem(
        harness, cost_of(harness, cheap), budget, lambda: list(noise), 2, False, lambda line: None,
        candidates={"weight": (NARROW,), "activation": (NARROW,)},
    )
    levels = STRATEGIES[strategy]()(problem)
    assert BF16 in levels
    assert budget.holds(problem.verified(levels))
    assert not budget.holds(problem.verified((NARROW,) * len(levels)))
    done = harness.built(levels)
    assert any(isinstance(v.quant, FloatType) for v in done.values.values())
    found = interpret(done, harness.judge.held[0], NUMERICS)
    assert all(np.isfinite(found[o]).all() for o in done.outputs)


def test_floats_that_nobody_asked_for_are_not_tried_where_integers_do() -> None:
    """Even at a third of the price of 16 bits: the widths are those without floats."""
    rates = (FloatRate("bfloat16", 1.0), FloatRate("float16", 0.1))
    cheap = replace(TARGET, compute=replace(TARGET.compute, float_rates=rates))
    found = []
    for floats in ((), ("bf16",)):
        harness = replace(ready(), types=LevelTypes(floats=floats))
        noise = noises(harness, 2, lambda done, count: None)
        problem = SearchProblem(
            harness, cost_of(harness, cheap), Budget(sqnr_db=43.0, agreement=1.1),
            lambda noise=noise: list(noise),
            2, False, lambda line: None, floats_last=True,
        )
        found.append(STRATEGIES["auto"]()(problem))
        assert problem.budget.holds(problem.verified(found[-1]))
        assert not problem.budget.holds(problem.verified((NARROW,) * len(found[-1])))
    assert found[0] == found[1]


@pytest.mark.parametrize("last", [False, True])
def test_a_float_type_takes_the_place_of_the_host_where_wide_integers_fail(last: bool) -> None:
    """A value whose small numbers matter (a logarithm of it follows): no integers hold it."""
    net = Net(5, 1, 3, 6, 6)
    net.conv("c", "x", 4, 1)
    net.add("p", OPS["mul"](), "c", "c")
    net.add("p2", OPS["mul"](), "p", "p")
    net.add("l", OPS["log"](), "p2")
    graph = net.graph("l")
    feeds = [{k: v + 2e-2 for k, v in feed.items()} for feed in feeds_of(graph, 16)]
    harness = replace(
        harness_of(graph, numerics=NUMERICS, feeds=feeds), types=LevelTypes(floats=("bf16",), room=1 << 19)
    )
    problem = replace(problem_of(harness, sqnr_db=20.0), floats_last=last)
    levels = STRATEGIES["auto"]()(problem)
    done = build(harness.candidate(levels))
    assert not done.notes and all(n.is_integer for n in done.graph.nodes if n.op.onnx == "Log")
    assert BF16 in levels and problem.budget.holds(problem.verified(levels))


def test_fake_quantisation_foresees_the_quantised_network() -> None:
    """Of a network all in bfloat16 within a tenth of a decibel."""
    harness = replace(ready(), types=LevelTypes(floats=("bf16",)))
    problem = problem_of(harness, sqnr_db=50.0)
    every = (BF16,) * len(harness.names)
    for guess, judged in zip(problem.measured(every), problem.verified(every), strict=True):
        assert guess.sqnr == pytest.approx(judged.sqnr, abs=0.1) and judged.sqnr > 50
