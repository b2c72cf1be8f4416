"""Channels removed as a whole: coupled ones found from the operators, the network cut, readers refitted."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from npuflow.base.errors import RecipeError
from npuflow.ir.graph import Graph
from npuflow.ir.op import OPS
from npuflow.place.place import op_name
from npuflow.tune.channels.config import ChannelPruning, ChannelShare
from npuflow.tune.channels.coupled import coupled, read_by
from npuflow.tune.channels.labels import ChannelLabels
from npuflow.tune.channels.removal import ReaderMoments, remove_channels
from npuflow.tune.channels.shrink import without
from npuflow.tune.rounding.columns import ChosenColumns, columns
from npuflow.tune.rounding.layers import WeightedLayer
from npuflow.tune.rounding.moments import of_columns
from npuflow.tune.rounding.rounded import matrix
from tests.networks.floats import Feed, Net, floats

RELU = (0.0, float("inf"))


def chain() -> tuple[Net, Graph]:
    """Two layers after each other, a depthwise one between them."""
    net = Net(0, 1, 4, 6, 6)
    net.conv("stem", "x", 16, clip=(0.0, (1.0, 2.0) * 8))
    net.conv("deep", "stem", 16, depthwise=True, clip=RELU)
    net.conv("last", "deep", 5, 1)
    return net, net.graph("last")


def residual() -> tuple[Net, Graph]:
    """A sum of two layers, gated by a scale of each channel, pooled and flattened for a product."""
    net = Net(1, 1, 3, 6, 6)
    net.conv("stem", "x", 16)
    net.conv("branch", "stem", 16, clip=RELU)
    net.add("sum", OPS["add"](), "stem", "branch")
    net.add("pool", OPS["globalaveragepool"](), "sum")
    net.conv("squeeze", "pool", 8, 1, clip=RELU)
    net.conv("expand", "squeeze", 16, 1)
    net.add("gate", OPS["sigmoid"](), "expand")
    net.add("scaled", OPS["mul"](), "sum", "gate")
    net.add("times", OPS["mul"](), "scaled", net.const("factors", net.rng.normal(size=(1, 16, 1, 1))))
    net.add("flat", OPS["reshape"]((1, 16 * 36)), "times")
    net.gemm("head", "flat", 4)
    return net, net.graph("head")


def joined() -> tuple[Net, Graph]:
    """Two layers one behind the other in a concatenation, transposed for a product."""
    net = Net(2, 1, 3, 4, 4)
    net.conv("left", "x", 8)
    net.conv("right", "x", 16, 1)
    net.add("both", OPS["concat"](1), "left", "right")
    net.add("rows", OPS["transpose"]((0, 2, 3, 1)), "both")
    net.add("product", OPS["matmul"](), "rows", net.const("m", net.rng.normal(size=(24, 6))))
    return net, net.graph("product")


NETWORKS = [chain, residual, joined]


def moments(graph: Graph, feeds: list[Feed]) -> dict[int, ReaderMoments]:
    """Of every layer, on all places of some samples."""
    made = [floats(graph, feed) for feed in feeds]
    found = {}
    for index, node in enumerate(graph.nodes):
        places = node.op.places(graph.site(node))
        if not places:
            continue
        own = node.inputs[2] if len(node.inputs) > 2 else ""
        layer = WeightedLayer(index, node.name, node.inputs[1], node.inputs[0], own, 10, places)
        every = ChosenColumns(np.arange(places))
        seen = of_columns([columns(graph, layer, one[node.inputs[0]], every) for one in made], 10)
        assert seen is not None
        one = matrix(graph, index, layer.weight, (node.name,), op_name(node))
        found[index] = ReaderMoments(layer, one, seen, None)
    return found


def groups(graph: Graph) -> dict[str, str]:
    """The obstacle of every group, by the layers that make its channels."""
    return {one.name(graph): one.obstacle for one in coupled(ChannelLabels.of(graph))}


def test_groups_are_those_that_operators_couple() -> None:
    reached = "it reaches an output of the network"
    assert groups(chain()[1]) == {"/stem, /deep": "", "/last": reached}
    assert groups(residual()[1]) == {"/stem, /branch, /expand": "", "/squeeze": "", "/head": reached}
    assert groups(joined()[1]) == {"/left": "", "/right": "", "/product": reached}


@pytest.mark.parametrize("network", NETWORKS)
def test_a_network_without_channels_is_the_one_whose_readers_have_zeros_there(
    network: Callable[[], tuple[Net, Graph]],
) -> None:
    """Every other channel of every group that can be pruned."""
    net, graph = network()
    labels = ChannelLabels.of(graph)
    gone = {label for one in coupled(labels) if not one.obstacle for label in one.labels[::2]}
    zeros = {}
    for node in graph.nodes:
        read = read_by(labels, node)
        weight = graph.const(node.inputs[1]) if len(node.inputs) > 1 else None
        if len(read) and weight is not None:
            axis = node.op.group_axis(graph.site(node), 1)
            keep = ~np.isin(read, list(gone))
            shape = [-1 if d == axis else 1 for d in range(weight.ndim)]
            zeros[node.outputs[0]] = {1: weight * keep.reshape(shape)}
    whole = without(graph, lambda node: labels.cut(node, set()), zeros)
    less = without(graph, lambda node: labels.cut(node, gone), {})
    size = sum(one.size for one in whole.consts.values())
    assert sum(one.size for one in less.consts.values()) < 0.75 * size
    for feed in net.feeds(3):
        np.testing.assert_allclose(
            floats(less, feed)[graph.outputs[0]], floats(whole, feed)[graph.outputs[0]], 1e-4, 1e-4
        )


def error(graph: Graph, less: Graph, feeds: list[Feed]) -> float:
    name = graph.outputs[0]
    pairs = [(floats(graph, feed)[name], floats(less, feed)[name]) for feed in feeds]
    return float(sum(((a - b) ** 2).sum() for a, b in pairs) / sum((a**2).sum() for a, _ in pairs))


@pytest.mark.parametrize("network", NETWORKS)
def test_a_refit_brings_outputs_closer(network: Callable[[], tuple[Net, Graph]]) -> None:
    net, graph = network()
    known = moments(graph, net.feeds(40))
    done = remove_channels(graph, known, ChannelPruning(share=0.5, multiple=2))
    fresh = net.feeds(10)
    assert error(graph, done.graph, fresh) < 0.9 * error(graph, done.plain, fresh)
    assert done.masks and all(not mask.all() for mask in done.masks.values())


def test_a_channel_that_others_repeat_goes_first_and_costs_nothing() -> None:
    net, graph = chain()
    weight = np.array(graph.const("stem.w"))
    weight[8:] = weight[:8]
    bias = np.array(graph.const("stem.b"))
    bias[8:] = bias[:8]
    net.const("stem.w", weight)
    net.const("stem.b", bias)
    deep = np.array(graph.const("deep.w"))
    deep[8:] = deep[:8]
    net.const("deep.w", deep)
    net.const("deep.b", np.full(16, 2.0))            # no channel that samples never see active
    twins = net.graph("last")
    known = moments(twins, net.feeds(20))
    table = ChannelPruning(share=0.5, multiple=1, damp=1e-6)
    done = remove_channels(twins, known, table)
    assert error(twins, done.graph, net.feeds(5)) < 1e-4


def test_shares_of_layers_and_multiples() -> None:
    net, graph = residual()
    known = moments(graph, net.feeds(8))
    table = ChannelPruning(share=0.4, multiple=4, overrides=(ChannelShare(("/squeeze",), 0.5),))
    done = remove_channels(graph, known, table)
    kept = {t.layer: t.change for t in done.trials if t.correction == "prune" and t.kept}
    assert kept == {"/stem, /branch, /expand": 0.25, "/squeeze": 0.5}
    skipped = remove_channels(graph, known, ChannelPruning(share=0.5, skip=("/branch",), multiple=4))
    assert {t.layer for t in skipped.trials if t.correction == "prune" and t.kept} == {"/squeeze"}


def test_magnitude_takes_the_smallest_rows() -> None:
    net, graph = chain()
    weight = np.array(graph.const("stem.w"))
    weight[[1, 4, 7, 9]] *= 1e-3
    net.const("stem.w", weight)
    deep = np.array(graph.const("deep.w"))
    deep[[1, 4, 7, 9]] *= 1e-3
    net.const("deep.w", deep)
    table = ChannelPruning(share=0.25, multiple=1, method="magnitude", refit=False)
    done = remove_channels(net.graph("last"), {}, table)
    gone = np.flatnonzero(~done.masks["stem.w"].any(axis=(1, 2, 3)))
    assert gone.tolist() == [1, 4, 7, 9]


def test_layers_that_are_named_and_cannot_lose_channels_are_one_clear_error() -> None:
    net, graph = chain()
    with pytest.raises(RecipeError) as caught:
        remove_channels(graph, moments(graph, net.feeds(2)), ChannelPruning(layers=("/last",)))
    (fault,) = caught.value.faults()
    assert '"/last" cannot be removed' in fault.message and "output of the network" in fault.because


def test_a_reader_without_moments_keeps_its_channels() -> None:
    _, graph = chain()
    with pytest.raises(RecipeError) as caught:
        remove_channels(graph, {}, ChannelPruning())
    assert "no channels of this network" in caught.value.faults()[0].message


def test_an_operator_that_mixes_channels_keeps_them() -> None:
    net = Net(4, 1, 3, 4, 4)
    net.conv("a", "x", 8)
    net.add("soft", OPS["softmax"](1), "a")
    net.conv("b", "soft", 8)
    net.conv("c", "b", 4)
    found = groups(net.graph("c"))
    assert "/soft reads it" in found["/a"] and found["/b"] == ""
