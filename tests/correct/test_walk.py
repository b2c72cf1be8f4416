"""The walk gives what one run of the whole network gives, wherever it stops on the way."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from npuflow.hw.target import Numerics
from npuflow.quantise.config import Override, Quantize
from npuflow.testing.quantised import quantize_graph
from npuflow.tune.bias import correct_biases
from npuflow.tune.walk import SampleWalk
from tests.networks.floats import Net, floats, integers, quantised


def forked(seed: int) -> Net:
    """Two branches that meet again, so that values outlive several layers."""
    from npuflow.ir.op import OPS

    net = Net(seed, 1, 3, 6, 5)
    net.conv("a", "x", 4, clip=(0.0, 6.0))
    net.conv("b", "a", 4)
    net.add("s", OPS["sigmoid"](), "b")
    net.add("m", OPS["mul"](), "b", "s")
    net.add("y", OPS["add"](), "a", "m")
    net.conv("z", "y", 2, 1)
    return net


@settings(deadline=None, max_examples=10)
@given(
    seed=st.integers(0, 1000),
    stops=st.lists(st.integers(0, 8), max_size=5),
    ports=st.sampled_from(["float", "integer"]),
)
def test_any_stops_give_the_same_bytes(seed: int, stops: list[int], ports: str) -> None:
    net = forked(seed)
    graph, feeds = net.graph("z", "b"), net.feeds(3)
    made = quantised(graph, feeds, Quantize(inputs=ports, outputs=ports))  # type: ignore[arg-type]
    for one in (graph, made):
        whole, parts = SampleWalk(one, feeds), SampleWalk(one, feeds)
        whole.to(len(one.nodes))
        for stop in sorted(stops):
            parts.to(min(stop, len(one.nodes)))
        parts.to(len(one.nodes))
        for out in one.outputs:
            assert all(
                np.array_equal(a, b) for a, b in zip(whole.values[out], parts.values[out], strict=True)
            )


def test_it_computes_what_the_specifications_say() -> None:
    net = forked(1)
    graph, feeds = net.graph("z"), net.feeds(3)
    made = quantised(graph, feeds)
    for one, truth in ((graph, floats), (made, integers)):
        walk = SampleWalk(one, feeds)
        walk.to(len(one.nodes))
        for feed, found in zip(feeds, walk.real("z", walk.values["z"]), strict=True):
            step = 2.1 * made.values["z:q"].quant.scale[0] if one is made else 1e-4  # type: ignore[union-attr]
            assert np.abs(truth(one, feed)["z"] - found).max() < step


def test_layers_in_floats_beside_integers_are_walked_and_corrected() -> None:
    """numpy has no bfloat16: such values are float32 between two stretches, with the same numbers."""
    net = forked(4)
    graph, feeds = net.graph("z", "b"), net.feeds(6)
    spans = {k: (float(a.min()), float(a.max())) for k, a in floats(graph, feeds[0]).items()}
    numerics = Numerics(float_types=("bfloat16",))
    config = Quantize(overrides=(Override(("b", "s"), type="bf16"),))
    made = quantize_graph(graph, lambda _: True, spans, config, numerics).graph
    whole, parts = SampleWalk(made, feeds), SampleWalk(made, feeds)
    whole.to(len(made.nodes))
    for stop in range(1, len(made.nodes) + 1):
        parts.to(stop)
    for out in made.outputs:
        for a, b in zip(whole.values[out], parts.values[out], strict=True):
            np.testing.assert_array_equal(a, b)
    found = correct_biases(graph, made, numerics, feeds[:4], feeds[4:])
    assert {trial.layer for trial in found.trials} >= {"/a", "/z"} and len(found.trials) == 3


def test_only_what_is_still_read_is_kept() -> None:
    net = forked(2)
    graph = net.graph("z")
    walk = SampleWalk(graph, net.feeds(2))
    walk.to(2, keep=("b",))
    assert set(walk.values) == {"a", "b"}
    ahead = walk.ahead(4, ("m",), samples=slice(0, 1))
    assert list(ahead) == ["m"] and len(ahead["m"]) == 1 and walk.at == 2
    walk.to(len(graph.nodes))
    assert set(walk.values) == {"z"}
