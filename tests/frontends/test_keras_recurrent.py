"""Recurrent layers of Keras: loops and unrolled steps become one operator, with Keras's own outputs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import npuflow
from npuflow.frontends import FRONTENDS, Bindings
from npuflow.frontends.tflite.convert import opened, reading
from npuflow.ir.graph import Graph
from npuflow.ir.verify import verify
from npuflow.onnx.export import export_model
from npuflow.onnx.run import run
from tests.frontends.test_tensorflow import tf

__all__ = ["tf"]

SHAPE = (1, 6, 8)
LAYERS: dict[str, tuple[Callable[[Any, Any], Any], dict[str, int]]] = {
    "sequence": (lambda k, x: k.LSTM(5, return_sequences=True, name="a")(x), {"LSTM": 1}),
    "last": (lambda k, x: k.LSTM(5, activation="relu", name="a")(x), {"LSTM": 1}),
    "states": (lambda k, x: k.LSTM(5, return_state=True, name="a")(x)[1:], {"LSTM": 1}),
    "unrolled": (lambda k, x: k.LSTM(5, unroll=True, name="a")(x), {"LSTM": 1}),
    "gru": (lambda k, x: k.GRU(5, return_sequences=True, name="a")(x), {"GRU": 1}),
    "gru reset first": (lambda k, x: k.GRU(5, reset_after=False, name="a")(x), {"GRU": 1}),
    "gru unrolled": (lambda k, x: k.GRU(5, reset_after=False, unroll=True, name="a")(x), {"GRU": 1}),
    "rnn": (lambda k, x: k.SimpleRNN(5, return_sequences=True, name="a")(x), {"RNN": 1}),
    "backwards": (lambda k, x: k.GRU(5, go_backwards=True, name="a")(x), {"GRU": 1}),
    "both ways": (
        lambda k, x: k.Bidirectional(k.LSTM(5, return_sequences=True), name="a")(x),
        {"LSTM": 2},
    ),
    "stacked": (
        lambda k, x: k.GRU(4, name="b")(k.LSTM(5, return_sequences=True, name="a")(x)),
        {"LSTM": 1, "GRU": 1},
    ),
}


def keras_model(tf: Any, name: str) -> Any:
    tf.keras.utils.set_random_seed(0)
    x = tf.keras.Input(SHAPE[1:], name="x")
    net = tf.keras.Model(x, LAYERS[name][0](tf.keras.layers, x))
    rng = np.random.default_rng(0)
    for weight in net.weights:
        weight.assign(rng.normal(0, 0.4, weight.shape))
    return net


def graph_of(path: Path) -> Graph:
    if path.suffix == ".tflite":
        return verify(reading(opened(path), Bindings()).graph, "reading")
    reader = FRONTENDS["tensorflow"]()
    return verify(reader.read(reader.gather(path), Bindings()).graph, "reading")


def forms(tf: Any, net: Any, folder: Path, every: bool) -> dict[str, Path]:
    """The files of a model; `every`: in all forms."""
    from tensorflow.python.framework.convert_to_constants import convert_variables_to_constants_v2

    paths = {form: folder / f"net.{form}" for form in ("keras", "tflite", "h5", "pb")}
    net.save(paths["keras"])
    function = tf.function(lambda x: net(x, training=False))
    concrete = function.get_concrete_function(tf.TensorSpec(SHAPE, tf.float32, "x"))
    paths["tflite"].write_bytes(tf.lite.TFLiteConverter.from_concrete_functions([concrete]).convert())
    if not every:
        return {form: paths[form] for form in ("keras", "tflite")}
    net.save(paths["h5"])
    graph = convert_variables_to_constants_v2(concrete, lower_control_flow=False).graph.as_graph_def()
    paths["pb"].write_bytes(graph.SerializeToString())
    net.export(str(folder / "saved"), verbose=False)
    return {**paths, "saved": folder / "saved" / "saved_model.pb"}


@pytest.mark.parametrize("name", LAYERS)
def test_a_recurrent_layer_is_one_operator(tf: Any, tmp_path: Path, name: str) -> None:
    net = keras_model(tf, name)
    x = np.random.default_rng(1).standard_normal(SHAPE).astype(np.float32)
    given = [one.numpy() for one in tf.nest.flatten(net(x, training=False))]
    wanted = sorted(given, key=lambda one: one.reshape(-1)[0])
    for form, path in forms(tf, net, tmp_path, every=name in ("sequence", "gru", "both ways")).items():
        graph = graph_of(path)
        kinds = Counter(node.op.onnx_type()[1] for node in graph.nodes)
        assert {k: kinds[k] for k in ("LSTM", "GRU", "RNN") if kinds[k]} == LAYERS[name][1], (form, kinds)
        assert not kinds["Tanh"] + kinds["Sigmoid"] + kinds["Gemm"], (form, kinds)
        found = run(export_model(graph), {graph.inputs[0]: x})
        for one, other in zip(sorted(found, key=lambda one: one.reshape(-1)[0]), wanted, strict=True):
            assert np.abs(one - other).max() <= 1e-5 * max(np.abs(other).max(), 1.0), form


def test_a_long_sequence_is_one_operator(tf: Any, tmp_path: Path) -> None:
    """More steps than a loop may be written out to."""
    x = tf.keras.Input((400, 3), name="x")
    net = tf.keras.Model(x, tf.keras.layers.LSTM(4)(x))
    net.save(tmp_path / "net.keras")
    graph = graph_of(tmp_path / "net.keras")
    assert [n.op.onnx_type()[1] for n in graph.nodes].count("LSTM") == 1 and len(graph.nodes) < 12


def test_layers_run_on_the_npu(tf: Any, tmp_path: Path) -> None:
    keras_model(tf, "both ways").save(tmp_path / "net.keras")
    data = np.zeros((2, *SHAPE[1:]), np.float32)
    made = npuflow.compile(
        str(tmp_path / "net.keras"), "edge-4t", data=data, until="placement", cache=tmp_path / "cache"
    )
    placement = made.artifact("placement").placed
    assert len(placement.places) > 50 and all(place.on_npu for place in placement.places)
