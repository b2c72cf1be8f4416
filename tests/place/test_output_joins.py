"""Concatenations of scores and other numbers in front of outputs: the host's, with each part's own scale."""

from __future__ import annotations

import numpy as np
import pytest

from npuflow.ir.graph import Graph
from npuflow.place.islands import PlacementTable
from npuflow.place.outputs import score_outputs
from npuflow.place.place import place
from npuflow.quantise.config import Quantize
from npuflow.rewrite.rewrite import rewrite
from npuflow.testing.quantised import quantize_graph
from npuflow.testing.rule import graph_of
from tests.networks.onnx_text import TARGET, model

X = "float[1,4,6] x => float[1,8,6] y"
MIXED = "s = Sigmoid(x) b = Add(x, x) y = Concat<axis=1>(b, s)"


def graph(body: str, signature: str = X) -> Graph:
    return rewrite(graph_of(model(signature, body))).graph


SMALL = PlacementTable(min_macs=0)  # no layer is too small for the NPU
JOINED = PlacementTable(min_macs=0, joined_outputs=True)


def hosted(one: Graph, table: PlacementTable = SMALL, *stated: str) -> list[str]:
    return [p.op for p in place(one, TARGET, table, stated).places if not p.on_npu]


def test_boxes_and_scores_are_joined_on_the_host() -> None:
    one = graph(MIXED)
    (place_,) = [p for p in place(one, TARGET, SMALL).places if not p.on_npu]
    assert place_.op == "concat"
    assert place_.reason == '"s" holds scores, "b" other numbers: one scale would lose the scores'
    assert hosted(one, JOINED) == []
    assert hosted(one, SMALL, "y") == []  # the model states the codes of the result


def test_scores_keep_a_scale_of_their_own() -> None:
    """Beside numbers up to 600, the scores' step is a 256th, not two."""
    one = graph(MIXED)
    ranges = {"x": (-300.0, 300.0), "b": (-600.0, 600.0), "s": (0.0, 1.0), "y": (-600.0, 600.0)}
    steps = {}
    for table in (SMALL, JOINED):
        placed = place(one, TARGET, table)
        made = quantize_graph(one, placed.on_npu, ranges, Quantize(), TARGET.numerics).graph
        quant = made.values["s"].quant
        assert quant is not None
        steps[table.joined_outputs] = quant.scale[0]
    assert steps[False] == pytest.approx(1 / 255, rel=0.02) and steps[True] > 2


@pytest.mark.parametrize("apart", [True, False])
def test_a_state_that_stays_behind_its_sequences_end_is_a_score(apart: bool) -> None:
    """A step's result where the sequence goes on, else the last state: one of two scores. Where both may
    count at one place, their sum is another number."""
    mask = np.array([[1], [1], [0], [1]], np.float32)
    rest = 1 - mask if apart else np.ones_like(mask)
    m, r = ("{" + ", ".join(map(str, array.ravel())) + "}" for array in (mask, rest))
    body = (
        f"m = Constant<value = float[4,1] {m}>() r = Constant<value = float[4,1] {r}>()"
        " s = Sigmoid(x) n = Neg(x) t = Sigmoid(n) a = Mul(s, m) b = Mul(t, r) c = Add(a, b)"
        " y = Concat<axis=1>(c, s)"
    )
    assert hosted(graph(body)) == ([] if apart else ["concat"])


def test_all_behind_the_join_follows() -> None:
    """Heads of several scales, joined again and turned."""
    body = (
        "s = Sigmoid(x) b = Add(x, x) j = Concat<axis=1>(b, s) t = Sigmoid(x) c = Mul(x, x)"
        " k = Concat<axis=1>(c, t) z = Concat<axis=2>(j, k) y = Transpose<perm=[0,2,1]>(z)"
    )
    one = graph(body, "float[1,4,6] x => float[1,12,8] y")
    assert hosted(one) == ["concat", "concat", "concat", "transpose"]


@pytest.mark.parametrize(
    ("body", "signature"),
    [
        ("s = Sigmoid(x) t = HardSigmoid(x) y = Concat<axis=1>(s, t)", X),
        ("s = Sigmoid(x) t = Tanh(x) h = Mul(s, t) y = Concat<axis=1>(h, t)", X),
        ("a = Add(x, x) b = Mul(x, x) y = Concat<axis=1>(a, b)", X),
        (MIXED.replace("y =", "j =") + " y = Add(j, j)", X),
        ("s = Sigmoid(x) r = Relu(x) p = Mul(s, s) y = Concat<axis=1>(s, p)", X),
    ],
    ids=["scores alone", "a state of an LSTM", "numbers alone", "read by a layer", "products of scores"],
)
def test_what_stays(body: str, signature: str) -> None:
    assert hosted(graph(body, signature)) == []


@pytest.mark.parametrize(("largest", "wanted"), [(0.0, []), (1.0, []), (600.0, ["concat"])])
def test_constants_among_the_scores_need_no_other_scale(largest: float, wanted: list[str]) -> None:
    """A recurrent layer's states behind the end of a sequence are zeros. Larger constants take the scale."""
    given = {"c": np.linspace(0, largest, 24, dtype=np.float32).reshape(1, 4, 6)}
    data = model(X, "s = Sigmoid(x) y = Concat<axis=1>(s, c)", given)
    assert hosted(rewrite(graph_of(data)).graph) == wanted


def test_small_constants_beside_boxes_are_no_scores() -> None:
    data = model(X, "b = Add(x, x) y = Concat<axis=1>(b, c)", {"c": np.zeros((1, 4, 6), np.float32)})
    assert hosted(rewrite(graph_of(data)).graph) == []


PICKED = {
    "the best scores": "v, p = TopK(s, k) f = Cast<to=1>(p) y = Concat<axis=1>(v, f)",
    "scores picked by positions": (
        "q = ReduceMax<axes=[1]>(b) v, p = TopK(q, k) i = Reshape(p, rest) g = Gather<axis=2>(s, i) "
        "h = Gather<axis=2>(b, i) y = Concat<axis=1>(g, h)"
    ),
    "peaks": (
        "m = MaxPool<kernel_shape=[3], pads=[1,1]>(s) e = Equal(s, m) c = Cast<to=1>(e) n = Mul(s, c) "
        "v, p = TopK(n, k) f = Cast<to=1>(p) y = Concat<axis=1>(v, f)"
    ),
}


@pytest.mark.parametrize("body", PICKED.values(), ids=PICKED)
def test_picked_scores_are_scores(body: str) -> None:
    """What a detector's last layers write: the best scores beside their places or their boxes."""
    weights = {"k": np.array([3], np.int64), "rest": np.array([-1], np.int64)}
    given = model("float[1,4,6] x => float[1,8,3] y", f"s = Sigmoid(x) b = Add(x, x) {body}", weights, 11)
    one = rewrite(graph_of(given)).graph
    assert "concat" in hosted(one)
    assert score_outputs(one) == {"s": (0.0, 1.0)}
