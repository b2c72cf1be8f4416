"""Ranges that the operator states, not the samples: scores in outputs."""

from __future__ import annotations

import pytest

from npuflow.hw.target import Numerics
from npuflow.ir.graph import Graph
from npuflow.place.outputs import score_outputs
from npuflow.quantise.config import Quantize
from npuflow.rewrite.rewrite import rewrite
from npuflow.statistics.observe import Counter
from npuflow.statistics.statistics import merged
from npuflow.testing.rule import graph_of
from npuflow.tune.ranges.thresholds import Calibrate, LayerCalibration, thresholds
from tests.networks.onnx_text import model, normal


def graph() -> Graph:
    """`g` is a gate inside; `s` becomes a part of the output."""
    body = (
        "g = Sigmoid(x) m = Mul(x, g) s = Sigmoid(m) j = Concat<axis=1>(m, s) y = Transpose<perm=[0,2,1]>(j)"
    )
    return rewrite(graph_of(model("float[1,4,6] x => float[1,6,8] y", body)), ()).graph


@pytest.mark.parametrize(
    ("layers", "wanted"),
    [((), ((0.0, 1.0), "scores")), ((LayerCalibration(("s",), range=(0.0, 0.5)),), ((0.0, 0.5), "by hand"))],
    ids=["by the operator", "by hand"],
)
def test_scores_have_the_range_of_their_operator(
    layers: tuple[LayerCalibration, ...], wanted: tuple[tuple[float, float], str]
) -> None:
    """Samples without an object would clip the score of one."""
    counter = Counter(("g", "s"))
    faint = [normal(k, 1, 4, 6, scale=0.01) ** 2 for k in range(2)]
    stats = merged([("0", counter.observe(faint))])
    found = thresholds(graph(), stats, Calibrate(method="minmax", layers=layers), Quantize(), Numerics())
    assert (found.ranges["s"], found.methods["s"]) == wanted
    assert found.ranges["g"][1] < 0.01 and found.methods["g"] == "minmax"


def test_scores_are_found_behind_what_moves_them() -> None:
    assert score_outputs(graph()) == {"s": (0.0, 1.0)}
