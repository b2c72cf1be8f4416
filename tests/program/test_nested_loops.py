"""Programs and C code of nested loops, of loops that count, and of steps that hand on a constant."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx import helper

from npuflow.checks.agreement import compare
from npuflow.checks.qdq_check import parted
from npuflow.frontends import FRONTENDS, Bindings
from npuflow.ir.loops import loops
from npuflow.ir.unroll import rolled, unnested
from npuflow.program.order import order_of
from npuflow.rewrite.rewrite import rewrite
from npuflow.run.interpret import interpret
from npuflow.run.qdq import to_qdq
from npuflow.sim.hazards import hazards_of
from npuflow.whole.export_c.sequence import CLoop
from tests.export_c.harness import UB, check, needs_compiler
from tests.export_c.random_loops import cases
from tests.frontends.test_loops import info
from tests.frontends.test_nested_loops import (
    SIZE,
    counting,
    file,
    layer_in_scan,
    loop_in_scan,
    scan_in_scan,
    weight,
)
from tests.networks import random_nested
from tests.networks.looped import agrees, program_of, quantised
from tests.networks.random_loops import Drawn, differences, program_differences
from tests.program.test_repeats import TARGET
from tests.tiers import often

RANDOM = (7, 9, 20, 37)                   # both loops on the NPU; programs that repeat commands, and others


def hands_on_a_constant() -> bytes:
    """A step reads a row of what it carries, which is another constant behind the first one."""
    nodes = [
        helper.make_node("Reshape", ["s", "form"], ["f"]),
        helper.make_node("Gather", ["f", "at"], ["row"], axis=0),
        helper.make_node("MatMul", ["row", "w"], ["m"]), helper.make_node("Add", ["m", "t"], ["o"]),
        helper.make_node("Identity", ["other"], ["s2"]),
    ]
    state = info("s", 12, 1)
    body = helper.make_graph(
        nodes, "body", [state, info("t", 1, SIZE)], [info("s2", 12, 1), info("o", 1, SIZE)]
    )
    node = helper.make_node("Scan", ["h", "x"], ["last", "y"], "walk", body=body, num_scan_inputs=1)
    return file(node, [info("h", 12, 1), info("x", 5, 1, SIZE)], [info("last", 12, 1), info("y", 5, 1, SIZE)],
                form=np.array([3, SIZE], np.int64), at=np.array([2], np.int64), other=weight(12, 1))


@pytest.mark.parametrize("name", ["counting", "constant", pytest.param("nested", marks=pytest.mark.slow)])
def test_programs(name: str) -> None:
    made = {"nested": loop_in_scan(12, 4), "counting": counting("row", 12, shown=False),
            "constant": hands_on_a_constant()}
    graph, feeds = quantised(made[name], TARGET)
    program = program_of(graph, TARGET)
    checks = compare(graph, program, TARGET.numerics, [{i: feeds[i] for i in graph.inputs}])
    assert not [c for c in checks if c.different or c.executor]
    assert not list(hazards_of(program, order_of(program)))
    assert bool(rolled(graph).rolls) == (name != "constant")


NESTED = {
    "a Loop": loop_in_scan(12, 4), "a Scan": scan_in_scan(10, 5), "an LSTM": layer_in_scan("LSTM", 4, 12, 5),
    "a GRU, written out outside": layer_in_scan("GRU", 3, 4, 20),
}


@pytest.mark.parametrize("name", often(NESTED, 4))
def test_a_loop_in_a_loop(name: str) -> None:
    """Reference, executor, simulator, and the loop written out; plans have one of both as a loop."""
    graph, feeds = quantised(NESTED[name], TARGET)
    (outer,) = loops(graph)
    assert len(outer.inner) == 1 and all(graph.nodes[i].is_integer for i in outer.nodes)
    agrees(graph, [feeds], TARGET)
    flat = unnested(graph)
    wanted = interpret(flat, feeds, TARGET.numerics)
    for output, array in interpret(graph, feeds, TARGET.numerics).items():
        np.testing.assert_array_equal(array, wanted[output])
    assert len(loops(flat)) == (outer.steps if "outside" in name else 1) and rolled(graph).rolls
    (inner,) = outer.inner
    now, before = inner.carried[0], outer.carried[0]
    for one in (now, before):
        assert len({graph.values[v].quant for v in (one.initial, one.now, one.following, one.last)}) == 1


@pytest.mark.parametrize("name", NESTED)
def test_a_loop_in_a_loop_as_qdq(name: str) -> None:
    """Its codes are those of the reference, and it is read back as a loop in a loop that states them."""
    graph, feeds = quantised(NESTED[name], TARGET)
    model = to_qdq(graph).model
    found = parted(graph, model, TARGET.numerics, [feeds])
    inner = loops(graph)[0].inner[0].carried[0].now
    steps = loops(graph)[0].steps * loops(graph)[0].inner[0].steps
    assert found[inner].elements == steps * graph.type(inner).size
    assert sum(one.different for one in found.values()) <= 0.02 * sum(one.elements for one in found.values())
    assert isinstance(model, bytes)
    reading = FRONTENDS["onnx"]().read(model, Bindings())
    again = loops(rewrite(reading.graph).graph)
    assert [(one.steps, [i.steps for i in one.inner]) for one in again] == [
        (one.steps, [i.steps for i in one.inner]) for one in loops(graph)
    ]
    stated = {quant.scale for quant in reading.stated.values()}
    for one in (loops(graph)[0], loops(graph)[0].inner[0]):
        for carried in one.carried:
            quant = graph.values[carried.now].quant
            assert quant is not None and quant.scale in stated


@pytest.mark.parametrize("seed", often(RANDOM, 4))
def test_random_loops_in_loops(seed: int) -> None:
    one = random_nested.graph_subject(seed)
    assert one is not None and any(loop.inner for loop in loops(one.graph))
    found, whole = differences(seed, random_nested.graph_subject)
    assert not found and whole
    wrong, kind = program_differences(seed, random_nested.graph_subject)
    assert not wrong and kind == ("rolled" if seed in (9, 37) else "straight")


@pytest.mark.slow
@pytest.mark.parametrize("seed", [156])
def test_random_nested_loops(seed: int) -> None:
    """Loops of which one needs another through a third one have as many steps."""
    assert not differences(seed, random_nested.subject)[0]
    assert program_differences(seed, random_nested.subject) == ([], "straight")


@needs_compiler
def test_code_of_random_nested_loops(tmp_path: Path) -> None:
    found = list(cases(range(8), random_nested.subject))
    assert len(found) > 3
    check(found, tmp_path, ("-O0", *UB))


@pytest.mark.slow
@needs_compiler
def test_code_of_random_loops_in_loops(tmp_path: Path) -> None:
    """A `for` in a `for`."""
    found = list(cases(range(30), random_nested.graph_subject))
    assert len(found) > 8
    loops_in = [part for one in found for part in one.program.calls if isinstance(part, CLoop)]
    assert any(isinstance(inner, CLoop) for one in loops_in for inner in one.layers)
    check(found, tmp_path, ("-O0", *UB))


@pytest.mark.campaign
@pytest.mark.parametrize("drawn", [random_nested.subject, random_nested.graph_subject])
@pytest.mark.parametrize("first", range(1000, 2000, 100))
def test_many_random_nested_loops(first: int, drawn: Drawn) -> None:
    for seed in range(first, first + 100):
        assert not differences(seed, drawn)[0]
        assert not program_differences(seed, drawn)[0]
