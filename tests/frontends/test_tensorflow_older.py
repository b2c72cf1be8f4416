"""Files of earlier TensorFlow and Keras: optimisers in SavedModels, and files that Keras 2 wrote."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from npuflow.base.errors import ModelError
from npuflow.frontends import FRONTENDS, Bindings, Reading
from npuflow.frontends.tensorflow.keras_file import has_code
from npuflow.onnx.export import export_model
from npuflow.onnx.run import run


def read(path: Path) -> Reading:
    reader = FRONTENDS["tensorflow"]()
    return reader.read(reader.gather(path), Bindings())


def outputs(reading: Reading, x: np.ndarray) -> np.ndarray:
    (name,) = reading.graph.inputs
    found: np.ndarray = run(export_model(reading.graph), {name: x})[0]
    return found


@pytest.fixture(scope="module")
def tf() -> Any:
    pytest.importorskip("tensorflow", reason="npuflow[tensorflow] is not installed")
    import tensorflow

    return tensorflow


@pytest.fixture
def without_keras_2(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The package tf_keras is not installed, for the process that reads as well."""
    (tmp_path / "hidden").mkdir()
    (tmp_path / "hidden" / "tf_keras.py").write_text("raise ImportError('no tf_keras here')")
    monkeypatch.syspath_prepend(str(tmp_path / "hidden"))


def test_code_in_a_description_is_found() -> None:
    layers = [{"class_name": "Lambda", "config": {"function": ["4wEAAA=="], "function_type": "lambda"}}]
    assert has_code(json.dumps({"config": {"layers": layers}}))
    layers[0]["config"] = {"function": "relu", "function_type": "function"}
    assert not has_code(json.dumps({"config": {"layers": layers}})) and not has_code("no JSON")


def with_optimiser(tf: Any, folder: Path) -> tuple[np.ndarray, np.ndarray]:
    """A SavedModel as Keras 2 wrote it after training: its optimiser has slots (moments of weights). The copy
    of Keras 2 in TensorFlow writes one; only the kind of the optimiser has another name there."""
    adam = pytest.importorskip("tensorflow.python.keras.optimizer_v2.adam", reason="no copy of Keras 2")
    from tensorflow.core.protobuf import saved_model_pb2

    class Net(tf.Module):  # type: ignore[misc]  # tensorflow may be missing
        def __init__(self) -> None:
            self.weight = tf.Variable(np.random.default_rng(0).normal(size=(3, 3, 2, 4)).astype("f"))
            self.optimizer = adam.Adam(0.1)

        @tf.function(input_signature=[tf.TensorSpec((None, 6, 6, 2), tf.float32)])  # type: ignore[untyped-decorator]
        def serve(self, x: Any) -> Any:
            return {"y": tf.nn.relu(tf.nn.conv2d(x, self.weight, 1, "SAME"))}

    net = Net()
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(net.serve(tf.ones((1, 6, 6, 2)))["y"] ** 2)
    net.optimizer.apply_gradients([(tape.gradient(loss, net.weight), net.weight)])
    tf.saved_model.save(net, str(folder), signatures=net.serve)
    held = saved_model_pb2.SavedModel.FromString((folder / "saved_model.pb").read_bytes())
    nodes = held.meta_graphs[0].object_graph_def.nodes
    assert sum(len(node.slot_variables) for node in nodes) == 2
    for node in nodes:
        if node.user_object.identifier == "tf_deprecated_optimizer":
            node.user_object.identifier = "optimizer"
    (folder / "saved_model.pb").write_bytes(held.SerializeToString())
    x = np.random.default_rng(1).normal(size=(1, 6, 6, 2)).astype(np.float32)
    return x, net.serve(x)["y"].numpy()


@pytest.mark.usefixtures("without_keras_2")
def test_a_saved_model_with_an_optimiser_of_keras_2(tf: Any, tmp_path: Path) -> None:
    x, wanted = with_optimiser(tf, tmp_path / "net")
    with pytest.raises(AttributeError, match="add_slot"):
        tf.saved_model.load(str(tmp_path / "net"))
    found = read(tmp_path / "net" / "saved_model.pb")
    assert found.graph.inputs == ("x",) and found.graph.outputs == ("y",)
    assert np.abs(outputs(found, x) - wanted).max() <= 1e-5


def test_of_several_graphs_the_one_for_serving_is_read(tf: Any, tmp_path: Path) -> None:
    """TensorFlow 1 writes one graph for training and one for serving."""
    v1 = tf.compat.v1
    builder = v1.saved_model.Builder(str(tmp_path / "net"))
    for tags, first in ((["train"], True), (["serve"], False)):
        with tf.Graph().as_default(), v1.Session() as session:
            x = v1.placeholder(tf.float32, (None, 4), "x")
            weight = v1.get_variable("w", initializer=np.float32([1, -2, 3, 4]), use_resource=False)
            y = tf.identity(x * weight, name="y")
            session.run(v1.global_variables_initializer())
            signature = v1.saved_model.predict_signature_def({"x": x}, {"y": y})
            about = {"signature_def_map": {"serving_default": signature}}
            if first:
                builder.add_meta_graph_and_variables(session, tags, **about)
            else:
                builder.add_meta_graph(tags, **about)
    builder.save()
    x = np.float32([[1, 2, 3, 4]])
    assert np.array_equal(outputs(read(tmp_path / "net" / "saved_model.pb"), x), x * [1, -2, 3, 4])


def written_by_keras_2(folder: Path, kind: str) -> tuple[np.ndarray, np.ndarray, Path]:
    """A file that Keras 2 writes, and what it computes."""
    keras = pytest.importorskip("tf_keras", reason="the package tf_keras is not installed")
    layers = keras.layers
    keras.utils.set_random_seed(0)
    shape = (6, 4) if kind == "steps" else (8, 8, 4)
    x = keras.Input(shape, name="x")
    if kind == "steps":
        y = layers.LSTM(5, recurrent_activation="hard_sigmoid", name="lstm")(x)
    elif kind == "nested":
        parts = [keras.Input(shape), layers.Conv2D(4, 1), layers.BatchNormalization(), layers.Conv2D(4, 1)]
        y = keras.Sequential(parts, name="inner")(x)
    else:
        y = layers.DepthwiseConv2D(3, name="depth")(x) * 2.0
        y = layers.Conv2DTranspose(3, 3, name="up")(layers.Activation("hard_sigmoid", name="hard")(y))
    net = keras.Model(x, y)
    path = folder / f"{kind}{'.keras' if kind == 'images' else '.h5'}"
    net.save(path)
    given = np.random.default_rng(0).normal(size=(1, *shape)).astype(np.float32)
    return given, net(given, training=False).numpy(), path


@pytest.mark.parametrize("kind", ["steps", "nested", "images"])
def test_files_of_keras_2_are_read_by_keras_2(tf: Any, tmp_path: Path, kind: str) -> None:
    given, wanted, path = written_by_keras_2(tmp_path, kind)
    found = read(path)
    assert found.graph.inputs == ("x",) and not any("Keras" in note for note in found.notes)
    mine = outputs(found, given)
    assert mine.shape == wanted.shape and np.abs(mine - wanted).max() <= 1e-5 * max(1, np.abs(wanted).max())


def relabelled(tf: Any, folder: Path, net: Any) -> Path:
    """A file of Keras 3 that says Keras 2 wrote it."""
    h5py = pytest.importorskip("h5py")
    net.save(folder / "net.h5")
    with h5py.File(folder / "net.h5", "r+") as file:
        file.attrs["keras_version"] = "2.13.1"
    return folder / "net.h5"


@pytest.mark.usefixtures("without_keras_2")
def test_without_keras_2_its_files_are_read_with_a_note_or_refused(tf: Any, tmp_path: Path) -> None:
    layers, x = tf.keras.layers, tf.keras.Input((8, 8, 4), name="x")
    plain = tf.keras.Model(x, layers.Conv2D(3, 1, name="c")(x))
    found = read(relabelled(tf, tmp_path, plain))
    assert any("Keras 2.13.1 wrote net.h5" in note and "tf_keras" in note for note in found.notes)
    path = relabelled(tf, tmp_path, tf.keras.Model(x, layers.Activation("hard_sigmoid")(x)))
    with pytest.raises(ModelError, match="computes it in another way") as caught:
        read(path)
    assert "0.2 x" in caught.value.because and "tf_keras" in caught.value.hint
    h5py = pytest.importorskip("h5py")
    path = relabelled(tf, tmp_path, plain)
    with h5py.File(path, "r+") as file:
        file.attrs["model_config"] = file.attrs["model_config"].replace('"Conv2D"', '"TFOpLambda"')
    with pytest.raises(ModelError, match=r"of Keras 2\.13\.1, and Keras 3.* does not read it") as caught:
        read(path)
    assert "TFOpLambda" in caught.value.because and "pip install tf_keras" in caught.value.hint


def test_code_in_a_file_of_keras_2_is_not_run(tf: Any, tmp_path: Path) -> None:
    keras = pytest.importorskip("tf_keras", reason="the package tf_keras is not installed")
    x = keras.Input((2,))
    keras.Model(x, keras.layers.Lambda(lambda t: t * 2)(x)).save(tmp_path / "net.h5")
    with pytest.raises(ModelError, match="cannot be loaded") as caught:
        read(tmp_path / "net.h5")
    assert "not run" in caught.value.because and "model.export" in caught.value.hint
