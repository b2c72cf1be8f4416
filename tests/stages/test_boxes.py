"""Recipes with [postprocess]: boxes from the file to the runner, on the NPU and on the host."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from npuflow import Runner
from npuflow.ir.types import Array
from npuflow.program.container import load_program
from npuflow.run.fixed_outputs import with_fixed_outputs
from npuflow.run.interpret import Interpreter, host_session
from npuflow.stages.evaluate import Evaluation
from npuflow.stages.placement import Placement
from npuflow.stages.rewrite_check import RewriteCheck
from npuflow.stages.simulate import Simulation
from npuflow.testing.stage import built, check_deterministic, check_products
from tests.heads import numpy_boxes as own
from tests.stages.builds import made, products
from tests.tiers import often

BODY = "c = Conv<kernel_shape=[8,8], strides=[8,8]>(image, k, b) out = Reshape(c, s)"
RNG = np.random.default_rng(5)


def recipe(folder: Path, place: str, target: str = "edge-4t") -> Path:
    """A detector of one convolution with heads as YOLOv8 exports them."""
    rows = 4 + 3
    weights = {
        "k": RNG.normal(0, 0.05, (rows, 3, 8, 8)), "b": np.array([30, 30, 20, 20, 0.4, 0.4, 0.4]),
        "s": np.array([1, rows, 96]),
    }
    text = f"g (float[1,3,64,96] image) => (float[1,{rows},96] out) {{ {BODY} }}"
    proto = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]> {text}')
    for name, array in weights.items():
        plain = array.astype(np.float32 if name != "s" else np.int64)
        proto.graph.initializer.append(onnx.numpy_helper.from_array(plain, name))
    onnx.save(proto, str(folder / "net.onnx"))
    images = RNG.uniform(0, 1, (6, 3, 64, 96)).astype(np.float32)
    labels = np.tile([[[0, 0, 20, 20, 0]]], (6, 1, 1))
    np.savez(folder / "data.npz", image=images, label=labels)
    path = folder / "net.toml"
    path.write_text(
        f'target = "{target}"\n[model]\npath = "net.onnx"\n[data]\nsource = "data.npz"\n'
        f'[postprocess]\nkind = "yolov8"\nplace = "{place}"\n[postprocess.yolov8]\nstrides = [8]\n'
        '[evaluate]\nsource = "data.npz"\nmetric = "detection"\n[evaluate.detection]\ndecoder = "boxes"\n'
    )
    return path


@pytest.mark.parametrize("place", often(["npu", "host"], 2))
def test_boxes_of_a_program(tmp_path: Path, place: str) -> None:
    """They are those of numpy, fed the program's own dequantised head. Held-out samples judge what
    suppression reads: corners and scores of every box."""
    path = recipe(tmp_path, place)
    done = made(path, until="report")
    placement, simulation, check = products(path, done, "placement", "simulate", "rewrite_check")
    assert isinstance(simulation, Simulation) and simulation.summary()["different"] == 0
    assert isinstance(check, RewriteCheck) and not check.reason and not check.summary().get("warning")
    assert isinstance(placement, Placement)
    decoding = [p for p in placement.placed.places if p.node.startswith("boxes/")]
    hosted = [p for p in decoding if not p.on_npu]
    assert any("depends on their scores" in p.reason for p in hosted)
    assert any(p.on_npu for p in decoding) == (place == "npu")
    (quantized,) = products(path, done, "correct")
    values = {v.id: v.quant.bits for v in quantized.graph.values.values() if v.quant is not None}
    wide = [name for name, bits in values.items() if name.startswith("boxes/") and bits == 16]
    assert bool(wide) == (place == "npu")
    parsed, verdict, evaluation = products(path, done, "pixels", "verdict", "evaluate")
    names = with_fixed_outputs(parsed.graph).outputs
    assert [parsed.graph.type(name).shape for name in names] == [(1, 96, 4), (1, 3, 96)]
    assert [one.output.name for one in verdict.outputs] == list(names)
    assert isinstance(evaluation, Evaluation) and "f1" in evaluation.score.figures
    assert not evaluation.score.sqnr_db
    images = np.load(tmp_path / "data.npz")["image"]
    program = next(tmp_path.rglob("*.npu"))
    for image in images[:3]:
        feed = {"image": image[None]}
        boxes = Runner(program).run(feed)["boxes"]
        raw = head_of(quantized.graph, program, feed)
        wanted = own.boxes_of(own.yolov8_decoded({"out": raw}), 0.25, 0.45)
        assert boxes.shape == wanted.shape and len(boxes) > 2
        np.testing.assert_array_equal(boxes[:, 5], wanted[:, 5])
        np.testing.assert_allclose(boxes, wanted, atol=1e-3 if place == "host" else 0.02, rtol=1e-4)


def head_of(graph: Any, program: Path, feed: dict[str, Array]) -> Array:
    """The program's own codes of the raw head, as real numbers."""
    interpreter = Interpreter(graph, load_program(program).target.numerics)
    name = next(v for v in ("out:q", "out") if v in graph.values and graph.values[v].quant is not None)
    kept = interpreter.run(feed, keep=lambda v: v == name)
    quant = graph.values[name].quant
    return np.asarray((kept[name].astype(np.float64) - quant.zero_point[0]) * quant.scale[0])


@pytest.mark.slow
@pytest.mark.parametrize("place", ["npu", "host"])
def test_boxes_at_several_shapes(tmp_path: Path, place: str) -> None:
    """Also at one larger than the first, which calibration saw: cells lie farther away there."""
    path = recipe(tmp_path, place)
    text = """<ir_version: 8, opset_import: ["" : 17]> g (float[1,3,H,W] image) => (float[1,N,8] out) {
        c = Conv<kernel_shape=[32,32], strides=[32,32]>(image, k, b) d = Reshape(c, s)
        out = Transpose<perm=[0,2,1]>(d) }"""
    model = onnx.parser.parse_model(text)
    weights = {
        "k": RNG.normal(0, 0.005, (8, 3, 32, 32)), "b": np.array([0.5, 0.5, -0.5, -0.6, 0.9, 0.5, 0.6, 0.4]),
        "s": np.array([1, 8, -1]),
    }
    for name, array in weights.items():
        plain = array.astype(np.float32 if name != "s" else np.int64)
        model.graph.initializer.append(onnx.numpy_helper.from_array(plain, name))
    onnx.save(model, str(tmp_path / "net.onnx"))
    shapes = "shapes = [{ H = 64, W = 96 }, { H = 96, W = 160 }]"
    said = path.read_text().replace("[data]", f"{shapes}\n[data]", 1).split("[evaluate]", maxsplit=1)[0]
    path.write_text(said.replace("yolov8", "yolox").replace("strides = [8]", "strides = [32]"))
    (packed,) = products(path, made(path, until="package"), "package")
    file = path.with_suffix(".npu")
    file.write_bytes(packed.package.to_bytes())
    for size in ((64, 96), (96, 160)):
        feed = {"image": np.random.default_rng(size[0]).uniform(0, 1, (1, 3, *size)).astype(np.float32)}
        boxes = Runner(file).run(feed)["boxes"]
        np.testing.assert_array_equal(Runner(file, exact="simulator").run(feed)["boxes"], boxes)
        (head,) = host_session(model.SerializeToString()).run(["out"], feed)
        cells = [(x, y) for y in range(size[0] // 32) for x in range(size[1] // 32)]
        centres = 32 * (head[0, :, :2] + cells)
        assert boxes[:, 2].max() > size[1] - 20 and boxes[:, 3].max() > size[0] - 20
        found = (boxes[:, :2] + boxes[:, 2:4]) / 2
        inside = (boxes[:, 0] > 0) & (boxes[:, 1] > 0) & (boxes[:, 2] < size[1]) & (boxes[:, 3] < size[0])
        nearest = np.abs(found[inside][:, None] - centres[None]).max(2).min(1)
        assert inside.sum() > 2 and nearest.max() < 3.0


def test_the_stages_are_deterministic_and_their_products_are_whole(tmp_path: Path) -> None:
    path = recipe(tmp_path, "npu")
    one, other = (built(path, tmp_path / name, "box_codes") for name in ("one", "other"))
    for stage in ("boxes", "box_codes"):
        check_deterministic(one, other, stage)
        check_products(one, stage)
