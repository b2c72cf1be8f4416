"""Default recipes on models of each form, from the file to a program that agrees bit for bit."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import parser

from npuflow import build
from npuflow.stages.evaluate import Evaluation
from npuflow.stages.quantize import Quantized
from npuflow.stages.simulate import Simulation
from tests.frontends.building import Built


def whole(folder: Path, model: str, more: str = "", **inputs: tuple[int, ...]) -> Built:
    """A default build with random samples; its programs give the reference's codes."""
    rng = np.random.default_rng(0)
    samples = {name: rng.standard_normal((16, *shape)).astype(np.float32) for name, shape in inputs.items()}
    np.savez(folder / "data.npz", **samples)
    text = f'target = "edge-4t"\n[model]\npath = "{model}"\n[data]\nsource = "data.npz"\n{more}'
    (folder / "net.toml").write_text(text)
    result = build(folder / "net.toml", cache=folder / "cache", out=folder / "out")
    done = Built(folder, result.outputs)
    found = done.artifact("simulate", Simulation).summary()
    assert found["different"] == found["hazards"] == 0 and found["tensors"] > 0
    return done


@pytest.mark.slow
def test_a_tflite_file_with_a_recurrent_layer(tmp_path: Path) -> None:
    pytest.importorskip("tflite", reason="npuflow[tflite] is not installed")
    pytest.importorskip("ai_edge_litert", reason="LiteRT is not installed")
    from tests.frontends.tflite_models import Net

    rng, net = np.random.default_rng(0), Net()
    x = net.tensor("x", (1, 5, 6))
    shapes = [(8, 6)] * 4 + [(8, 8)] * 4 + [()] * 3 + [(8,)] * 4 + [()] * 2
    held = [rng.normal(0, 0.4, shape).astype(np.float32) for shape in shapes]
    given = [net.constant(f"w{i}", v) if v.shape else "" for i, v in enumerate(held)]
    for name in ("h", "c"):
        net.tensor(name, (1, 8))
        net.graph.tensors[net.index[name]].isVariable = True
    rows = net.tensor("rows", (1, 5, 8))
    options = "UnidirectionalSequenceLSTMOptions"
    kind = "UNIDIRECTIONAL_SEQUENCE_LSTM"
    net.op(kind, [x, *given, "h", "c"], [rows], options, fusedActivationFunction=4, cellClip=10.0)
    weight = net.constant("dense", rng.normal(0, 0.4, (3, 8)).astype(np.float32))
    y = net.tensor("y", (1, 5, 3))
    net.op("FULLY_CONNECTED", [rows, weight, ""], [y], "FullyConnectedOptions", keepNumDims=True)
    (tmp_path / "net.tflite").write_bytes(net.done([x], [y]))
    whole(tmp_path, "net.tflite", x=(5, 6))


def test_a_keras_file(tmp_path: Path) -> None:
    tf = pytest.importorskip("tensorflow", reason="npuflow[tensorflow] is not installed")
    layers = tf.keras.layers
    tf.keras.utils.set_random_seed(0)
    image = tf.keras.Input((8, 8, 3), name="image")
    y = layers.ReLU(6)(layers.BatchNormalization()(layers.Conv2D(8, 3, 2, "same")(image)))
    y = layers.LSTM(6)(layers.Reshape((4, 32))(y))
    tf.keras.Model(image, layers.Dense(5)(y)).save(tmp_path / "net.keras")
    whole(tmp_path, "net.keras", image=(8, 8, 3))


def scored(folder: Path, model: str, layout: str, scores: Any) -> None:
    """A default build with pictures. Labels are the source framework's own answers: the float model has to
    give all of them, the program nearly all."""
    from PIL import Image

    rng, lines = np.random.default_rng(0), []
    (folder / "photos").mkdir()
    for i in range(24):
        pixels = (rng.uniform(0, 1, (16, 16, 3)) * rng.uniform(40, 255, 3)).astype(np.uint8)
        Image.fromarray(pixels).save(folder / "photos" / f"{i}.png")
        lines.append(f"photos/{i}.png,{int(np.argmax(scores(pixels.astype(np.float32)[None] / 255)))}")
    assert len({line.rpartition(",")[2] for line in lines}) > 1
    (folder / "list.csv").write_text("\n".join(lines))
    steps = f"""[[data.steps]]
normalize = {{ scale = {1 / 255!r} }}
[[data.steps]]
layout = "{layout}"
"""
    text = f"""target = "edge-4t"
[model]
path = "{model}"
[data]
source = "list.csv"
{steps}[evaluate]
source = "list.csv"
metric = "top1"
"""
    (folder / "net.toml").write_text(text)
    done = Built(folder, build(folder / "net.toml", cache=folder / "cache", out=folder / "out").outputs)
    assert done.artifact("simulate", Simulation).summary()["different"] == 0
    found = done.artifact("evaluate", Evaluation).summary()
    assert found["float"] == 1.0 and found["top1"] >= 0.95, found


def test_a_pt2_file_with_pictures(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch", reason="npuflow[torch] is not installed")
    torch.manual_seed(0)
    nn = torch.nn
    trunk = nn.Sequential(
        nn.Conv2d(3, 8, 3, 2, 1), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 8, 3, groups=8)
    )
    net = nn.Sequential(trunk, nn.Hardswish(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 4)).eval()
    with torch.no_grad():
        net[4].weight *= 8
    example = torch.zeros(1, 3, 16, 16)
    torch.export.save(torch.export.export(net, (example,)), tmp_path / "net.pt2")

    def scores(pixels: np.ndarray) -> np.ndarray:
        return net(torch.from_numpy(pixels.transpose(0, 3, 1, 2))).detach().numpy()

    scored(tmp_path, "net.pt2", "nchw", scores)


def test_a_keras_file_with_pictures(tmp_path: Path) -> None:
    tf = pytest.importorskip("tensorflow", reason="npuflow[tensorflow] is not installed")
    layers = tf.keras.layers
    tf.keras.utils.set_random_seed(0)
    image = tf.keras.Input((16, 16, 3), name="image")
    y = layers.ReLU(6)(layers.BatchNormalization()(layers.Conv2D(8, 3, 2, "same")(image)))
    y = layers.GlobalAveragePooling2D()(layers.DepthwiseConv2D(3)(y))
    net = tf.keras.Model(
        image, layers.Dense(4, kernel_initializer=tf.keras.initializers.RandomNormal(0, 3))(y)
    )
    rng = np.random.default_rng(1)
    seen = rng.uniform(0, 1, (64, 16, 16, 3)) * rng.uniform(0.2, 1, (64, 1, 1, 3))
    weights, bias = net.layers[-1].get_weights()
    net.layers[-1].set_weights([weights, bias - net(seen.astype(np.float32), training=False).numpy().mean(0)])
    net.save(tmp_path / "net.keras")
    scored(tmp_path, "net.keras", "nhwc", lambda pixels: net(pixels, training=False).numpy())


def test_encodings_of_aimet_beside_an_onnx_file(tmp_path: Path) -> None:
    """Scales and offsets of the table are the program's own."""
    text = """<ir_version: 8, opset_import: ["" : 17]> g (float[1,3,8,8] x) => (float[1,4,8,8] y) {
        a = Conv<pads=[1,1,1,1]>(x, k) b = Relu(a) y = Sigmoid(b) }"""
    proto = parser.parse_model(text)
    weight = np.random.default_rng(0).normal(size=(4, 3, 3, 3)).astype(np.float32)
    proto.graph.initializer.append(onnx.numpy_helper.from_array(weight, "k"))
    onnx.save_model(proto, str(tmp_path / "net.onnx"))

    def row(scale: float, offset: int) -> list[dict[str, Any]]:
        ends = {"min": scale * offset, "max": scale * (offset + 255)}
        more = {"bitwidth": 8, "dtype": "int", "is_symmetric": "False"}
        return [{**more, "scale": scale, "offset": offset, **ends}]

    scales = {"x": (0.03125, -120), "b": (0.0625, 0)}
    rows = {name: row(*one) for name, one in scales.items()}
    table = {"version": "0.6.1", "activation_encodings": rows, "param_encodings": {}}
    (tmp_path / "net.encodings").write_text(json.dumps(table))
    more = '[ranges]\nfile = "net.encodings"\nformat = "aimet"\n'
    done = whole(tmp_path, "net.onnx", more, x=(3, 8, 8))
    graph = done.artifact("quantize", Quantized).graph
    quants = [value.quant for value in graph.values.values() if value.quant is not None]
    found = {(q.scale[0], -q.zero_point[0] - (128 if q.signed else 0)) for q in quants}
    assert set(scales.values()) <= found
