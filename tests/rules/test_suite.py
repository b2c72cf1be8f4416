"""The published suite of rules on rules of each kind, and what it notices of a rule that is wrong."""

from __future__ import annotations

import numpy as np
import pytest

from npuflow.rewrite.rewrite import Rewritten
from npuflow.testing import rule as suite
from npuflow.testing.rule import RuleSuite, check_rewrite, check_rule, graph_of
from tests.networks.onnx_text import model, normal

SCALE = {"s": normal(1, 4), "b": normal(2, 4), "m": normal(3, 4), "v": np.abs(normal(4, 4)) + 0.5}
NORMALISED = model(
    "float[1,3,6,6] x => float[1,4,6,6] y",
    "c = Conv<pads=[1,1,1,1]>(x, w) y = BatchNormalization(c, s, b, m, v)",
    {"w": normal(0, 4, 3, 3, 3), **SCALE},
)
PLAIN = model("float[2,3,4] x => float[2,3,4] y", "y = Tanh(x)")
TURNED_TWICE = model(
    "float[2,3,4] x => float[2,3,4] y",
    "a = Transpose<perm=[0,2,1]>(x) b = Transpose<perm=[0,2,1]>(a) y = Tanh(b)",
)


class TestMergeMoves(RuleSuite):
    name = "merge_moves"
    applies = (TURNED_TWICE,)
    leaves = (PLAIN,)


def test_all_rules_together_keep_a_normalised_convolution() -> None:
    done = check_rewrite(graph_of(NORMALISED))
    assert len(done.graph.nodes) == 1 and done.applied


def test_a_rule_that_does_nothing_is_noticed() -> None:
    with pytest.raises(AssertionError, match="merge_moves leaves a model as it is"):
        check_rule("merge_moves", PLAIN, applies=True)
    with pytest.raises(AssertionError, match="merge_moves changes a model"):
        check_rule("merge_moves", TURNED_TWICE, applies=False)


def test_a_rewrite_that_computes_something_else_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    other = graph_of(model("float[2,3,4] x => float[2,3,4] y", "y = Sigmoid(x)"))
    monkeypatch.setattr(suite, "rewrite", lambda *_, **__: Rewritten(other))
    with pytest.raises(AssertionError, match="Not equal to tolerance"):
        check_rewrite(graph_of(PLAIN))
