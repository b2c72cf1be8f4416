"""TensorFlow models: SavedModels, Keras files and frozen graphs, judged by TensorFlow's own outputs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from npuflow.base import tables
from npuflow.base.errors import ModelError, NpuflowError
from npuflow.base.tables import Locator, canonical
from npuflow.base.tables_toml import Origin
from npuflow.frontends import FRONTENDS, Bindings, Reading
from npuflow.frontends.tensorflow.names import ends_of, named, plain
from npuflow.ir.verify import verify
from npuflow.onnx.export import export_model
from npuflow.onnx.run import run
from npuflow.stages.model import ModelTable


def read(path: Path, bindings: Bindings = Bindings()) -> Reading:  # noqa: B008
    reader = FRONTENDS["tensorflow"]()
    return reader.read(reader.gather(path), bindings)



def test_the_files_of_a_saved_model_are_its_graph_and_variables(tmp_path: Path) -> None:
    """The fingerprint differs from one saving of the same model to the next."""
    names = [
        "saved_model.pb",
        "fingerprint.pb",
        "variables/variables.index",
        "variables/variables.data-0",
        "assets/a.txt",
    ]
    for name in names:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"x")
    found = FRONTENDS["tensorflow"]().files(tmp_path / "saved_model.pb")
    assert {str(p.relative_to(tmp_path)) for p in found} == {*names} - {"fingerprint.pb"}
    assert FRONTENDS["tensorflow"]().files(tmp_path / "net.pb") == (tmp_path / "net.pb",)


def test_the_folder_of_a_saved_model_is_a_path(tmp_path: Path) -> None:
    """As tf.saved_model.load takes it. A folder without one says what is missing."""
    (tmp_path / "net").mkdir()
    (tmp_path / "net" / "saved_model.pb").write_bytes(b"x")
    table, faults = table_of({"path": "net"}, tmp_path)
    assert table is not None and not faults
    assert table.path.path == tmp_path / "net" / "saved_model.pb" and table.path.text == "net"
    whole, _ = table_of({"path": "net/saved_model.pb"}, tmp_path)
    assert whole is not None and canonical(table) == canonical(whole)
    (tmp_path / "other").mkdir()
    _, (fault,) = table_of({"path": "other"}, tmp_path)
    assert "is a folder" in fault.message
    assert "a folder that holds config.json or saved_model.pb" in fault.because


def table_of(rows: dict[str, Any], folder: Path) -> tuple[ModelTable | None, list[NpuflowError]]:
    return tables.read(ModelTable, rows, Locator(default=Origin(None, None, folder)))


def test_commands_take_the_folder_of_a_saved_model(tf: Any, tmp_path: Path) -> None:
    net = tf.keras.Sequential([tf.keras.Input((8, 8, 2), name="x"), tf.keras.layers.Conv2D(3, 3, name="c")])
    net.export(str(tmp_path / "net"), verbose=False)
    for words in (
        ["inspect", "net"], ["new", "net"], ["build", "net.toml", "--until", "parse", "--cache", "cache"],
        ["extract", "net", "-o", "net.onnx"], ["build", "own.toml", "--until", "parse", "--cache", "cache"],
    ):
        if words[1] == "own.toml":
            text = (tmp_path / "net.toml").read_text()
            (tmp_path / "own.toml").write_text(text.replace('"net/saved_model.pb"', '"net"'))
        call = [sys.executable, "-m", "npuflow", *words]
        done = subprocess.run(call, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{words}: {done.stdout} {done.stderr}"
    assert "nothing to do" in done.stdout
    x = np.random.default_rng(0).standard_normal((1, 8, 8, 2)).astype(np.float32)
    (mine,) = run((tmp_path / "net.onnx").read_bytes(), {"x": x})
    assert np.abs(mine - net(x).numpy()).max() <= 1e-5


def test_names_are_those_of_layers_inputs_and_outputs() -> None:
    assert (
        plain("net/conv_1/Relu6;net/bn_1/mul_1;net/conv_1/convolution;", {"conv"}) == "net/conv/convolution"
    )
    assert plain("StatefulPartitionedCall/net/block_1/add", {"block_1", "block"}) == "net/block_1/add"
    old = ["input1", "input0", "a;b", "b", "Identity"]
    ends = ends_of(old, [1, 0], [4], ["image", "mask"], ["logits"])
    assert named(old, ends, ()) == ["mask", "image", "b", "b.1", "logits"]


@pytest.fixture(scope="module")
def tf() -> Any:
    pytest.importorskip("tensorflow", reason="npuflow[tensorflow] is not installed")
    import tensorflow

    return tensorflow


def model(tf: Any) -> Any:
    layers = tf.keras.layers
    tf.keras.utils.set_random_seed(0)
    image, steps = tf.keras.Input((12, 12, 3), name="image"), tf.keras.Input((5, 8), name="steps")
    y = layers.Conv2D(8, 3, 2, "same", use_bias=False, name="stem")(image)
    y = layers.ReLU(6, name="act")(layers.BatchNormalization(name="bn")(y))
    y = layers.GlobalAveragePooling2D(name="pool")(layers.DepthwiseConv2D(3, padding="same", name="depth")(y))
    z = layers.LSTM(6, return_sequences=True, name="lstm")(steps)
    z = layers.Bidirectional(layers.GRU(4), name="gru")(layers.MultiHeadAttention(2, 4, name="mha")(z, z))
    both = layers.Concatenate(name="both")([y, layers.LayerNormalization(name="norm")(z)])
    made = tf.keras.Model([image, steps], [layers.Dense(5, activation="softmax", name="scores")(both), z])
    rng = np.random.default_rng(0)
    for weight in made.weights:
        if weight.dtype == "float32":
            spread = (
                (lambda s: rng.uniform(0.5, 1.5, s))
                if "variance" in weight.path
                else (lambda s: rng.normal(0, 0.4, s))
            )
            weight.assign(spread(weight.shape))
    return made


def saved(tf: Any, net: Any, folder: Path) -> dict[str, Path]:
    from tensorflow.python.framework.convert_to_constants import convert_variables_to_constants_v2

    net.save(folder / "net.keras")
    net.save(folder / "net.h5")
    net.export(str(folder / "saved"), verbose=False)
    specs = [tf.TensorSpec((1, *one.shape[1:]), tf.float32, one.name) for one in net.inputs]
    function = tf.function(lambda image, steps: net([image, steps], training=False)).get_concrete_function(
        *specs
    )
    graph = convert_variables_to_constants_v2(function, lower_control_flow=False).graph.as_graph_def()
    (folder / "frozen.pb").write_bytes(graph.SerializeToString())
    return {
        "saved": folder / "saved" / "saved_model.pb",
        "keras": folder / "net.keras",
        "h5": folder / "net.h5",
        "frozen": folder / "frozen.pb",
    }


def test_every_form_of_a_model_gives_tensorflow_s_outputs(tf: Any, tmp_path: Path) -> None:
    net = model(tf)
    rng = np.random.default_rng(1)
    feeds = {
        n: rng.standard_normal(s).astype(np.float32)
        for n, s in (("image", (1, 12, 12, 3)), ("steps", (1, 5, 8)))
    }
    wanted = {one.shape[-1]: one.numpy() for one in net(list(feeds.values()), training=False)}
    for form, path in saved(tf, net, tmp_path).items():
        graph = verify(read(path).graph, "reading")
        assert sorted(graph.inputs) == ["image", "steps"], form
        for found in run(export_model(graph), {name: feeds[name] for name in graph.inputs}):
            theirs = wanted[found.shape[-1]]
            assert np.abs(found - theirs).max() <= 1e-5 * np.abs(theirs).max(), form
        origins = {name for node in graph.nodes for name in node.origin}
        if form == "keras":
            assert graph.outputs == ("scores", "gru") and any("/depth/" in name for name in origins)


def test_saving_a_model_again_gives_the_same_graph(tf: Any, tmp_path: Path) -> None:
    from npuflow.ir.packed import pack

    tf.keras.utils.set_random_seed(0)
    net = tf.keras.Sequential([tf.keras.Input((8, 8, 2)), tf.keras.layers.Conv2D(3, 3, name="c")])
    found = []
    for name in ("one", "two"):
        net.export(str(tmp_path / name), verbose=False)
        reading = read(tmp_path / name / "saved_model.pb")
        found.append(pack(reading.graph, reading.stated))
    assert found[0] == found[1]


def test_free_sizes_are_one_error_and_the_recipe_gives_them(tf: Any, tmp_path: Path) -> None:
    net = tf.keras.Sequential(
        [tf.keras.Input((None, None, 2), name="x"), tf.keras.layers.Conv2D(3, 3, name="c")]
    )
    net.save(tmp_path / "net.keras")
    with pytest.raises(NpuflowError, match="free") as caught:
        read(tmp_path / "net.keras")
    assert "{ x = [1, ?, ?, 2] } with a size for each ?" in caught.value.hint
    graph = read(tmp_path / "net.keras", Bindings(inputs={"x": (1, 8, 9, 2)})).graph
    assert graph.type(graph.inputs[0]).shape == (1, 8, 9, 2)


def test_a_keras_file_that_needs_its_program_says_what_to_write_instead(tf: Any, tmp_path: Path) -> None:
    @tf.keras.utils.register_keras_serializable("hunt")
    class Own(tf.keras.layers.Dense):
        """A layer that only this program knows."""

    layers = tf.keras.layers
    for name, layer in (("f", layers.Dense(3, activation=lambda x: x * 2)), ("own", Own(3))):
        tf.keras.Sequential([tf.keras.Input((2,)), layer]).save(tmp_path / f"{name}.h5")
    tf.keras.Sequential([tf.keras.Input((2,)), layers.Dense(3)]).save_weights(tmp_path / "w.weights.h5")
    reasons = {
        "f.h5": ("program's own", "model.export"),
        "own.h5": ("program's own", "model.export"),
        "w.weights.h5": ("weights without the network", "model.load_weights"),
    }
    for name, (why, remedy) in reasons.items():
        with pytest.raises(ModelError, match="cannot be loaded by TensorFlow") as caught:
            read(tmp_path / name)
        assert why in caught.value.because and remedy in caught.value.hint, str(caught.value)


def test_what_is_no_model_is_one_error(tf: Any, tmp_path: Path) -> None:
    for name in ("net.keras", "net.h5", "net.pb", "saved_model.pb"):
        (tmp_path / name).write_bytes(b"\x0a\xffnothing of the kind")
        with pytest.raises(ModelError, match="cannot be loaded by TensorFlow"):
            read(tmp_path / name)
    with tf.Graph().as_default() as graph:
        x = tf.compat.v1.placeholder(tf.float32, (1, 2), "x")
        tf.add(x, tf.compat.v1.get_variable("v", (2,)), name="y")
    (tmp_path / "net.pb").write_bytes(graph.as_graph_def().SerializeToString())
    with pytest.raises(ModelError, match="is no frozen graph"):
        read(tmp_path / "net.pb")


def test_a_frozen_graph_is_cut_where_the_recipe_says(tf: Any, tmp_path: Path) -> None:
    with tf.Graph().as_default() as graph:
        x = tf.compat.v1.placeholder(tf.float32, (None, 4), "x")
        tf.exp(tf.nn.relu(x, name="inner"), name="y")
    (tmp_path / "net.pb").write_bytes(graph.as_graph_def().SerializeToString())
    assert read(tmp_path / "net.pb").graph.outputs == ("y",)
    found = read(tmp_path / "net.pb", Bindings(outputs=("inner",))).graph
    assert found.outputs == ("inner",) and found.type("x").shape == (1, 4) and len(found.nodes) == 1
