"""Changes made in place give what the graph written anew after each of them gives."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import npuflow.rewrite.rewrite as engine
from npuflow.ir.graph import Graph, prune
from npuflow.ir.queries import kind, maker, users
from npuflow.ir.text import from_text
from npuflow.rewrite.working import WorkingGraph
from npuflow.rules import Change
from npuflow.testing.rule import graph_of
from tests.networks.onnx_text import model, normal

WEIGHTS = {
    "k": normal(1, 4, 3, 3, 3), "w": normal(2, 1, 16, 8), "r": normal(3, 1, 16, 4), "s": normal(4, 4, 1, 1),
    "i": np.array([1, 0, 2], np.int64),
}
NETWORKS = {
    "layers": (
        "float[1,3,8,8] x => float[1,4,8,8] y, float[1,4,8,8] z",
        """a = Conv<kernel_shape=[3,3], pads=[1,1,1,1]>(x, k) b = Mul(a, s) c = Add(b, s) d = Sigmoid(c)
        e = Mul(c, d) f = Identity(e) y = Relu(f) g = Transpose<perm=[0,2,3,1]>(f) h = Relu(g)
        z = Transpose<perm=[0,3,1,2]>(h)""",
    ),
    "states": (
        "float[5,2,8] x => float[5,1,2,4] y, float[1,2,4] h",
        "a = Gather<axis=0>(x, i) b = Identity(a) y, h, c = LSTM<hidden_size=4>(x, w, r)",
    ),
    "scores": (
        "float[2,6,4] x, float[2,6,4] v => float[2,6,4] y",
        """t = Transpose<perm=[0,2,1]>(v) a = MatMul(x, t) b = Softmax<axis=-1>(a) c = MatMul(b, v)
        n = LpNormalization(c) y = Identity(n)""",
    ),
}


def both(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> tuple[engine.Rewritten, engine.Rewritten]:
    found = engine.rewrite(graph, careful=True)
    with monkeypatch.context() as patch:
        patch.setattr(WorkingGraph, "changed", lambda self, change: None)
        return found, engine.rewrite(graph, careful=True)


@pytest.mark.parametrize("name", NETWORKS)
def test_the_same_graph_changes_and_refusals(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    signature, body = NETWORKS[name]
    used = {n: a for n, a in WEIGHTS.items() if f" {n}" in body.replace("(", " ")}
    graph = graph_of(model(signature, body, used))
    found, wanted = both(graph, monkeypatch)
    assert found.applied and (found.applied, found.refusals) == (wanted.applied, wanted.refusals)
    assert found.graph == wanted.graph
    assert list(found.graph.values) == list(wanted.graph.values)
    assert list(found.graph.consts) == list(wanted.graph.consts)


def test_makers_and_readers_are_those_of_the_nodes() -> None:
    """After every change of a network."""
    signature, body = NETWORKS["layers"]
    graph = graph_of(model(signature, body, {n: WEIGHTS[n] for n in "ks"}))
    for most in range(1, len(engine.rewrite(graph).applied) + 1):
        made = WorkingGraph(engine.rewrite(graph, most=most).graph).graph
        again = made.replaced()
        for value in made.values:
            assert maker(made, value) is again.producer().get(value)
            assert users(made, value) == again.consumers().get(value, [])


def test_a_change_that_moves_nodes_is_left() -> None:
    """The reader of a result stands in front of the place where the result would be made."""
    graph = graph_of(
        model("float[1,4] x => float[1,4] y", "a = Relu(x) b = Sigmoid(a) c = Tanh(x) y = Add(b, c)")
    )
    relu, tanh = (next(n for n in graph.nodes if kind(n) == name) for name in ("relu", "tanh"))
    change = Change((relu, tanh), (tanh, relu))
    working = WorkingGraph(graph)
    assert working.changed(change) is None and working.graph == graph
    assert [kind(n) for n in engine.apply(graph, change).nodes][:2] == ["tanh", "relu"]


def test_long_chains_are_rewritten_in_place(monkeypatch: pytest.MonkeyPatch) -> None:
    """As of a loop that was written out: each Relu is one change; the graph is written anew for the first
    only."""
    whole, write = [0], engine.apply
    monkeypatch.setattr(engine, "apply", lambda *a: (whole.__setitem__(0, whole[0] + 1), write(*a))[1])
    steps = " ".join(f"s{k + 1} = Relu(s{k})" for k in range(300))
    graph = graph_of(model("float[2,3] s0 => float[2,3] y", f"{steps} y = Identity(s300)"))
    done = engine.rewrite(graph)
    assert len(done.applied) == 300 and whole[0] <= 3


def test_a_carried_value_dies_with_its_last_reader() -> None:
    """Nothing but its own next step reads "count" after the change; the loop's other value stays."""
    graph = from_text("""npuflow graph 1
input x: float32[12,3]
input start: float32[2,3]
part: float32[2,3] = loopslice(x) loop="sums" steps=6
before: float32[2,3] = loopcarry(start) loop="sums" steps=6
count: float32[2,3] = loopcarry(start) loop="sums" steps=6 index=1
counted: float32[2,3] = sigmoid(count)
scaled: float32[2,3] = mul(part, counted)
after: float32[2,3] = add(before, scaled)
last: float32[2,3] = looplast(after) loop="sums" steps=6
counts: float32[2,3] = looplast(counted) loop="sums" steps=6 index=1
output last
""")
    node = next(n for n in graph.nodes if n.outputs == ("scaled",))
    change = Change((node,), (replace(node, inputs=("part", "part")),))
    working = WorkingGraph(graph)
    dead = working.changed(change)
    assert dead is not None and {n.name for n in dead} == {"count", "counted", "counts"}
    assert working.pruned() == prune(engine.apply(graph, change))
    assert [n.name for n in working.pruned().nodes] == ["part", "before", "scaled", "after", "last"]
