"""The culprit is what takes most noise away when it alone is float, all else as built; not what
has the lowest SQNR itself."""

from __future__ import annotations

import numpy as np
import pytest

from npuflow.ir.graph import Graph
from npuflow.ir.op import OPS
from npuflow.strategies import NARROW
from npuflow.tune.precision.culprit import culprits
from npuflow.tune.precision.harness import Harness
from tests.networks.floats import Net
from tests.precision.harnesses import harness_of, mixed_net
from tests.precision.test_fakequant import node_by_node


def quietened() -> Graph:
    """Two branches that are added: the second one arrives multiplied by a thousandth."""
    net = Net(4, 1, 4, 8, 8)
    net.conv("loud", "x", 4)
    net.conv("faint", "x", 4)
    net.const("little", np.full((1, 1, 1, 1), 1e-3))
    net.add("less", OPS["mul"](), "faint", "little")
    net.add("y", OPS["add"](), "loud", "less")
    return net.graph("y")


def times(harness: Harness, **factors: float) -> dict[str, tuple[float, float]]:
    return {v: (f * harness.ranges[v][0], f * harness.ranges[v][1]) for v, f in factors.items()}


def sqnr(real: list[np.ndarray], made: list[np.ndarray]) -> float:
    a, b = np.array(real, np.float64), np.array(made, np.float64)
    return float(10 * np.log10((a**2).sum() / ((a - b) ** 2).sum()))


def test_the_tensor_with_the_lowest_sqnr_is_not_to_blame_where_it_does_not_matter() -> None:
    plain = harness_of(quietened())
    harness = harness_of(quietened(), times(plain, faint=0.05, loud=0.6))
    graph = harness.network.graph
    kept = {v for group in harness.network.groups for v in group}
    types = {v: t for v, t in harness.network.types(harness.ranges).items() if v in kept}
    weights = {k: v for j in range(len(harness.network.weights)) for k, v in harness.weight(j, False).items()}
    real = [node_by_node(graph, feed, {}, {}) for feed in harness.judge.held]
    made = [node_by_node(graph, feed, types, weights) for feed in harness.judge.held]
    own = {v: sqnr([r[v] for r in real], [m[v] for m in made]) for v in ("loud", "faint", "x")}
    assert min(own, key=lambda v: own[v]) == "faint"
    found = culprits(harness, 0, lambda *_: None)
    assert found[0].value == "loud" and found[0].layer == "/loud"


@pytest.mark.parametrize(("value", "factor"), [("c1", 0.3), ("gate", 0.1), ("sum", 40.0)])
def test_its_figures_are_those_of_the_substitution(value: str, factor: float) -> None:
    """dB as built and with the culprit alone in float, computed node by node in numpy."""
    graph = mixed_net()
    harness = harness_of(graph, times(harness_of(graph), **{value: factor}))
    first = culprits(harness, 0, lambda *_: None)[0]
    group = next(g for g in harness.network.groups if first.value in g)
    assert first.kind == "activation" and value in group
    kept = {v for g in harness.network.groups for v in g}
    types = {v: t for v, t in harness.network.types(harness.ranges).items() if v in kept}
    weights = {k: v for j in range(len(harness.network.weights)) for k, v in harness.weight(j, False).items()}
    for figure, left_out in ((first.before, ()), (first.after, group)):
        noise = []
        for s, feed in enumerate(harness.judge.held[:4]):
            made = node_by_node(graph, feed, {v: t for v, t in types.items() if v not in left_out}, weights)[
                "y"
            ]
            judge = harness.judge
            noise.append(((made.astype(np.float64) - judge.truth[0][s]) ** 2).sum() / judge.signal[s, 0])
        assert figure == pytest.approx(-10 * np.log10(np.mean(noise)), abs=0.2)


def test_a_network_as_it_should_be_names_no_large_part() -> None:
    harness = harness_of(mixed_net())
    found = culprits(harness, 0, lambda *_: None)
    assert harness.judge.noise(harness.mixed((NARROW,) * len(harness.names), harness.judge.held)).max() < 0.01
    assert found[0].after - found[0].before < 3.0
