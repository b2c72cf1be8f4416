"""Scale migration leaves the function as it is, brings integers closer, folds through attention, and
refuses with a reason."""

from __future__ import annotations

import numpy as np
import pytest

from npuflow.hw.target import Target
from npuflow.ir.graph import Graph
from npuflow.ir.op import OPS
from npuflow.ir.verify import verify
from npuflow.place.place import place
from npuflow.quantise.candidate import Candidate
from npuflow.quantise.config import Quantize, Weights
from npuflow.rewrite.rewrite import rewrite
from npuflow.testing.rule import graph_of
from npuflow.tune.correct.assess import QuantisationSetup
from npuflow.tune.correct.config import Equalize
from npuflow.tune.correct.prepare import prepare
from npuflow.tune.correct.smooth import places, smooth
from npuflow.tune.error import outputs_of
from npuflow.tune.judge import Judge
from npuflow.tune.ranges.thresholds import Calibrate
from tests.networks.floats import USUAL, Feed, Net
from tests.networks.onnx_text import model, normal

ROWS, WIDTH = 16, 12
OUTLIERS = np.array([*(1.0,) * (WIDTH - 2), 40.0, 25.0])


def attention(residual: bool = False, clip: tuple[float, float] | None = None) -> Graph:
    """A factor and an addend by channel, three layers that read them, attention, and a layer behind it."""
    net = Net(0, ROWS, WIDTH)
    net.add("gamma", OPS["mul"](), "x", net.const("gamma.c", OUTLIERS))
    net.add("norm", OPS["add"](clip=clip), "gamma", net.const("beta.c", net.rng.normal(size=WIDTH)))
    for name in "qkv":
        net.gemm(name, "norm", WIDTH)
    weight = net.consts[net.values["v.w"].const]
    net.const("v.w", weight * OUTLIERS[::-1])
    net.add("turned", OPS["transpose"](perm=(1, 0)), "k")
    net.add("scores", OPS["matmul"](), "q", "turned")
    net.add("softmax", OPS["softmax"](axis=1), "scores")
    net.add("mixed", OPS["matmul"](), "softmax", "v")
    net.gemm("o", "mixed", WIDTH)
    if residual:
        net.add("sum", OPS["add"](), "norm", "o")
    return net.graph("sum" if residual else "o")


def feeds(count: int, seed: int = 1) -> list[Feed]:
    rng = np.random.default_rng(seed)
    return [{"x": rng.normal(size=(ROWS, WIDTH)).astype(np.float32)} for _ in range(count)]


def test_the_function_stays_and_channels_become_alike() -> None:
    graph, samples = attention(), feeds(6)
    done = smooth(graph, Quantize(), USUAL, samples, 1024.0)
    verify(done.graph)
    for a, b in zip(outputs_of(graph, samples), outputs_of(done.graph, samples), strict=True):
        np.testing.assert_allclose(a[0], b[0], rtol=1e-3, atol=1e-3 * np.abs(a[0]).max())
    named = dict(zip((one.value for one in done.places), done.scales, strict=True))
    assert set(named) == {"norm", "mixed"} and all(scale is not None for scale in named.values())
    scale = named["norm"]
    assert scale is not None and scale[-2:].min() > 3 * scale[:-2].max()
    # through Softmax's product into the layer that makes the values
    before, after = (g.const(g.producer()["v"].inputs[1]) for g in (graph, done.graph))
    assert before is not None and after is not None
    factor = named["mixed"]
    assert factor is not None and not np.allclose(np.abs(after).max(0), np.abs(before).max(0))


def test_integers_come_closer_and_the_judge_says_so() -> None:
    graph, target = attention(), Target()
    judge = Judge(graph, feeds(4, seed=2), feeds(8))
    network = Candidate(graph, place(graph, target), Quantize(), target.numerics)
    terms = QuantisationSetup(judge, Calibrate(method="minmax"), network, target, corrected=False)
    done = prepare(graph, Equalize(scale="off", absorb="off"), terms)
    before, after = terms.error(graph), terms.error(done.graph)
    assert after < 0.7 * before
    whole = done.trials[-1]
    assert whole.correction == "smooth" and whole.kept and whole.before == before and whole.after == after
    assert [t.change > 1 for t in done.trials[:-1]] == [True, True]
    assert not prepare(graph, Equalize("off", "off", "off"), terms).trials


@pytest.mark.parametrize(
    ("graph", "reason"),
    [
        (attention(residual=True), "other operators read it, too"),
        (attention(clip=(-3.0, 3.0)), "/norm clips"),
    ],
)
def test_what_cannot_fold_is_left_as_it_is(graph: Graph, reason: str) -> None:
    done = smooth(graph, Quantize(), USUAL, feeds(4), 1024.0)
    (place,) = (one for one in done.places if one.value == "norm")
    assert place.obstacle == reason
    assert graph.const("gamma.c") is done.graph.const("gamma.c")


def test_a_network_without_a_value_of_its_own_to_migrate_stays() -> None:
    windows = Net(0, 1, 2, 8, 8)                        # layers of windows: no place at all
    windows.conv("first", "x", 4)
    windows.conv("second", "first", 3)
    flat = Net(0, ROWS, WIDTH)                          # one layer that reads the input: a place, refused
    flat.gemm("only", "x", WIDTH)
    for net, values in ((windows, []), (flat, ["x"])):
        graph = net.graph(net.nodes[-1].outputs[0])
        rows = [{"x": np.ones(graph.type("x").shape, np.float32)}]
        done = smooth(graph, Quantize(), USUAL, rows, 1024.0)
        assert done.graph == graph and not any(scale is not None for scale in done.scales)
        assert [one.value for one in done.places] == values and all(one.obstacle for one in done.places)


def test_outputs_and_inputs_of_the_network_stay() -> None:
    net = Net(0, ROWS, WIDTH)
    net.gemm("first", "x", WIDTH)
    net.gemm("second", "first", WIDTH)
    graph = net.graph("first", "second")
    done = smooth(graph, Quantize(Weights(bits=4)), USUAL, feeds(4), 1024.0)
    assert {one.value: bool(one.obstacle) for one in done.places} == {"x": True, "first": True}
    assert [one.value for one in places(graph)] == ["x", "first"]


def test_channels_in_front_of_a_flattening_are_scaled_by_none_that_differ_within_one() -> None:
    """The layer behind has a term for every element, the convolution in front a number for every channel."""
    weights = {"w": normal(3, 4, 3, 3, 3, scale=0.2), "g": normal(4, 64, 5, scale=0.2)}
    weights["g"][::7] *= 40
    body = "a = Conv<kernel_shape=[3,3]>(x, w) b = Relu(a) c = Flatten(b) y = MatMul(c, g)"
    graph = graph_of(model("float[1,3,6,6] x => float[1,5] y", body, weights))
    samples = [{"x": normal(seed, 1, 3, 6, 6)} for seed in range(6)]
    scheme = Quantize(weights=Weights(bits=4, per="tensor"))
    done = smooth(rewrite(graph).graph, scheme, USUAL, samples, 1024.0)
    (place,) = (one for one in done.places if one.value == "c")
    assert "elements would be scaled differently" in place.obstacle
    for a, b in zip(outputs_of(graph, samples), outputs_of(done.graph, samples), strict=True):
        np.testing.assert_allclose(a[0], b[0], rtol=1e-3, atol=1e-3)
