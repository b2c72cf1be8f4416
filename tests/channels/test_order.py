"""Channels in an order in which a pattern of zeros costs less: the network stays what it was."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from npuflow.ir.graph import Graph
from npuflow.ir.op import OPS
from npuflow.tune.channels.order import exchanged, order_channels
from npuflow.tune.rounding.pruning import Prune
from tests.channels.test_removal import chain, joined, moments, residual
from tests.networks.floats import Net, floats


def blocks() -> tuple[Net, Graph]:
    """Two inverted residual blocks, their layers pointwise and depthwise."""
    net = Net(3, 1, 4, 6, 6)
    net.conv("stem", "x", 8, clip=(0.0, (1.0, 2.0) * 4))
    last = "stem"
    for k in range(2):
        net.conv(f"wide{k}", last, 24, 1, clip=(0.0, 6.0))
        net.conv(f"deep{k}", f"wide{k}", 24, depthwise=True, clip=(0.0, 6.0))
        net.conv(f"back{k}", f"deep{k}", 8, 1)
        net.add(f"sum{k}", OPS["add"](), f"back{k}", last)
        last = f"sum{k}"
    net.conv("head", last, 5, 1)
    return net, net.graph("head")


@pytest.mark.parametrize("network", [chain, residual, joined, blocks])
def test_the_network_computes_the_same(network: Callable[[], tuple[Net, Graph]]) -> None:
    net, graph = network()
    feeds = net.feeds(8)
    done = order_channels(graph, moments(graph, feeds), Prune(pattern="2:4", permute=True))
    moved = [one for one in done.trials if one.kept]
    assert moved and done.graph.consts.keys() != graph.consts.keys()
    (name,) = graph.outputs
    for feed in feeds:
        a, b = floats(graph, feed)[name], floats(done.graph, feed)[name]
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4)


def test_what_the_pattern_costs_falls_and_the_outputs_hold_more() -> None:
    net, graph = blocks()
    known = moments(graph, net.feeds(16))
    table = Prune(pattern="2:4", permute=True)
    done = order_channels(graph, known, table)
    moved = [one for one in done.trials if one.kept]
    assert len(moved) == 3                 # the stream between the blocks, and what is inside of each
    before, after = (sum(getattr(one, when) for one in moved) for when in ("before", "after"))
    assert after < 0.95 * before


def test_layers_that_are_left_out_have_no_say() -> None:
    net, graph = blocks()
    known = moments(graph, net.feeds(8))
    done = order_channels(graph, known, Prune(pattern="2:4", permute=True, layers=("/back1",)))
    assert len([one for one in done.trials if one.kept]) == 1
    assert order_channels(graph, known, Prune(pattern="rows", permute=True)).graph is graph


def test_channels_that_matter_are_spread() -> None:
    """Four channels of eight matter, and lie together: two of them end in each group."""
    losses = np.ones((8, 5), np.float32)
    losses[:4] = 100.0
    places = np.arange(8)
    before, after = exchanged(losses, places, 4, 2, 0)
    assert (before, after) == (5 * 202, 5 * 4)
    assert sorted(places.tolist()) == list(range(8)) and sum(places[:4] < 4) == 2
