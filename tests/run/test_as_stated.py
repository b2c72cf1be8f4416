"""The float network with the roundings that its file states."""

from __future__ import annotations

import numpy as np
import onnx

from npuflow.frontends import FRONTENDS, Bindings
from npuflow.ir.codes import decode, encode
from npuflow.ir.types import QuantType
from npuflow.onnx.export import export_model
from npuflow.onnx.run import run
from npuflow.run.as_stated import as_stated
from npuflow.run.floats import FloatRun
from npuflow.tune.error import outputs_of
from tests.frontends.building import model

RNG = np.random.default_rng(0)
THREE = QuantType(3, False, (0.25,), (0,))
INPUT = QuantType(8, True, (0.05,), (-7,))


def test_stated_values_are_rounded_and_others_are_not() -> None:
    text = "g (float[2,3] x) => (float[2,3] y) { a = Relu(x) b = Mul(a, a) y = Tanh(b) }"
    graph = FRONTENDS["onnx"]().read(model(text).SerializeToString(), Bindings()).graph
    stated = {"x": INPUT, "a": THREE, "y": QuantType(4, True, (0.1,), (1,)), "gone": THREE}
    made = as_stated(graph, stated)
    assert made.inputs == graph.inputs and made.outputs == graph.outputs
    x = RNG.normal(size=(2, 3)).astype(np.float32)

    def rounded(name: str, values: np.ndarray) -> np.ndarray:
        return decode(encode(values, stated[name]), stated[name])

    a = rounded("a", np.maximum(rounded("x", x), 0))
    wanted = rounded("y", np.tanh(a * a))
    assert np.array_equal(outputs_of(made, [{"x": x}])[0][0], wanted)
    assert np.array_equal(run(export_model(made), {"x": x})[0], wanted)


def test_without_stated_activations_the_graph_is_the_same() -> None:
    text = "g (float[2,3] x) => (float[2,3] y) { y = Tanh(x) }"
    graph = FRONTENDS["onnx"]().read(model(text).SerializeToString(), Bindings()).graph
    assert as_stated(graph, {}) is graph and as_stated(graph, {"gone": THREE}) is graph


def test_a_float_run_rounds_what_is_stated_and_no_weight() -> None:
    """Between roundings onnxruntime would put codes of its own, with one scale, in the place of the weights,
    and integer kernels in that of the layer: small channels would be lost."""
    text = """g (float[1,4,6,6] x) => (float[1,3,6,6] y) { y = Conv(x, w) }"""
    weights = RNG.normal(size=(3, 4, 1, 1)) * np.array([100, 1, 0.01]).reshape(3, 1, 1, 1)
    proto = model(text)
    proto.graph.initializer.append(onnx.numpy_helper.from_array(weights.astype(np.float32), "w"))
    graph = FRONTENDS["onnx"]().read(proto.SerializeToString(), Bindings()).graph
    out = QuantType(8, True, (0.05,), (0,))
    made = as_stated(graph, {"x": INPUT, "y": out})
    x = RNG.normal(size=(1, 4, 6, 6)).astype(np.float32)
    exact = np.einsum("ijkl,oj->iokl", decode(encode(x, INPUT), INPUT), weights[:, :, 0, 0])
    found = FloatRun.of(made, ["y"]).run({"x": x})["y"]
    apart = np.abs(encode(found, out).astype(int) - encode(exact, out)).max((0, 2, 3))
    assert apart.max() <= 1, apart
