"""The rule suite: what every rewrite rule, also a plug-in's, must satisfy. Checks raise AssertionError."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from npuflow.frontends import FRONTENDS, Bindings
from npuflow.ir.graph import Graph
from npuflow.ir.text import from_text, to_text
from npuflow.ir.types import Array, TensorType
from npuflow.onnx.export import export_model
from npuflow.rewrite.rewrite import Rewritten, rewrite
from npuflow.rules import Hardware, Rule
from npuflow.run.interpret import host_session

Feeds = Mapping[str, Array]


def graph_of(model: bytes) -> Graph:
    """The graph of a serialised ONNX model, before any rule."""
    return FRONTENDS["onnx"]().read(model, Bindings()).graph


def random_feeds(graph: Graph, seed: int = 7) -> dict[str, Array]:
    """Normally distributed inputs; of integer inputs, small numbers."""
    rng = np.random.default_rng(seed)

    def drawn(kind: TensorType) -> Array:
        real = kind.dtype.startswith("float")
        array = rng.normal(size=kind.shape) * 2 if real else rng.integers(0, 4, kind.shape)
        return array.astype(kind.dtype)

    return {name: drawn(graph.type(name)) for name in graph.inputs}


def outputs(graph: Graph, feeds: Feeds) -> list[Array]:
    """What onnxruntime makes of the graph."""
    return list(host_session(export_model(graph)).run(list(graph.outputs), dict(feeds)))


def check_rewrite(
    graph: Graph,
    rules: Sequence[str] | None = None,
    feeds: Feeds | None = None,
    rtol: float = 1e-4,
    atol: float = 1e-5,
    hardware: Hardware = Rule.hardware,
) -> Rewritten:
    """Apply rules (None: all) to a fixed point. After every change the graph is valid; in the end it has the
    interface and, in onnxruntime, the outputs that it had, nodes whose origins are nodes of the source, and
    nothing more to rewrite.
    """
    done = rewrite(graph, rules, careful=True, hardware=hardware)
    assert (done.graph.inputs, done.graph.outputs) == (graph.inputs, graph.outputs), "another interface"
    feeds = feeds or random_feeds(graph)
    for found, wanted in zip(outputs(done.graph, feeds), outputs(graph, feeds), strict=True):
        np.testing.assert_allclose(found, wanted, rtol, atol)
    known = {name for node in graph.nodes for name in node.origin}
    lost = {name for node in done.graph.nodes for name in node.origin} - known
    assert not lost, f"origins that the source does not have: {sorted(lost)}"
    assert from_text(to_text(done.graph), done.graph.consts) == done.graph, "its text is another graph"
    again = rewrite(done.graph, rules, hardware=hardware)
    assert not again.applied, "applied again, the rules change the result"
    return done


def check_rule(name: str, model: bytes, *, applies: bool, feeds: Feeds | None = None) -> Rewritten:
    """One rule alone: it changes a model that it is for, and leaves another as it is."""
    done = check_rewrite(graph_of(model), [name], feeds)
    if applies:
        assert done.applied, f"{name} leaves a model as it is that it should change"
    else:
        assert not done.applied, f"{name} changes a model: {done.applied[0].line()}" if done.applied else ""
    return done


class RuleSuite:
    """Derive a test class, set `name` to the rule's file name and give serialised ONNX models; pytest then
    runs every check. `applies`: models that the rule changes; `leaves`: models that look similar and stay.
    """

    name: str
    applies: tuple[bytes, ...]
    leaves: tuple[bytes, ...] = ()

    def test_applies(self) -> None:
        for model in self.applies:
            check_rule(self.name, model, applies=True)

    def test_leaves(self) -> None:
        for model in self.leaves:
            check_rule(self.name, model, applies=False)

    def test_with_all_rules(self) -> None:
        """Together with all other rules it comes to a fixed point, and the outputs stay."""
        for model in (*self.applies, *self.leaves):
            check_rewrite(graph_of(model))
