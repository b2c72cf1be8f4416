"""Integers that depend on data: arithmetic on positions and counts runs on the NPU, and is exact."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from npuflow.ir.whole import code_type, whole_span
from npuflow.onnx.run import run
from npuflow.place.place import place
from npuflow.quantise.config import Quantize
from npuflow.quantise.scales import whole_types
from npuflow.rewrite.rewrite import rewrite
from npuflow.run.interpret import interpret
from npuflow.testing.quantised import quantize_graph
from npuflow.testing.rule import graph_of
from tests.networks.onnx_text import TARGET, model, normal, on_npu, ops, refused, rewritten

WEIGHTS = {
    "one": np.array(1, np.int64),
    "two": np.array(2, np.int64),
    "three": np.array(3, np.int64),
    "less": np.array(-3, np.int64),
    "rows": np.array([5, 2, 7, 1, 3, 9], np.int64),
    "shift": np.array([2], np.uint64),
    "bits": np.arange(6, dtype=np.uint64) % 4,
    "few": np.array([2], np.uint8),
    "half": np.array(0.5, np.float32),
    "axis": np.array([0], np.int64),
    "table": normal(1, 60, 8),
    "many": np.array(900, np.int64),
}
AT = "p = ArgMax<axis=1, keepdims=0>(s) "
BIT = "u = Cast<to=13>(p) v = BitShift<direction="
FORMS = {
    "add": "y = Add(p, three)",
    "sub, negative": "y = Sub(one, p)",
    "mul": "d = Mul(p, rows) y = Add(d, one)",
    "two of them": "q = ArgMin<axis=1, keepdims=0>(s) y = Mul(p, q)",
    "div": "y = Div(p, rows)",
    "div, towards zero": "d = Sub(p, rows) y = Div(d, three)",
    "mod": "y = Mod(p, rows)",
    "mod of negative": "d = Sub(p, rows) y = Mod(d, three)",
    "fmod of negative": "d = Sub(p, rows) y = Mod<fmod=1>(d, three)",
    "mod by computed": "d = Add(p, one) y = Mod(rows, d)",
    "min and max": "d = Min(p, rows) y = Max(d, three)",
    "abs": "d = Sub(p, rows) y = Abs(d)",
    "neg": "y = Neg(p)",
    "clip": "y = Clip(p, two, three)",
    "right shift": f'{BIT}"RIGHT">(u, shift) y = Cast<to=7>(v)',
    "left shift": f'{BIT}"LEFT">(u, bits) y = Cast<to=7>(v)',
    "shift by computed": f'e = Mod(p, three) f = Cast<to=13>(e) {BIT}"LEFT">(u, f) y = Cast<to=7>(v)',
    "less": "c = Less(p, rows) y = Cast<to=7>(c)",
    "equal": "c = Equal(p, rows) y = Cast<to=7>(c)",
    "selected": "c = Greater(p, rows) d = Mul(p, two) y = Where(c, d, less)",
    "counts": "c = Greater(s, half) d = Cast<to=7>(c) n = ReduceSum<keepdims=0>(d, axis) y = Mul(n, three)",
}


@pytest.mark.parametrize("name", FORMS)
def test_integers_of_positions_are_exact(name: str) -> None:
    shape = "int64[12] y" if name == "counts" else "int64[6] y"
    data = model(f"float[6,12] s => {shape}", AT + FORMS[name], WEIGHTS)
    given = {"s": normal(5, 6, 12)}
    done = rewritten(data, feeds=given)
    assert {o for o in ops(done) if o.startswith("host:")} == {"host:cast"}
    graph = on_npu(done, feeds=given, host=("host:cast",))
    (found,), (wanted,) = interpret(graph, given, TARGET.numerics).values(), run(data, given)
    np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize(
    "body",
    [
        "d = Mul(p, two) e = Add(d, one) f = Div(e, three) y = Gather(table, f)",
        f'{BIT}"RIGHT">(u, shift) f = Cast<to=7>(v) y = Gather(table, f)',
        f'{BIT.replace("13", "2")}"RIGHT">(u, few) f = Cast<to=6>(v) y = Gather(table, f)',
    ],
    ids=["arithmetic", "shift", "shift of bytes"],
)
def test_computed_rows_reach_a_lookup_without_the_host(body: str) -> None:
    data = model("float[6,40] s => float[6,8] y", AT + body, WEIGHTS)
    done = rewritten(data)
    assert not [o for o in ops(done) if o.startswith("host:")]
    graph = on_npu(done, feeds={"s": normal(5, 6, 40)})
    kept = [v.quant for v in graph.values.values() if v.quant is not None and v.quant.scale == (1.0,)]
    assert len(kept) >= 4 and {q.bits for q in kept} == {16}


def test_what_leaves_the_codes_stays_integers() -> None:
    body = AT + "d = Mul(p, many) y = Mul(d, many)"
    done = rewritten(model("float[6,40] s => int64[6] y", body, WEIGHTS))
    assert "codes have 16 bits" in refused(done, "spell_integers")
    assert "mul" in ops(done)


def test_a_divisor_that_may_be_zero_is_refused() -> None:
    """onnxruntime stops at a division by 0; which of the numbers is 0 is known when it runs."""
    done = rewritten(model("float[6,40] s => int64[6] y", AT + "d = Add(p, one) y = Div(rows, d)", WEIGHTS))
    assert "quotient" in ops(done)
    body = AT + "d = Max(p, three) e = Sub(d, three) y = Mod(rows, e)"
    done = rewrite(graph_of(model("float[6,40] s => int64[6] y", body, WEIGHTS)))
    assert "not known to be positive" in refused(done, "spell_integers")


def test_integers_from_outside_have_no_range() -> None:
    data = model("int64[6] i, float[6,40] s => int64[6] y", AT + "y = Add(p, i)", WEIGHTS)
    given = {"i": np.arange(6) * 10**9, "s": normal(5, 6, 40)}
    assert "unknown range" in refused(rewritten(data, feeds=given), "spell_integers")


def test_ranges_of_whole_numbers() -> None:
    data = model("float[6,40] s => float[6] y", AT + "d = Sub(p, three) y = Cast<to=1>(d)", WEIGHTS)
    done = rewritten(data)
    assert whole_span(done.graph, "y") == (-3, 36)
    types = whole_types(done.graph, done.graph.nodes)
    assert types["y"] == code_type((-3, 36))
    assert code_type((0, 60_000)) is not None and code_type((-1, 60_000)) is None


def test_a_border_that_is_no_number_gives_no_range() -> None:
    """A build ended in an OverflowError where a window over masked scores was padded with -infinity."""
    for fill in (-np.inf, np.nan):
        weights = {"sides": np.array([0, 1, 0, 1], np.int64), "fill": np.array(fill, np.float32)}
        graph = graph_of(model("float[6,40] s => float[6,42] y", "y = Pad(s, sides, fill)", weights))
        assert whole_span(graph, "y") is None


def test_ordinary_numbers_beside_positions_keep_their_ranges() -> None:
    body = AT + "d = Cast<to=1>(p) y = Mul(d, half)"
    done = rewritten(model("float[6,40] s => float[6] y", body, WEIGHTS))
    assert "y" not in whole_types(done.graph, done.graph.nodes)


EXPRESSIONS = ("Add", "Sub", "Mul", "Div", "Mod", "Min", "Max", "Where")


@pytest.mark.parametrize("seed", range(12))
def test_random_expressions_of_integers_are_exact(seed: int) -> None:
    """Four operators on positions, constants and what was computed before."""
    rng = np.random.default_rng(seed)
    held, body, weights = ["p"], AT, dict[str, np.ndarray]()
    for step in range(4):
        name = EXPRESSIONS[rng.integers(len(EXPRESSIONS))]
        low = 1 if name in ("Div", "Mod") else -9
        weights[f"c{step}"] = rng.integers(low, 10, 6 if rng.integers(2) else ())
        first = held[rng.integers(len(held))]
        second = f"c{step}" if low > 0 or rng.integers(2) else held[rng.integers(len(held))]
        left, right = (first, second) if low > 0 or rng.integers(2) else (second, first)
        body += f"t{step} = Less({first}, {second}) " if name == "Where" else ""
        operands = f"t{step}, {left}, {right}" if name == "Where" else f"{left}, {right}"
        held.append(f"x{step}")
        body += f"x{step} = {name}({operands}) "
    data = model("float[6,12] s => int64[6] y", f"{body} y = Identity({held[-1]})", weights)
    given = {"s": normal(seed, 6, 12)}
    done = rewritten(data, feeds=given)
    graph = on_npu(done, feeds=given, host=("host:cast",))
    (found,), (wanted,) = interpret(graph, given, TARGET.numerics).values(), run(data, given)
    np.testing.assert_array_equal(found, wanted)


def test_a_network_of_floats_computes_positions_in_integers() -> None:
    """bfloat16 has 8 bits of a number: 300 * 3 + 1 is none of its."""
    body = AT + "d = Mul(p, three) e = Add(d, one) f = Cast<to=1>(e) z = Relu(s) y = Cast<to=7>(f)"
    data = model("float[6,300] s => int64[6] y, float[6,300] z", body, WEIGHTS)
    done = rewritten(data, feeds={"s": normal(5, 6, 300)})
    numerics = replace(TARGET.numerics, float_types=("bfloat16",))
    placed = place(done.graph, TARGET)
    made = quantize_graph(done.graph, placed.on_npu, {"s": (-4.0, 4.0)}, Quantize(mode="bf16"), numerics)
    given = {"s": normal(5, 6, 300)}
    found = interpret(made.graph, given, numerics)
    # of numbers that are equal in bfloat16 the first one has the position
    rounded = given["s"].view(np.uint32) + np.uint32(0x7FFF) + ((given["s"].view(np.uint32) >> 16) & 1)
    first = (rounded >> 16 << 16).view(np.float32).argmax(1) * 3 + 1
    np.testing.assert_array_equal(found["y"], first)
    assert first.max() > 256


def test_large_positions_are_selected_without_a_sum_that_leaves_the_codes() -> None:
    """Of 20,000 elements a sum of a position and a difference would need more than 16 bits."""
    body = f"{AT} q = ArgMin<axis=1, keepdims=0>(s) c = Less(p, q) y = Where(c, p, q) z = Cast<to=1>(y)"
    data = model("float[2,20000] s => float[2] z", body)
    done = rewritten(data)
    assert "max" in ops(done)
    spans = {v: whole_span(done.graph, v) for n in done.graph.nodes for v in n.outputs}
    assert all(span is None or code_type(span) is not None for span in spans.values())
