"""Equalisation and absorption leave the function as it is, reach their aim, and refuse with a reason."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from npuflow.hw.target import Numerics, Target
from npuflow.ir.graph import Graph
from npuflow.ir.op import OPS, Op
from npuflow.ir.text import from_text, to_text
from npuflow.ir.verify import verify
from npuflow.onnx.export import export_model
from npuflow.place.place import place
from npuflow.quantise.candidate import Candidate
from npuflow.quantise.config import Quantize, Weights
from npuflow.run.interpret import host_session, interpret
from npuflow.tune.correct.absorb import absorb
from npuflow.tune.correct.assess import QuantisationSetup
from npuflow.tune.correct.channel_ends import channel_ends
from npuflow.tune.correct.config import Equalize
from npuflow.tune.correct.equalize import equalise, scaled
from npuflow.tune.correct.groups import groups
from npuflow.tune.correct.prepare import prepare
from npuflow.tune.improve import NETWORK
from npuflow.tune.judge import Judge
from npuflow.tune.ranges.thresholds import Calibrate
from tests.networks.floats import USUAL, Array, Feed, Net, floats, quantised

BARE = Numerics(per_channel_clamp=False)
Clip = tuple[float, float] | None


def inverted(seed: int, clip: Clip = (0.0, 6.0)) -> Net:
    """Expand, depthwise, project, add, twice, then a head: as mobile networks are built."""
    net = Net(seed, 1, 3, 8, 8)
    source = net.conv("stem", "x", 4, spread=2.0)
    for i in (1, 2):
        wide = net.conv(f"e{i}", source, 8, 1, spread=2.0, clip=clip)
        deep = net.conv(f"d{i}", wide, 8, depthwise=True, spread=2.0, clip=clip, bias=i == 1)
        thin = net.conv(f"p{i}", deep, 4, 1, spread=2.0)
        source = net.add(f"s{i}", OPS["add"](), source, thin)
    net.add("pool", OPS["maxpool"]((2, 2), (2, 2), (1, 1), (0, 0, 0, 0)), source)
    net.add("relu", OPS["relu"](), "pool")
    net.add("mean", OPS["globalaveragepool"](), "relu")
    net.add("flat", OPS["reshape"]((1, 4)), "mean")
    net.gemm("logits", "flat", 5)
    return net


def by_onnxruntime(graph: Graph, feed: Feed) -> Array:
    session = host_session(export_model(graph))
    return np.asarray(session.run(list(graph.outputs), feed)[0], np.float64)


def unequal(graph: Graph, maker: str, reader: str) -> float:
    """How far the ranges on both sides of a value are apart, as a factor, in the worst channel."""
    made = np.abs(graph.const(node(graph, maker).inputs[1]))        # type: ignore[arg-type]
    read = np.abs(graph.const(node(graph, reader).inputs[1]))       # type: ignore[arg-type]
    before = made.reshape(len(made), -1).max(1)
    after = read.max((1, 2, 3)) if read.shape[1] == 1 else read.max((0, 2, 3))
    return float(np.exp(np.abs(np.log(before / after)).max()))


def node(graph: Graph, output: str):  # type: ignore[no-untyped-def]
    return graph.producer()[output]


@settings(deadline=None, max_examples=15)
@given(
    seed=st.integers(0, 10_000),
    clip=st.sampled_from([None, (0.0, float("inf")), (0.0, 6.0), (-1.0, 0.5), (0.25, 3.0)]),
)
def test_the_function_stays_what_it_was(seed: int, clip: Clip) -> None:
    net = inverted(seed, clip)
    graph, feeds = net.graph("logits"), [f for scale in (0.1, 1.0, 10.0) for f in net.feeds(2, mean=scale)]
    equal = equalise(graph, USUAL, 20, 1e6).graph
    lower = absorb(equal, USUAL, feeds[:1]).graph            # exact on samples that it has not seen, too
    for changed in (equal, lower):
        verify(changed, "a correction")
        assert from_text(to_text(changed), changed.consts) == changed
        for feed in feeds:
            wanted = floats(graph, feed)["logits"].astype(np.float64)
            size = np.abs(wanted).max()
            assert np.abs(floats(changed, feed)["logits"] - wanted).max() < 2e-4 * size
            assert np.abs(by_onnxruntime(changed, feed) - wanted).max() < 2e-4 * size


def test_ranges_around_every_value_become_equal() -> None:
    graph = inverted(7).graph("logits")
    done = equalise(graph, USUAL, 200, 1e9)
    assert all(not g.obstacle for g in done.groups) and len(done.groups) == 5
    for maker, reader in (("e1", "d1"), ("d1", "p1"), ("e2", "d2"), ("d2", "p2")):
        assert unequal(graph, maker, reader) > 3
        assert unequal(done.graph, maker, reader) < 1.01
    assert isinstance(node(done.graph, "e1").op.clip[1], tuple) and node(done.graph, "e1").op.clip[0] == 0.0
    # everything that the additions tie together has one scale
    residual = done.groups[0]
    assert {layer.node.name for layer in residual.makers} == {"/stem", "/p1", "/p2"}
    assert {layer.node.name for layer in residual.readers} == {"/e1", "/e2", "/logits"}


def test_scales_stay_within_the_limit() -> None:
    done = equalise(inverted(7).graph("logits"), USUAL, 50, 1.5)
    found = np.concatenate([s for s in done.scales if s is not None])
    assert found.max() <= 1.5 + 1e-9 and found.min() >= 1 / 1.5 - 1e-9
    assert found.max() == pytest.approx(1.5)


def test_per_tensor_weights_lose_less_afterwards() -> None:
    net = inverted(3)
    graph, feeds = net.graph("logits"), net.feeds(12)
    config = Quantize(weights=Weights(per="tensor"))

    def error(changed: Graph) -> float:
        made = quantised(changed, feeds, config)
        pairs = [(floats(graph, f)["logits"], interpret(made, f, USUAL)["logits"]) for f in feeds]
        return float(sum(((a - b) ** 2).sum() for a, b in pairs))

    assert error(equalise(graph, USUAL, 40, 1e6).graph) < 0.5 * error(graph)


def weights(graph: Graph, output: str) -> Array:
    """Magnitudes of the weights of the layer that makes it."""
    return np.abs(graph.const(node(graph, output).inputs[1]))       # type: ignore[arg-type]


def test_values_have_a_share_in_the_balance() -> None:
    """The range of a tensor of values is for all channels alike, too: what is small in it has few codes."""
    net = inverted(3)
    net_values: dict[str, Array] = {}
    graph, feeds = net.graph("logits"), net.feeds(12)
    names = [v for group in groups(graph, USUAL) for v in group.values]
    for name, (low, high) in channel_ends(graph, names, feeds).items():
        net_values[name] = np.maximum(np.abs(low), np.abs(high))
        seen = np.concatenate([floats(graph, f)[name] for f in feeds])
        axes = tuple(d for d in range(seen.ndim) if d != 1)
        np.testing.assert_allclose(low, seen.min(axes), rtol=1e-4, atol=1e-4)
        np.testing.assert_allclose(high, seen.max(axes), rtol=1e-4, atol=1e-4)
    done = equalise(graph, USUAL, 400, 1e9, net_values)
    for group, scale in zip(done.groups, done.scales, strict=True):
        assert scale is not None
        peaks = [net_values[v] / scale for v in group.values]
        for maker in group.makers:
            weight = maker.rows(weights(done.graph, maker.node.outputs[0]))
            peaks.append(weight.reshape(len(weight), -1).max(1))
        before = np.max([one / one.max() for one in peaks], axis=0)
        after = np.zeros_like(before)
        for reader in group.readers:
            weight = reader.rows(weights(done.graph, reader.node.outputs[0]))
            rows = weight.reshape(*weight.shape[:2], -1).max(2) / weight.max()
            np.maximum.at(after, reader.channels(len(after), len(rows)), rows)
        assert float(np.abs(np.log(before / after)).max()) < 0.02
    for feed in feeds[:2]:
        np.testing.assert_allclose(
            floats(done.graph, feed)["logits"], floats(graph, feed)["logits"], rtol=1e-3, atol=1e-3
        )


def test_obstacles_are_told() -> None:
    net = Net(1, 1, 3, 6, 6)
    net.conv("a", "x", 4)
    net.add("curve", OPS["silu"](), "a")
    net.conv("b", "curve", 4)
    net.conv("c", "b", 4, clip=(0.0, 6.0))
    net.conv("d", "c", 4)
    net.conv("e", "d", 2)
    graph = net.graph("e", "d")
    found = {g.name: g.obstacle for g in groups(graph, BARE)}
    assert found["/b -> /c"] == ""
    assert "clamps all channels alike" in found["/c -> /d"]
    assert "output of the network" in found["/d -> /e"]
    reasons = [g.obstacle for g in groups(graph, USUAL)]
    assert reasons == ["", "", "it is an output of the network"]
    assert "/a -> /b" not in found                           # the curve keeps them apart: they share no value


def test_a_target_without_clamps_per_channel_keeps_its_clips() -> None:
    net = inverted(5)
    done = equalise(net.graph("logits"), BARE, 20, 1e6)
    assert node(done.graph, "e1").op.clip == (0.0, 6.0)
    assert [bool(g.obstacle) for g in done.groups] == [False, True, True, True, True]


def test_channels_that_a_common_clip_does_not_reach_are_scaled() -> None:
    """The bounds stay; what reaches one on samples keeps its scale, and so the network its function."""
    net = inverted(5)
    graph, feeds = net.graph("logits"), net.feeds(16)
    clipped = [n.outputs[0] for n in graph.nodes if n.op.clip == (0.0, 6.0)]
    ends = channel_ends(graph, clipped, feeds)
    done = equalise(graph, BARE, 20, 1e6, ends=ends)
    assert not any(g.obstacle for g in done.groups)
    assert all(node(done.graph, v).op.clip == (0.0, 6.0) for v in clipped)
    for group, scale in zip(done.groups, done.scales, strict=True):
        assert scale is not None
        for value in (v for v in group.values if v in ends):
            assert (scale[ends[value][1] * 1.5 >= 6.0] == 1.0).all()
            assert (ends[value][1] / scale <= 6.0 * (1 + 1e-6)).all()
    assert any(scale is not None and (scale != 1.0).any() for scale in done.scales[1:])
    for feed in feeds:
        made, real = floats(done.graph, feed)["logits"], floats(graph, feed)["logits"]
        np.testing.assert_allclose(made, real, rtol=1e-3, atol=1e-3)


def test_a_build_for_one_scale_a_tensor_scales_between_clips() -> None:
    """One channel of a depthwise chain is 64 times as small as the others, and what reads it 64 times as
    large: by 6 dB and more."""
    net = inverted(3)
    graph, feeds = net.graph("logits"), net.feeds(24)
    ends = channel_ends(graph, [n.outputs[0] for n in graph.nodes if n.op.clip == (0.0, 6.0)], feeds)
    for value, (_, high) in ends.items():
        group = next(g for g in groups(graph, BARE, ends) if value in g.values)
        graph = scaled(graph, group, np.where(np.arange(8) == high.argmin(), 64.0, 1.0), clips=False)
    target = Target(numerics=replace(USUAL, per_channel_clamp=False, per_channel_weights=False))
    judge = Judge(graph, feeds[:8], feeds[8:])
    scheme = Quantize(weights=Weights(per="tensor"))
    network = Candidate(graph, place(graph, target), scheme, target.numerics)
    setup = QuantisationSetup(judge, Calibrate(), network, target)
    done = prepare(graph, Equalize(absorb="off", smooth="off"), setup)
    assert any(t.kept and t.layer == NETWORK for t in done.trials)
    assert setup.error(done.graph) < 0.25 * setup.error(graph)


@pytest.mark.parametrize(("pad", "taken"), [(0, True), (1, False)])
def test_what_is_always_there_goes_to_the_readers(pad: int, taken: bool) -> None:
    net = Net(2, 1, 3, 6, 6)
    net.conv("a", "x", 4, 1)
    weight = net.const("b.w", net.rng.normal(size=(5, 4, 3, 3)))
    net.add("b", OPS["conv"]((3, 3), (1, 1), (1, 1), (pad,) * 4), "a", weight)
    feeds = net.feeds(4)
    net.const("a.b", [9.0, -9.0, 0.0, 30.0])                 # in place of the random bias
    graph = net.graph("b")
    done = absorb(graph, USUAL, feeds)
    (shift,) = done.shifts
    if not taken:
        assert shift is None and "pads with zeros" in done.groups[0].obstacle
        return
    least = np.min([floats(graph, f)["a"].min((0, 2, 3)) for f in feeds], axis=0)
    assert shift is not None and np.allclose(shift, np.maximum(least, 0.0), rtol=1e-5)
    after = np.min([floats(done.graph, f)["a"].min((0, 2, 3)) for f in feeds], axis=0)
    assert np.abs(after[[0, 3]]).max() < 1e-4 and len(node(done.graph, "b").inputs) == 3
    for feed in net.feeds(3, mean=3.0):
        assert np.allclose(floats(graph, feed)["b"], floats(done.graph, feed)["b"], atol=1e-3)


THROUGH = [OPS["relu"](), OPS["leakyrelu"](alpha=0.1), OPS["maxpool"]((2, 2), (1, 1), (1, 1), (0, 0, 0, 0)),
           OPS["averagepool"]((3, 3), (1, 1), (1, 1), (1, 1, 1, 1)), OPS["globalmaxpool"](),
           OPS["add"](clip=(0.0, float("inf")))]
AGAINST = [OPS["sigmoid"](), OPS["hardswish"](), OPS["softmax"](axis=1), OPS["mul"](), OPS["exp"](),
           OPS["relu"](clip=(0.0, 6.0)), OPS["transpose"]((0, 1, 3, 2)), OPS["reshape"]((1, 8, 3, 6))]


@pytest.mark.parametrize(
    ("op", "passes"), [*((o, True) for o in THROUGH), *((o, False) for o in AGAINST)], ids=str
)
def test_what_scaled_channels_pass_through(op: Op, passes: bool) -> None:
    net = Net(1, 1, 3, 6, 6)
    net.conv("a", "x", 4)
    source = net.add("t", op, *(("a", "a") if type(op).__name__ in ("Add", "Mul") else ("a",)))
    net.conv("b", source, 2)
    joined = [g for g in groups(net.graph("b"), USUAL) if not g.obstacle]
    shape = net.values["t"].type.shape == net.values["a"].type.shape and type(op).__name__ == "Transpose"
    # a transposition inside a channel is none of its business
    assert bool(joined) is (passes or shape)


def test_a_constant_added_stands_in_the_way() -> None:
    net = Net(1, 1, 3, 6, 6)
    net.conv("a", "x", 4)
    net.add("t", OPS["add"](), "a", net.const("k", np.ones((1, 4, 1, 1))))
    net.conv("b", "t", 2)
    assert [g.name for g in groups(net.graph("b"), USUAL) if not g.obstacle] == []


def test_what_is_on_gives_one_network_for_every_width_of_weights() -> None:
    """So that statistics, which are taken of it, hold for all of them."""
    graph = inverted(3).graph("logits")
    feeds = inverted(3).feeds(6)
    table = Equalize(scale="on", absorb="on", smooth="off", rotate="off")
    made = []
    for bits in (4, 8):
        scheme = Quantize(weights=Weights(bits=bits, per="tensor"))
        target = Target(numerics=Numerics(weight_bits=(4, 8)))
        judge = Judge(graph, feeds[4:], feeds[:4])
        network = Candidate(graph, place(graph, target), scheme, target.numerics)
        terms = QuantisationSetup(judge, Calibrate(method="minmax"), network, target, False)
        made.append(prepare(graph, table, terms).graph)
    assert made[0].values.keys() == made[1].values.keys() and made[0].nodes == made[1].nodes
    for name in made[0].values:
        one, other = (graph.const(name) for graph in made)
        assert (one is None) == (other is None)
        assert one is None or (one == other).all()
    weights = [v for v in graph.consts if v not in made[0].consts]
    assert weights                                         # and it is not the one that went in
