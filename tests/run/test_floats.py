"""The float network as one session: from any node on, some outputs only, in arrays that are used again."""

from __future__ import annotations

import numpy as np
import pytest

from npuflow.base.errors import ModelError
from npuflow.ir.builder import Builder
from npuflow.ir.graph import Graph
from npuflow.ir.op import OPS
from npuflow.ir.types import TensorType
from npuflow.run.floats import FloatRun, float_session

X = {"x": np.arange(8, dtype=np.float32).reshape(2, 4) / 8}


def network() -> Graph:
    """Three products; the last one is added to the first."""
    rng, made = np.random.default_rng(1), Builder()
    last = made.input("x", TensorType((2, 4)))
    for i in range(3):
        weight = made.constant(f"w{i}", rng.standard_normal((4, 4)).astype(np.float32))
        (last,) = made.add(OPS["matmul"](), (last, weight), (f"h{i}",))
    (out,) = made.add(OPS["add"](), (last, "h0"), ("y",))
    return made.graph(("x",), (out,))


def test_nodes_from_some_place_on_give_what_the_whole_network_does() -> None:
    graph = network()
    whole = FloatRun.of(graph, ["h0", "h1", "h2", "y", "x"])
    assert whole.made == ("h0", "h1", "h2", "y") and whole.fed == ("x",)
    values = whole.run(X)
    for since in (1, 2, 3):
        rest = FloatRun.of(graph, ["y", "h0"], since)
        assert rest.made == ("y",) and "x" not in rest.fed
        np.testing.assert_array_equal(rest.run(values)["y"], values["y"])


def test_some_outputs_only_and_none() -> None:
    run = FloatRun.of(network(), ["h0", "y"])
    assert list(run.run(X, ["y"])) == ["y"] and run.run(X, []) == {}
    nothing = FloatRun.of(network(), ["x"])
    assert nothing.session is None and nothing.run(X) == {} and nothing.reused(X, {}) == {}


def test_arrays_are_used_again() -> None:
    graph = network()
    run, kinds = FloatRun.of(graph, ["y"]), {"y": graph.type("y")}
    first = run.reused(X, kinds)["y"]
    np.testing.assert_array_equal(first, run.run(X)["y"])
    second = run.reused({"x": -X["x"]}, kinds)["y"]
    assert second is first and np.array_equal(second, run.run({"x": -X["x"]})["y"])


def test_what_does_not_load_or_run_is_an_error_with_its_reason() -> None:
    with pytest.raises(ModelError, match="cannot load the float model"):
        float_session(b"no model")
    with pytest.raises(ModelError, match="does not run on this sample"):
        FloatRun.of(network(), ["y"]).run({"x": np.zeros((2, 5), np.float32)})
