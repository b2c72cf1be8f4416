"""Rotated values of attention: the same outputs, the inverse in the layer behind the heads, or a reason."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from npuflow.hw.target import Target
from npuflow.ir.graph import Graph
from npuflow.ir.op import OPS
from npuflow.ir.queries import kind
from npuflow.place.place import place
from npuflow.quantise.candidate import Candidate
from npuflow.quantise.config import Quantize
from npuflow.tune.correct.assess import QuantisationSetup
from npuflow.tune.correct.config import Equalize
from npuflow.tune.correct.prepare import prepare
from npuflow.tune.correct.rotate_values import rotate_values
from npuflow.tune.judge import Judge
from npuflow.tune.ranges.thresholds import Calibrate
from tests.networks.floats import Net, floats

TOKENS, WIDTH, HEADS = 5, 16, 2
EACH = WIDTH // HEADS


class Attention(Net):
    """One attention over rows [tokens, width]; a channel of its values exceeds the others."""

    def __init__(self) -> None:
        super().__init__(0, TOKENS, WIDTH)

    def heads(self, name: str, rows: str, count: int = HEADS) -> str:
        split = self.add(f"{name}.split", OPS["reshape"]((1, TOKENS, count, EACH)), rows)
        return self.add(f"{name}.heads", OPS["transpose"]((0, 2, 1, 3)), split)

    def values_of(self, name: str, columns: int) -> str:
        out = self.gemm(name, "x", columns)
        weight = np.array(self.consts[self.values[f"{name}.w"].const or ""])
        weight[:, 3] *= 40
        self.const(f"{name}.w", weight)
        return out

    def probabilities(self, query: str, key: str) -> str:
        keys = self.add("keys", OPS["transpose"]((0, 1, 3, 2)), key)
        return self.add("probabilities", OPS["softmax"](3), self.add("scores", OPS["matmul"](), query, keys))

    def joined(self, values: str) -> str:
        mixed = self.add("mixed", OPS["matmul"](), "probabilities", values)
        back = self.add("back", OPS["transpose"]((0, 2, 1, 3)), mixed)
        return self.add("rows", OPS["reshape"]((TOKENS, WIDTH)), back)


def separate() -> Attention:
    net = Attention()
    query, key = (net.heads(name[0], net.gemm(name, "x", WIDTH)) for name in ("query", "key"))
    net.probabilities(query, key)
    net.joined(net.heads("v", net.values_of("value", WIDTH)))
    return net


def packed() -> Attention:
    """Queries, keys and values by one layer, taken apart behind it."""
    net = Attention()
    net.gemm("qkv", "x", 3 * WIDTH)
    parts = [
        net.add(name, OPS["slice"]((i * WIDTH,), ((i + 1) * WIDTH,), (1,), (1,)), "qkv")
        for i, name in enumerate(("query", "key", "value"))
    ]
    query, key, value = (net.heads(f"{name}s", name) for name in parts)
    net.probabilities(query, key)
    net.joined(value)
    return net


def shared_head() -> Attention:
    """Two heads of queries with the keys and values of one."""
    net = Attention()
    one = [net.heads(name, net.values_of(f"{name}.rows", EACH), 1) for name in "kv"]
    net.probabilities(net.heads("q", net.gemm("query", "x", WIDTH)), one[0])
    net.joined(one[1])
    return net


def same_outputs(net: Attention, before: Graph, after: Graph, name: str) -> None:
    for feed in net.feeds(3):
        want, found = floats(before, feed)[name], floats(after, feed)[name]
        np.testing.assert_allclose(found, want, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize(("build", "heads"), [(separate, 2), (packed, 2), (shared_head, 1)])
def test_outputs_stay_and_nothing_is_added(build: Callable[[], Attention], heads: int) -> None:
    net = build()
    graph = net.graph(net.gemm("output", "rows", WIDTH))
    done = rotate_values(graph)
    (place,) = done.places
    assert not place.obstacle and (place.heads, place.width) == (heads, EACH)
    assert place.readers == ("/output",) and list(map(kind, done.graph.nodes)) == list(map(kind, graph.nodes))
    same_outputs(net, graph, done.graph, "output")


def test_no_channel_of_the_values_exceeds_the_others() -> None:
    net = separate()
    graph = net.graph(net.gemm("output", "rows", WIDTH))
    (feed,) = net.feeds(1)
    before, after = (np.abs(floats(g, feed)["value"]).max(0) for g in (graph, rotate_values(graph).graph))
    assert before.max() > 10 * np.median(before[:EACH]) and after[:EACH].max() < 4 * np.median(after[:EACH])


def test_a_curve_behind_the_heads_keeps_the_values_as_they_are() -> None:
    net = separate()
    net.add("curve", OPS["relu"](), "rows")
    done = rotate_values(net.graph(net.gemm("output", "curve", WIDTH)))
    assert "/curve reads the heads' results" in done.places[0].obstacle


def test_values_that_something_else_reads_stay() -> None:
    net = separate()
    more = net.add("more", OPS["relu"](), "value")
    graph = net.graph(net.gemm("output", "rows", WIDTH), more)
    done = rotate_values(graph)
    assert done.graph is graph and "/more reads its values, too" in done.places[0].obstacle


def test_a_layer_behind_that_reads_half_of_a_head_keeps_the_values() -> None:
    net = separate()
    net.add("part", OPS["slice"]((0,), (WIDTH - 3,), (1,), (1,)), "rows")
    done = rotate_values(net.graph(net.gemm("output", "part", WIDTH)))
    assert "only some channels of a head" in done.places[0].obstacle


def test_rotated_values_stay_where_scales_are_tried_behind_them() -> None:
    net = separate()
    net.add("curve", OPS["relu"](), net.gemm("output", "rows", WIDTH))
    graph = net.graph(net.gemm("last", "curve", WIDTH))
    fit = net.feeds(6)
    judge = Judge(graph, net.feeds(3), fit)
    target = Target()
    network = Candidate(graph, place(graph, target), Quantize(), target.numerics)
    terms = QuantisationSetup(judge, Calibrate(method="minmax"), network, target, corrected=False)
    done = prepare(graph, Equalize(rotate="on", scale="on", absorb="off", smooth="off"), terms)
    kept = {trial.correction for trial in done.trials if trial.kept}
    weight = done.graph.const(done.graph.producer()["value"].inputs[1])
    assert {"rotate values", "equalize"} <= kept and weight is not None
    assert np.abs(weight).max() < 0.6 * np.abs(net.consts[net.values["value.w"].const or ""]).max()


def test_networks_without_attention_have_no_places() -> None:
    net = Attention()
    graph = net.graph(net.gemm("second", net.gemm("first", "x", WIDTH), 3))
    done = rotate_values(graph)
    assert done.graph is graph and not done.places
