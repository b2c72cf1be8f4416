"""Outputs whose values are equal or not, such as indices: they have answers, and no dB."""

from __future__ import annotations

import numpy as np

from npuflow.ir.graph import Graph
from npuflow.ir.op import OPS, Node
from npuflow.ir.types import TensorType, Value
from npuflow.report.statement import Advice, JudgedOn, figures, statement
from npuflow.strategies import Budget, Output
from npuflow.tune.judge import Judge
from npuflow.tune.precision.output_check import JudgedOutput, shown


def test_indices_are_compared_by_equality() -> None:
    """An arg-max inside the graph: the wrong index is wrong, however near its number is."""
    kinds = {"x": TensorType((1, 4)), "a": TensorType((1, 4)), "i": TensorType((1, 1), "int64")}
    values = {name: Value(name, kind) for name, kind in kinds.items()}
    host = OPS["host"](op_type="ArgMax", attributes=(("axis", 1),))
    nodes = (Node(OPS["relu"](), ("x",), ("a",), ("r",)), Node(host, ("a",), ("i",), ("m",)))
    graph = Graph(("x",), ("i",), nodes, values)
    feeds = [{"x": np.eye(4, dtype=np.float32)[k : k + 1]} for k in range(4)]
    judge = Judge(graph, feeds)
    (same,) = shown(judge, judge.outputs(graph), Budget())
    assert same.ok and same.output.agreement == 1.0
    wrong = [[np.zeros_like(a) for a in judge.truth[0]]]
    (other,) = shown(judge, wrong, Budget())
    assert not other.ok and "25.0 % of equal answers" in figures(other) and "dB" not in figures(other)


def test_the_worst_of_good_outputs_is_one_that_has_decibels() -> None:
    """Indices of which 99 of 100 are right were the worst, with 0 dB."""
    index, logits = (Output("i", 0.0, 0.0, 0.995, whole=True), Output("y", 25.0, 24.0, 0.995))
    judged = [JudgedOutput(one, True) for one in (index, logits)]
    said = statement(judged, JudgedOn(12), "", Budget(), Advice())
    assert said.ok and 'the worst, "y", has 25.0 dB' in said.text
    assert "99.5 % of equal answers" in statement(judged[:1], JudgedOn(12), "", Budget(), Advice()).text
