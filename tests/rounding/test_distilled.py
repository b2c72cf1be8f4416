"""Weights trained together towards the float network's outputs: grids, zeros and biases; what is refused."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from npuflow.base.errors import ModelError  # noqa: E402
from npuflow.gradients.network import RealNetwork, batched  # noqa: E402
from npuflow.ir.graph import Graph  # noqa: E402
from npuflow.ir.op import OPS  # noqa: E402
from npuflow.ir.sparsity import Pattern  # noqa: E402
from npuflow.rounders import RoundedWeight  # noqa: E402
from npuflow.tune.error import output_error, outputs_of  # noqa: E402
from npuflow.tune.judge import Judge  # noqa: E402
from npuflow.tune.rounding.distillation import Distillation  # noqa: E402
from npuflow.tune.rounding.distilled import distilled, varied  # noqa: E402
from npuflow.tune.rounding.weights import with_weights  # noqa: E402
from tests.networks.floats import Net, floats  # noqa: E402
from tests.rounding.test_blocks import residual, rounded_to_nearest, weighted  # noqa: E402


def feeds(graph: Graph, count: int, seed: int) -> list[dict[str, np.ndarray]]:
    rng = np.random.default_rng(seed)
    mixed = rng.normal(size=(4, 4))
    shape = graph.type("x").shape
    return [
        {"x": np.einsum("ij,njhw->nihw", mixed, rng.normal(0.3, 1, shape)).astype(np.float32)}
        for _ in range(count)
    ]


def error(graph: Graph, weights: dict[str, RoundedWeight], given: list[dict[str, np.ndarray]]) -> float:
    return output_error(outputs_of(graph, given), outputs_of(with_weights(graph, weights), given))


def trained(
    graph: Graph, start: dict[str, RoundedWeight], table: Distillation, powers: bool = False,
    kept: dict[str, np.ndarray] | None = None,
) -> dict[str, RoundedWeight]:
    sources = {layer.weight: source for layer, source in weighted(graph)}
    return distilled(
        Judge(graph, (), feeds(graph, 24, 1)), sources, start, table, powers, lambda *_: None, kept or {}
    )


def test_a_pass_gives_what_the_graph_gives() -> None:
    graph = residual()
    given = feeds(graph, 3, 2)
    found = RealNetwork(graph).run(batched(given, graph.inputs), {}, graph.outputs)
    wanted = np.stack([floats(graph, one)[graph.outputs[0]] for one in given])
    np.testing.assert_allclose(found[graph.outputs[0]].numpy(), wanted, rtol=1e-4, atol=1e-4)


def test_outputs_come_closer_and_codes_stay_on_their_grid() -> None:
    graph = residual()
    start = rounded_to_nearest(graph, 3)
    made = trained(graph, start, Distillation(steps=150, rate=0.02))
    given = feeds(graph, 24, 1)
    assert error(graph, made, given) < 0.7 * error(graph, start, given)
    for name, one in made.items():
        assert one.codes.dtype == start[name].codes.dtype
        assert one.codes.min() >= one.quant.lo and one.codes.max() <= one.quant.hi
        assert one.quant.with_(scale=()) == start[name].quant.with_(scale=())
    assert any(one.quant.scale != start[name].quant.scale for name, one in made.items())
    assert any(one.shift is not None and np.abs(one.shift).max() > 0 for one in made.values())


def test_zeros_of_pruned_weights_stay() -> None:
    graph = residual()
    pattern, kept, start = Pattern(2, 4), {}, rounded_to_nearest(graph, 8)
    for layer, source in weighted(graph):
        rows = source.rows(source.tensor)
        if rows.shape[0] == 1 and rows.shape[2] == 12:
            kept[layer.weight] = pattern.strongest(np.abs(rows[0]))[None]
    assert kept
    pruned = dict(start)
    for layer, source in weighted(graph):
        if layer.weight in kept:
            codes = source.rows(start[layer.weight].codes) * kept[layer.weight]
            one = start[layer.weight]
            pruned[layer.weight] = RoundedWeight(
                source.tensor_of(codes, str(one.codes.dtype)), one.quant, one.bias, one.shift
            )
    made = trained(graph, pruned, Distillation(steps=100, rate=0.01), kept=kept)
    sources = {layer.weight: source for layer, source in weighted(graph)}
    for name, mask in kept.items():
        assert not sources[name].rows(made[name].codes)[~mask].any()
    given = feeds(graph, 24, 1)
    assert error(graph, made, given) < 0.5 * error(graph, pruned, given)


def test_powers_of_two_stay_scales() -> None:
    graph = residual()
    start = rounded_to_nearest(graph, 4)
    start = {
        name: replace(one, quant=one.quant.with_(scale=(0.25,) * len(one.quant.scale)))
        for name, one in start.items()
    }
    made = trained(graph, start, Distillation(steps=5), powers=True)
    assert all(one.quant.scale == start[name].quant.scale for name, one in made.items())


def test_the_same_seed_gives_the_same_codes() -> None:
    graph = residual()
    start = rounded_to_nearest(graph, 4)
    table = Distillation(steps=8, mix=0.5, mirror=True)
    first, second = (trained(graph, start, table) for _ in range(2))
    assert all(np.array_equal(first[name].codes, second[name].codes) for name in first)


def test_samples_are_mirrored_and_blended_only_where_asked() -> None:
    x = torch.arange(24.0).reshape(4, 1, 1, 2, 3)
    rng = np.random.default_rng(0)
    same = varied({"x": x}, Distillation(), rng)["x"]
    assert torch.equal(same, x)
    turned = varied({"x": x}, Distillation(mirror=True), rng)["x"]
    each = [torch.equal(a, b) or torch.equal(a, b.flip(-1)) for a, b in zip(turned, x, strict=True)]
    assert all(each) and not torch.equal(turned, x)
    mixed = varied({"x": x}, Distillation(mix=1.0), rng)["x"]
    assert not torch.equal(mixed, x) and float(mixed.min()) >= 0 and float(mixed.max()) <= 23


def test_an_operator_without_a_gradient_is_named() -> None:
    net = Net(1, 1, 4, 6, 6)
    net.conv("stem", "x", 6)
    net.add("best", OPS["argextreme"](), "stem")
    with pytest.raises(ModelError, match="arg"):
        RealNetwork(net.graph("best"))
