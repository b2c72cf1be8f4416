"""LayerBlock reconstruction: blocks of a graph, gradients by difference quotients, what a descent keeps."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from npuflow.hw.target import Numerics
from npuflow.ir.graph import Graph
from npuflow.ir.op import OPS
from npuflow.quantise.config import Weights
from npuflow.quantise.types import weight_type
from npuflow.rounders import RoundedWeight
from npuflow.tune.error import noise, outputs_of
from npuflow.tune.judge import Judge
from npuflow.tune.rounding.block_pass import BlockPass, LayerRows
from npuflow.tune.rounding.blocks import LayerBlock, blocks
from npuflow.tune.rounding.layers import WeightedLayer
from npuflow.tune.rounding.reconstruct import Descent, reconstructed
from npuflow.tune.rounding.rounded import matrix
from npuflow.tune.rounding.weights import to_nearest, with_weights
from tests.networks.floats import Net, floats

TOP = float("inf")


def residual(seed: int = 1) -> Graph:
    """A stem, a residual block with a depthwise layer and a sigmoid, a layer, a classifier behind a mean."""
    net = Net(seed, 1, 4, 6, 6)
    net.conv("stem", "x", 6, clip=(0.0, 6.0))
    net.conv("wide", "stem", 12, 1, clip=(0.0, TOP))
    net.conv("deep", "wide", 12, depthwise=True)
    net.add("gate", OPS["sigmoid"](), "deep")
    net.add("silu", OPS["mul"](), "deep", "gate")
    net.conv("back", "silu", 6, 1)
    net.add("sum", OPS["add"](), "back", "stem")
    net.conv("next", "sum", 5, 1, bias=False)
    net.add("mean", OPS["globalaveragepool"](), "next")
    net.add("flat", OPS["reshape"]((1, 5)), "mean")
    net.gemm("last", "flat", 3)
    return net.graph("last")


def weighted(graph: Graph) -> list[tuple[WeightedLayer, Any]]:
    found = []
    for at, node in enumerate(graph.nodes):
        if node.op.places(graph.site(node)):
            bias = node.inputs[2] if len(node.inputs) > 2 else ""
            layer = WeightedLayer(at, node.name, node.inputs[1], node.inputs[0], bias, 8, 4)
            found.append((layer, matrix(graph, at, node.inputs[1], (node.name,), node.op.onnx)))
    return found


def rounded_to_nearest(graph: Graph, bits: int) -> dict[str, RoundedWeight]:
    found = {}
    for layer, source in weighted(graph):
        quant = weight_type(source.tensor, source.axis, Weights(bits=bits), Numerics(), None)
        shift = np.zeros(len(graph.const(layer.bias))) if layer.bias else None   # type: ignore[arg-type]
        found[layer.weight] = to_nearest(graph, layer.weight, quant, layer.bias, shift)
    return found


def test_a_residual_block_is_whole_and_plain_layers_come_together() -> None:
    graph = residual()
    own = [one.node for one, _ in weighted(graph)]
    found = list(blocks(graph, own, 3))
    names = [[graph.nodes[i].name for i in one.layers] for one in found]
    assert names == [["/stem"], ["/wide", "/deep", "/back", "/next"], ["/last"]] or names == [
        ["/stem"], ["/wide", "/deep", "/back"], ["/next"], ["/last"],
    ]
    assert [(one.source, one.result) for one in found][:2] == [("x", "stem"), ("stem", "sum")]
    pool = next(i for i, node in enumerate(graph.nodes) if node.op.onnx == "GlobalAveragePool")
    assert not any(one.first <= pool < one.stop for one in found)     # no gradient is known of it
    assert not list(blocks(graph, [], 3))


@pytest.mark.parametrize("tensor", ["sum", "flat", "last"])
def test_a_pass_is_the_float_network(tensor: str) -> None:
    graph = residual()
    values = floats(graph, Net(1, 1, 4, 6, 6).feeds(1)[0])
    stop = next(i for i, node in enumerate(graph.nodes) if tensor in node.outputs) + 1
    made = BlockPass(graph, LayerBlock(0, stop, "x", tensor, ())).forward(values["x"], {})
    np.testing.assert_allclose(made[tensor], values[tensor], rtol=2e-5, atol=2e-5)


def test_gradients_are_those_of_difference_quotients() -> None:
    graph = residual(4)
    feed = Net(7, 1, 4, 6, 6).feeds(1)[0]
    block = LayerBlock(0, 8, "x", "next", (0, 1, 2, 5, 7))
    walk, rng = BlockPass(graph, block), np.random.default_rng(0)
    now = {at: walk.affine(at) for at in block.layers}
    made = walk.forward(feed["x"], now)
    slope = rng.normal(size=made["next"].shape).astype(np.float32)
    gradients = walk.backward(made, slope, now)
    assert set(gradients) == set(block.layers)
    for at in block.layers:
        rows, bias = now[at].rows, now[at].bias
        towards = rng.normal(size=rows.shape).astype(np.float32)
        ends = []
        for far in (1e-3, -1e-3):
            moved = {**now, at: LayerRows((rows + np.float32(far) * towards).astype(np.float32), bias)}
            ends.append(float((walk.forward(feed["x"], moved)["next"].astype(np.float64) * slope).sum()))
        along = float((gradients[at].rows * towards).sum())
        assert (ends[0] - ends[1]) / 2e-3 == pytest.approx(along, rel=0.02)
        if bias is not None:
            shifted = {**now, at: LayerRows(rows, bias + np.float32(1e-3))}
            back = {**now, at: LayerRows(rows, bias - np.float32(1e-3))}
            ends = [
                float((walk.forward(feed["x"], one)["next"].astype(np.float64) * slope).sum())
                for one in (shifted, back)
            ]
            found = gradients[at].bias
            assert found is not None
            assert (ends[0] - ends[1]) / 2e-3 == pytest.approx(float(found.sum()), rel=0.02)


def test_every_block_comes_closer_or_stays() -> None:
    graph = residual(2)
    fit, held = (Net(seed, 1, 4, 6, 6).feeds(count) for seed, count in ((11, 24), (12, 8)))
    start = rounded_to_nearest(graph, 3)
    layers = weighted(graph)
    keep = {"deep.w": np.random.default_rng(1).random((12, 1, 9)) < 0.6}
    start["deep.w"] = RoundedWeight(
        start["deep.w"].codes * keep["deep.w"].reshape(12, 1, 3, 3).astype(np.int8),
        start["deep.w"].quant, start["deep.w"].bias, start["deep.w"].shift,
    )
    table, seen, judge = Descent(steps=60, batch=8), [], Judge(graph, held, fit)
    found, trials = reconstructed(
        judge, layers, start, table, lambda at, many: seen.append((at, many)), keep
    )
    assert seen[-1][0] == seen[-1][1] == len(trials)
    assert all(one.kept == (one.after < one.before) for one in trials if one.before is not None)
    assert sum(one.kept for one in trials) >= 2
    truth = outputs_of(graph, held)[0]
    was, now = (noise(truth, outputs_of(with_weights(graph, one), held)[0]) for one in (start, found))
    assert now < 0.7 * was
    assert not found["deep.w"].codes.reshape(12, 1, 9)[~keep["deep.w"]].any()
    for name, one in found.items():
        assert one.quant == start[name].quant and one.codes.dtype == start[name].codes.dtype
        assert one.codes.min() >= one.quant.lo and one.codes.max() <= one.quant.hi
    again, _ = reconstructed(judge, layers, start, table, lambda at, many: None, keep)
    assert all((again[name].codes == one.codes).all() for name, one in found.items())
