"""Fake quantisation in one session, against the same arithmetic in numpy node by
node, and against the integers."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest

from npuflow.hw.target import Numerics
from npuflow.ir.codes import encode
from npuflow.ir.graph import Graph
from npuflow.ir.types import Array, QuantType
from npuflow.quantise.config import Activations, Override, Quantize, Weights
from npuflow.quantise.graph import build
from npuflow.rounders import RoundedWeight
from npuflow.strategies import FLOAT, NARROW, OWN, WIDE, Levels
from npuflow.tune.error import outputs_of
from npuflow.tune.precision.fakequant import FakeQuant, unclipped_steps
from npuflow.tune.precision.harness import Harness
from npuflow.tune.precision.levels import LevelTypes
from tests.networks.floats import Net, integers
from tests.precision.harnesses import BOTH, harness_of, mixed_net

FOUR = Numerics(weight_bits=(4, 8), activation_bits=(8, 16))
SCHEMES = {
    "usual": Quantize(),
    "per tensor": Quantize(weights=Weights(per="tensor"), activations=Activations(symmetric=True)),
    "few bits": Quantize(weights=Weights(bits=4), activations=Activations(bits=6)),
    "exceptions": Quantize(overrides=(Override(("sum",), bits=16), Override(("c2",), weight_bits=16))),
    "float layer": Quantize(overrides=(Override(("gate",), float=True),)),
}


def fake(array: Array, quant: QuantType) -> Array:
    """Round to the grid, clamp to its ends: in numpy, float64."""
    code = np.clip(np.rint(array / quant.scale[0]) + quant.zero_point[0], quant.lo, quant.hi)
    return np.asarray((code - quant.zero_point[0]) * quant.scale[0], np.float32)


def fake_weight(weight: Array, bits: int, per_channel: bool) -> Array:
    """Symmetric codes by the largest magnitude, channel by channel or for the whole array."""
    rows = weight.reshape(weight.shape[0] if per_channel else 1, -1).astype(np.float64)
    lo, hi = -(1 << (bits - 1)), (1 << (bits - 1)) - 1
    step = np.maximum(rows.max(1) / hi, rows.min(1) / lo).astype(np.float32).astype(np.float64)[:, None]
    return np.asarray(np.clip(np.rint(rows / step), lo, hi) * step, np.float32).reshape(weight.shape)


def node_by_node(
    graph: Graph, feed: Mapping[str, Array], types: Mapping[str, QuantType], weights: Mapping[str, Array]
) -> dict[str, Array]:
    """Every value, quantised where it has a type."""
    found = {k: fake(v, types[k]) if k in types else v for k, v in feed.items()}
    for node in graph.nodes:
        given = [found[i] if i in found else weights.get(i, graph.const(i)) for i in node.inputs]
        for name, array in zip(node.outputs, node.op.clipped(*given), strict=True):
            found[name] = fake(array, types[name]) if name in types else array
    return found


def run(harness: Harness, levels: Levels) -> list[list[Array]]:
    return harness.fake.run(harness.judge.held, *harness.mixture(levels))


@pytest.mark.parametrize("name", list(SCHEMES))
def test_it_is_numpy_fake_quantisation_of_every_node(name: str) -> None:
    """Within one step for one value in a hundred: float32 sums decide ties differently."""
    scheme = SCHEMES[name]
    harness = harness_of(mixed_net(), scheme=scheme)
    graph, types = harness.network.graph, harness.network.types(harness.ranges)
    kept = {v for group in harness.network.groups for v in group}
    weights = {}
    for one in harness.network.weights:
        layer = graph.nodes[one.node].outputs[0]
        bits = 16 if name == "exceptions" and layer == "c2" else scheme.weights.bits
        real = graph.const(one.value)
        assert real is not None
        weights[one.value] = fake_weight(real, bits, scheme.weights.per == "channel")
    made = run(harness, (NARROW,) * len(harness.names))
    for s, feed in enumerate(harness.judge.held):
        wanted = node_by_node(graph, feed, {v: t for v, t in types.items() if v in kept}, weights)
        for k, output in enumerate(graph.outputs):
            steps = np.abs(made[k][s] - wanted[output]) / types[output].scale[0]
            assert steps.max() < 1.01 and (steps > 0.01).mean() < 0.03, (output, s)
    assert ("gate.w" in weights) == (name != "float layer") and "gate" in kept    # the NPU's Sigmoid reads it


@pytest.mark.parametrize("name", ["usual", "per tensor", "few bits", "exceptions"])
def test_it_foretells_the_integer_reference(name: str) -> None:
    """Requantisation and tables are not modelled: the noise agrees within 1 dB, values within three steps."""
    harness = harness_of(mixed_net(), scheme=SCHEMES[name])
    graph, levels = harness.network.graph, (NARROW,) * len(harness.names)
    types = harness.network.types(harness.ranges)
    made, whole = run(harness, levels), harness.built(levels)
    exact = [integers(whole, dict(feed), BOTH) for feed in harness.judge.held]
    for k, output in enumerate(graph.outputs):
        there = [e[output] for e in exact]
        real = [harness.judge.truth[k][s] for s in range(len(harness.judge.held))]
        steps = np.abs(np.array(there) - np.array(made[k])) / types[output].scale[0]
        assert steps.max() < 3.01, output
        noise = [float(((np.array(a) - np.array(real)) ** 2).sum()) for a in (there, made[k])]
        assert abs(10 * np.log10(noise[0] / noise[1])) < 1.0, output


def test_the_host_reads_what_the_npu_has_not_made_without_rounding() -> None:
    """Positions in a table are an input that a layer of the NPU may read as well."""
    net = Net(5, 1, 4, 8, 8)
    net.conv("coded", "x", 4)
    net.conv("plain", "x", 4)
    graph = net.graph("coded", "plain")
    scheme = Quantize(overrides=(Override(("plain",), float=True),))
    harness = harness_of(graph, {"x": (-0.01, 0.01)}, scheme)
    levels = (NARROW,) * len(harness.names)
    coded, plain = run(harness, levels)
    whole = outputs_of(harness.built(levels), harness.judge.held)
    for s in range(len(harness.judge.held)):
        np.testing.assert_allclose(plain[s], harness.judge.truth[1][s], rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(plain[s], whole[1][s], rtol=1e-5, atol=1e-6)
        assert np.abs(coded[s] - harness.judge.truth[0][s]).max() > 0.1


def test_inputs_that_are_codes_are_rounded_for_the_host_too() -> None:
    net = Net(5, 1, 4, 8, 8)
    net.conv("coded", "x", 4)
    net.conv("plain", "x", 4)
    scheme = Quantize(overrides=(Override(("plain",), float=True),), inputs="integer")
    harness = harness_of(net.graph("coded", "plain"), {"x": (-0.01, 0.01)}, scheme)
    levels = (NARROW,) * len(harness.names)
    made, whole = run(harness, levels)[1], outputs_of(harness.built(levels), harness.judge.held)[1]
    for s in range(len(harness.judge.held)):
        np.testing.assert_allclose(made[s], whole[s], rtol=1e-4, atol=1e-5)
        assert np.abs(made[s] - harness.judge.truth[1][s]).max() > 0.1


def test_unclipped_quantisers_change_nothing() -> None:
    harness = harness_of(mixed_net())
    for made, truth in zip(run(harness, (FLOAT,) * len(harness.names)), harness.judge.truth, strict=True):
        for a, b in zip(made, truth, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
    assert (unclipped_steps(harness.table(NARROW))[:, 0] > 0).all()


def test_any_mixture_runs_in_the_same_session() -> None:
    """A table per mixture: each unit's noise falls with its bits, and a table says
    what a group's quantiser is."""
    harness = harness_of(mixed_net())
    count = len(harness.names)
    made = [run(harness, (level,) * count) for level in (NARROW, WIDE, FLOAT)]
    noise = [float(harness.judge.noise(one).mean()) for one in made]
    assert noise[0] > 50 * noise[1] > 0 and noise[1] > 10 * noise[2]
    session = harness.fake
    k = next(i for i, group in enumerate(harness.network.groups) if "sum" in group)
    levels = tuple(FLOAT if i != k else NARROW for i in range(count))
    alone = float(harness.judge.noise(run(harness, levels)).mean())
    assert noise[2] < alone < noise[0] and harness.fake is session
    quant = harness.network.types(harness.ranges)["sum"]
    step, low, high, _ = harness.table(NARROW)[k].tolist()
    assert (step, low, high) == (
        quant.scale[0],
        quant.lo - quant.zero_point[0],
        quant.hi - quant.zero_point[0],
    )


def test_probes_show_values_inside() -> None:
    harness = harness_of(mixed_net())
    fake = FakeQuant(harness.network, ["heat"])
    shown = fake.run(harness.judge.held[:2], harness.table(NARROW), probes=True)
    assert len(shown) == 1 and shown[0][0].shape == harness.network.graph.type("heat").shape
    quant = harness.network.types(harness.ranges)["heat"]
    codes = shown[0][0] / quant.scale[0]
    np.testing.assert_allclose(codes, np.rint(codes), atol=1e-3)


@pytest.mark.parametrize("usual", [8, 4])
def test_codes_of_a_width_that_a_search_may_choose_bring_their_bias(usual: int) -> None:
    """The mean of what rounding does to a layer is in its bias, whichever width is the recipe's."""
    harness = harness_of(mixed_net(), scheme=Quantize(weights=Weights(bits=usual)), numerics=FOUR)
    harness.types = LevelTypes((4,))
    j = next(j for j, one in enumerate(harness.network.weights) if one.value == "c1.w")
    quant = harness.network.weight_quant(harness.network.weights[j], 4)
    real = harness.network.graph.const("c1.w")
    assert real is not None
    shift = np.linspace(-1, 1, 8)
    codes = {"c1.w" if usual == 4 else "c1.w@4": RoundedWeight(encode(real, quant), quant, "c1.b", shift)}
    network = harness.network.with_(weights=codes)
    first = len(network.groups)
    own, plain = (
        Harness(one, harness.wide_ranges, harness.judge, harness.types) for one in (network, harness.network)
    )
    assert own.network.coded(network.weights[j], 4).keys() == {"c1.w", "c1.b"}
    noise, without = (float(one.together([first + j], OWN, 4).mean()) for one in (own, plain))
    assert noise > 3 * without                              # this shift is an error of its own


def test_codes_that_the_target_lacks_are_not_what_fake_quantisation_rounds_to() -> None:
    """A model states per-channel weights, scales and zero points for a target of powers of two: both networks
    have the target's types, and ranges as they were observed."""
    graph = mixed_net()
    powers = Numerics(power_of_two=True, multiplier_bits=1, per_channel_weights=False)
    plain = harness_of(graph, numerics=powers).network
    stated = {
        "x": QuantType(8, True, (0.3,), (3,)),
        "c1.w": QuantType(8, True, tuple(0.01 * (i + 1) for i in range(8)), (0,) * 8, axis=0),
    }
    network = plain.with_(stated=stated)
    ranges = network.candidate.ranges
    np.testing.assert_array_equal(network.table(ranges), plain.table(ranges))
    weight = next(one for one in network.weights if one.value == "c1.w")
    assert network.weight_quant(weight) == plain.weight_quant(weight)
    made = build(network.candidate).graph
    assert made.values["x:q"].quant == network.types(ranges)["x"]
