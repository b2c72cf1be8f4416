"""Every build compares the executor with the reference; evaluation uses it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np
import pytest

from npuflow.base.errors import BuildError
from npuflow.checks import agreement
from npuflow.checks.agreement import compare, require_equal
from npuflow.checks.evaluate import Evaluate
from npuflow.hw.target import Target
from npuflow.ir.graph import Graph
from npuflow.ir.types import Array
from npuflow.program.codegen.generate import generate
from npuflow.program.container import Program
from npuflow.quantise.config import Quantize
from npuflow.schedule.machine import Machine
from npuflow.search.plan import plan_network
from npuflow.testing.quantised import quantize_graph
from npuflow.whole.execute.executor import Executor
from tests.execute.nets import small

Keep = Iterable[str] | Callable[[str], bool] | None


def built() -> tuple[Graph, Program, list[Mapping[str, Array]]]:
    target = Target()
    graph, feeds, ranges = small()
    graph = quantize_graph(graph, lambda _: True, ranges, Quantize(), target.numerics).graph
    plan = plan_network(graph, Machine(target.compute, target.memory, target.dma), target.numerics)
    return graph, generate(graph, plan, target), feeds


class Wrong(Executor):
    """One code of one tensor is off in the second sample."""

    value = ""

    def run_many(self, samples: Sequence[Mapping[str, Array]], keep: Keep = None) -> list[dict[str, Array]]:
        found = super().run_many(samples, keep)
        found[1][self.value].reshape(-1)[3] ^= 1
        return found


def test_the_executor_is_compared_in_every_build(monkeypatch: pytest.MonkeyPatch) -> None:
    graph, program, feeds = built()
    checks = compare(graph, program, Target().numerics, feeds)
    require_equal(checks, program)
    assert all(c.executor == 0 for c in checks) and len(checks) == len(graph.nodes)

    node = graph.nodes[2]
    Wrong.value = node.outputs[0]
    monkeypatch.setattr(agreement, "Executor", Wrong)
    checks = compare(graph, program, Target().numerics, feeds)
    assert {c.value: c.executor for c in checks if c.executor} == {Wrong.value: 1}
    with pytest.raises(BuildError, match=r"the whole-tensor executor differs .* in 1 of") as caught:
        require_equal(checks, program)
    assert caught.value.where is not None
    assert (caught.value.where.value, caught.value.where.node) == (Wrong.value, node.name)


def test_another_shape_or_type_is_a_difference() -> None:
    codes = np.zeros((2, 3), np.int8)
    assert agreement._apart(codes, codes.astype(np.uint8)) == 6
    assert agreement._apart(codes, codes[:1]) == 6
    assert agreement._apart(np.array([1.0, np.nan]), np.array([1.0, np.nan])) == 0


def test_evaluation_runs_on_the_executor_by_default() -> None:
    assert Evaluate.by == "executor"
