"""Programs and C code of nested loops, of loops that count, and of steps that hand on a constant."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx import helper

from npuflow.checks.agreement import compare
from npuflow.ir.unroll import rolled
from npuflow.program.order import order_of
from npuflow.sim.hazards import hazards_of
from tests.export_c.harness import UB, check, needs_compiler
from tests.export_c.random_loops import cases
from tests.frontends.test_loops import info
from tests.frontends.test_nested_loops import SIZE, counting, file, loop_in_scan, weight
from tests.networks import random_nested
from tests.networks.looped import program_of, quantised
from tests.networks.random_loops import differences, program_differences
from tests.program.test_repeats import TARGET


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


@pytest.mark.parametrize("name", ["nested", "counting", "constant"])
def test_programs(name: str) -> None:
    made = {"nested": loop_in_scan(12, 4), "counting": counting("row", 12, shown=False),
            "constant": hands_on_a_constant()}
    graph, feeds = quantised(made[name], TARGET)
    program = program_of(graph, TARGET)
    checks = compare(graph, program, TARGET.numerics, [{i: feeds[i] for i in graph.inputs}])
    assert not [c for c in checks if c.different or c.executor]
    assert not list(hazards_of(program, order_of(program)))
    assert bool(rolled(graph).rolls) == (name != "constant")


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


@pytest.mark.campaign
@pytest.mark.parametrize("first", range(1000, 2000, 100))
def test_many_random_nested_loops(first: int) -> None:
    for seed in range(first, first + 100):
        assert not differences(seed, random_nested.subject)[0]
        assert not program_differences(seed, random_nested.subject)[0]
