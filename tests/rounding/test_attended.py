"""Places of layers whose outputs attention adds up."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from npuflow.ir.graph import Graph
from npuflow.ir.op import OPS, Node
from npuflow.run.floats import FloatRun
from npuflow.tune.rounding.attended import ways_to_attention
from npuflow.tune.rounding.columns import ColumnObserver, columns, summed
from npuflow.tune.rounding.layers import WeightedLayer
from tests.networks.floats import Net

TOKENS, WIDTH, HEADS = 7, 12, 3


def attention(shared: bool = True, appended: bool = False) -> Graph:
    """Attention of three heads, with one head of keys and values for all of them if `shared`. `appended`:
    values are put behind those of a cache by a product, as language models do."""
    net, size = Net(5, TOKENS, WIDTH), WIDTH // HEADS
    width = size if shared else WIDTH
    for name, count in (("query", WIDTH), ("key", width), ("value", width)):
        weight = net.const(f"{name}.w", 2 * net.rng.normal(size=(WIDTH, count)) / WIDTH**0.5)
        net.add(name, OPS["matmul"](), "x", weight)
        net.add(f"{name}.rows", OPS["reshape"]((1, TOKENS, count // size, size)), name)
        net.add(f"{name}.heads", OPS["transpose"]((0, 2, 1, 3)), f"{name}.rows")
    net.add("keys", OPS["transpose"]((0, 1, 3, 2)), "key.heads")
    net.add("scores", OPS["matmul"](), "query.heads", "keys")
    net.add("shares", OPS["softmax"](-1), "scores")
    values = "value.heads"
    if appended:
        put = net.const("put", np.eye(TOKENS)[None, None, ::-1])
        net.add("put.values", OPS["matmul"](), put, values)
        old = net.const("old", net.rng.normal(size=(1, 1, 1, size)))
        values = net.add("cache", OPS["add"](), "put.values", old)
    net.add("attended", OPS["matmul"](), "shares", values)
    net.add("turned", OPS["transpose"]((0, 2, 1, 3)), "attended")
    net.add("joined", OPS["reshape"]((TOKENS, WIDTH)), "turned")
    net.add("out", OPS["matmul"](), "joined", net.const("out.w", net.rng.normal(size=(WIDTH, WIDTH))))
    return net.graph("out")


def node_of(graph: Graph, name: str) -> int:
    return next(i for i, node in enumerate(graph.nodes) if node.outputs[0] == name)


@pytest.mark.parametrize("appended", [False, True])
@pytest.mark.parametrize("shared", [True, False])
def test_shares_are_those_of_the_attentions_outputs(shared: bool, appended: bool) -> None:
    """Attention is linear in its values: what every place of the layer adds to each of its outputs is found
    by moving that place alone. Rows of shares are some of these, normalised, and in the long run all."""
    graph = attention(shared, appended)
    (way,) = ways_to_attention(graph, [node_of(graph, "value")]).values()
    x = np.random.default_rng(3).normal(size=(TOKENS, WIDTH)).astype(np.float32)
    known = {"x": x, **FloatRun.of(graph, [*way.read(graph), "value", "attended"]).run({"x": x})}
    rest = FloatRun.of(graph, ["attended"], node_of(graph, "value") + 1)
    outer = {**FloatRun.of(graph, [v for v in rest.fed if v != "value"]).run({"x": x}), "x": x}
    added = []
    for place in range(TOKENS):
        moved = known["value"].copy()
        moved[place] += 1
        added.append((rest.run({**outer, "value": moved})["attended"] - known["attended"]).reshape(-1))
    wanted = np.unique(np.round(np.stack(added, 1), 4), axis=0)
    found = way.shares(graph, known, 2000, 1)
    assert found.shape == (2000, TOKENS)
    near = np.abs(found[:, None] - wanted / wanted.sum(1, keepdims=True)).max(-1)
    assert near.min(1).max() < 1e-3 and near.min(0).max() < 1e-3


def test_sums_of_columns_are_on_their_grid() -> None:
    rng = np.random.default_rng(1)
    codes = rng.integers(-(2**15) + 1, 2**15, size=(2, 5, 3)).astype(np.int16)
    shares = rng.dirichlet(np.ones(5), size=9)
    found = summed(codes, shares)
    assert found.dtype == np.int16 and found.shape == (2, 9, 3)
    wanted = np.einsum("cp,gpt->gct", shares, codes.astype(np.float64))
    assert np.abs(found - wanted).max() <= 0.5 + 1e-9
    assert summed(codes, None) is codes


@pytest.mark.parametrize("name", ["query", "key", "out"])
def test_other_layers_are_looked_at_evenly(name: str) -> None:
    graph = attention()
    assert not ways_to_attention(graph, [node_of(graph, name)])


def test_values_that_something_else_reads_are_looked_at_evenly() -> None:
    graph = attention()
    more = graph.nodes[node_of(graph, "value.rows")]
    twice = replace(graph, nodes=(*graph.nodes, Node(more.op, more.inputs, ("again",), ("/again",))))
    assert not ways_to_attention(twice, [node_of(graph, "value")])


def test_values_are_seen_through_shares_and_other_layers_are_not() -> None:
    graph = attention()
    layers = [
        WeightedLayer(node_of(graph, name), name, f"{name}.w", "x", "", 9, TOKENS)
        for name in ("key", "value")
    ]
    x = np.random.default_rng(3).normal(size=(TOKENS, WIDTH)).astype(np.float32)
    keys, values = ColumnObserver(graph, layers).columns({"x": x})
    assert keys.chosen.shares is None and values.chosen.shares is not None
    whole = keys.codes.astype(np.float64)
    np.testing.assert_allclose(values.codes, np.matmul(values.chosen.shares, whole), atol=0.5)
    np.testing.assert_array_equal(values.codes, columns(graph, layers[1], x, values.chosen))
