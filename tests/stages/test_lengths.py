"""Recipes with a range of lengths: one program for sequences of any of them."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import parser

from npuflow import Runner
from npuflow.base.errors import DataError, ModelError, RecipeError, UsageError
from npuflow.base.tables import FilePath
from npuflow.flow.recipe import load
from npuflow.flow.recipe_build import Settings, open_cache, plan_recipe, run_plan
from npuflow.flow.stage import STAGES
from npuflow.input.data.config import InputSample
from npuflow.ir.types import TensorType, quant_of, span
from npuflow.ort import InferenceSession
from npuflow.program.container import load_program
from npuflow.program.packing.package import load_network
from npuflow.report.profile import profile
from npuflow.stages.model import ModelTable, read
from tests.networks.onnx_text import normal
from tests.tiers import often

MOST, INPUTS, HIDDEN = 24, 6, 5
RECIPE = """target = "edge-4t"
[model]
path = "net.onnx"
dims = { T = "%s" }
[data]
source = "x.npz"
"""
STRIDE = "c = Conv<pads=[1,1],strides=[2]>(x, k) t = Transpose<perm=[2,0,1]>(c) "
RNN = f"r = RNN <hidden_size={HIDDEN}> (%s, w, r_w, b) s = Squeeze(r, one) "
BODIES = {
    "layers step by step": ("T,1", RNN % "x" + "m = MatMul(s, dense) y = Relu(m)"),
    "a convolution of the input": (
        f"1,{INPUTS},T", "c = Conv<pads=[1,1]>(x, k) t = Transpose<perm=[2,0,1]>(c) " + RNN % "t"
        + "y = MatMul(s, dense)",
    ),
    "convolutions of what others make": (
        f"1,{INPUTS},T", "c = Conv<pads=[1,1]>(x, k, k_b) d = Relu(c) e = Conv<pads=[1,1]>(d, k, k_b) "
        "f = Sigmoid(e) g = Conv<pads=[1,1]>(f, k) t = Transpose<perm=[2,0,1]>(g) " + RNN % "t"
        + "y = MatMul(s, dense)",
    ),
    "a stride, every step an output": (f"1,{INPUTS},T", STRIDE + RNN % "t" + "y = MatMul(s, dense)"),
    "a stride, the last state an output": (
        f"1,{INPUTS},T", f"{STRIDE} r, h = RNN <hidden_size={HIDDEN}> (t, w, r_w, b) y = MatMul(h, dense)",
    ),
    "two strides, both directions": (
        f"1,{INPUTS},T", f"""c = Conv<pads=[1,1],strides=[2]>(x, k, k_b) d = Relu(c)
        e = Conv<pads=[1,1],strides=[2]>(d, k, k_b) f = Tanh(e) t = Transpose<perm=[2,0,1]>(f)
        r = RNN <hidden_size={HIDDEN}, direction="bidirectional"> (t, w2, r_w2, b2)
        v = Transpose<perm=[0,2,1,3]>(r) s = Reshape(v, sizes) y = MatMul(s, dense2)""",
    ),
    "the largest of some steps, and the mean": (
        f"1,{INPUTS},T", "d = Conv<pads=[1,1]>(x, k) e = MaxPool<kernel_shape=[2],strides=[2]>(d) "
        "c = AveragePool<kernel_shape=[2],strides=[2]>(e) t = Transpose<perm=[2,0,1]>(c) " + RNN % "t"
        + "y = MatMul(s, dense)",
    ),
    "largest numbers from 0 on, with a border": (
        f"1,{INPUTS},T", "d = Conv<pads=[1,1]>(x, k, k_b) e = Relu(d) "
        "c = MaxPool<kernel_shape=[3],strides=[2],pads=[1,1]>(e) t = Transpose<perm=[2,0,1]>(c) " + RNN % "t"
        + "y = MatMul(s, dense)",
    ),
    "no border": (
        f"1,{INPUTS},T", "d = Relu(x) c = Conv<strides=[2]>(d, k) e = Conv(c, k) "
        "t = Transpose<perm=[2,0,1]>(e) " + RNN % "t" + "y = MatMul(s, dense)",
    ),
    "a border for the length": (
        f"1,{INPUTS},T", 'd = Relu(x) c = Conv<strides=[2], auto_pad="SAME_LOWER">(d, k) '
        "t = Transpose<perm=[2,0,1]>(c) " + RNN % "t" + "y = MatMul(s, dense)",
    ),
    "a window over what a strided layer makes": (
        f"1,{INPUTS},T", STRIDE + RNN % "t" + "o = Transpose<perm=[1,2,0]>(s) f = Conv<pads=[1,1]>(o, k_s) "
        "g = Transpose<perm=[2,0,1]>(f) y = MatMul(g, dense)",
    ),
}
FULL = tuple(BODIES)[:3]                  # whose recurrent layers have a step for each of the sample
LEAST = {"two strides, both directions": 1, "no border": 7, "the largest of some steps, and the mean": 4}
MIXED = {
    "mean": ("T,1", RNN % "x" + "y = ReduceMean<axes=[0],keepdims=1>(s)"),
    "softmax": ("T,1", RNN % "x" + "y = Softmax<axis=0>(s)"),
    "largest": (
        f"1,{INPUTS},T", "c = Conv<pads=[1,1]>(x, k) e = MaxPool<kernel_shape=[3],pads=[1,1]>(c) "
        "t = Transpose<perm=[2,0,1]>(e) " + RNN % "t" + "y = MatMul(s, dense)",
    ),
}
MORE = {                                  # with the layer that makes more steps, and the code
    "an upsampled output": (
        f"1,{INPUTS},T", 'c = Resize<mode="nearest">(x, , scales) y = Relu(c)', "y", "NF-MODEL-494",
    ),
    "steps between others": (
        f"1,{INPUTS},T", "c = ConvTranspose<strides=[2]>(x, k) t = Transpose<perm=[2,0,1]>(c) " + RNN % "t"
        + "y = MatMul(s, dense)", "c", "NF-MODEL-547",
    ),
}


def model_at(path: Path, shape: str, body: str) -> Path:
    if shape == "T,1":
        shape = f"T,1,{INPUTS}"
    text = f'<ir_version: 8, opset_import: ["" : 17]> g (float[{shape}] x) => (float[a,b,c] y) {{ {body} }}'
    proto = parser.parse_model(text)
    weights = {
        "w": normal(1, 1, HIDDEN, INPUTS, scale=.5), "r_w": normal(2, 1, HIDDEN, HIDDEN, scale=.5),
        "b": normal(3, 1, 2 * HIDDEN), "dense": normal(4, HIDDEN, 3), "one": np.array([1], np.int64),
        "k": normal(5, INPUTS, INPUTS, 3, scale=.3) + np.float32(.1), "k_b": normal(6, INPUTS),
        "k_s": normal(7, HIDDEN, HIDDEN, 3, scale=.5), "w2": normal(1, 2, HIDDEN, INPUTS, scale=.5),
        "r_w2": normal(2, 2, HIDDEN, HIDDEN, scale=.5), "b2": normal(3, 2, 2 * HIDDEN),
        "dense2": normal(4, 2 * HIDDEN, 3), "sizes": np.array([0, 0, -1], np.int64),
        "scales": np.array([1, 1, 2], np.float32),
    }
    for name, array in weights.items():
        if re.search(rf"\b{name}\b", body):
            proto.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    onnx.save_model(proto, str(path))
    return path


def sample(shape: str, steps: int, seed: int = 0) -> np.ndarray:
    sizes = [1, INPUTS, steps] if shape != "T,1" else [steps, 1, INPUTS]
    return normal(seed, *sizes)


@pytest.mark.parametrize("name", often(reversed(BODIES), 12))
def test_one_program_runs_every_length(tmp_path: Path, name: str) -> None:
    shape, body = BODIES[name]
    model_at(tmp_path / "net.onnx", shape, body)
    np.savez(tmp_path / "x.npz", x=np.stack([sample(shape, MOST, k) for k in range(16)]))
    least = LEAST.get(name, 1)
    (tmp_path / "net.toml").write_text(RECIPE % f"{least}..{MOST}")
    settings, loaded = Settings(cache=tmp_path / "cache"), load(tmp_path / "net.toml", [])
    plan = plan_recipe(loaded, STAGES, settings)
    run_plan(plan, loaded, open_cache(loaded, settings), settings, lambda event: None).check()
    file = tmp_path / "out" / "net" / "model.npu"
    runner, commands, session = Runner(file), Runner(file, exact="simulator"), InferenceSession(str(file))
    said = [size if isinstance(size, int) else -1 for size in session.get_outputs()[0].shape]
    assert said == list(runner.outputs[0].shape)
    source, program = Runner(tmp_path / "net.onnx"), load_program(file)
    low, high = span(quant_of(program.meta["values"]["y:q"]["quant"]))      # codes reach no further
    assert -1 in runner.inputs[0].shape and [port.name for port in runner.inputs] == ["x"]
    for steps in sorted({least, least + 1, 7, 16, MOST - 1, MOST}):
        x = sample(shape, steps, 50 + steps)
        y = runner.run({"x": x})["y"]
        np.testing.assert_array_equal(commands.run({"x": x})["y"], y)
        np.testing.assert_array_equal(session.run(None, {"x": x})[0], y)
        wanted = np.clip(source.run({"x": x})["y"], low, high)
        assert y.shape == wanted.shape
        assert np.abs(y - wanted).max() < .15 * max(1.0, np.abs(wanted).max())
    for steps in (least - 1, MOST + 1):
        with pytest.raises(DataError, match=f"T = {steps}: the program runs {least} to {MOST} steps"):
            runner.run({"x": sample(shape, steps)})
    (length,) = program.meta["lengths"]
    few, most = (profile(program.at({length["input"]: n})).cycles for n in (max(least, 4), MOST))
    assert few < .8 * most if name in FULL else few <= most
    np.testing.assert_array_equal(
        load_network(f"{file}#T={least}").commands[0], program.at({length["input"]: least}).commands[0]
    )
    with pytest.raises(UsageError, match=f'no "T={MOST + 1}"'):
        load_network(f"{file}#T={MOST + 1}")


@pytest.mark.parametrize(("name", "layer"), [("mean", "y"), ("softmax", "y"), ("largest", "e")])
def test_a_layer_that_mixes_steps_is_refused_by_its_name(tmp_path: Path, name: str, layer: str) -> None:
    path = model_at(tmp_path / "net.onnx", *MIXED[name])
    table = ModelTable(path=FilePath(str(path), path), dims={"T": f"1..{MOST}"})
    with pytest.raises(ModelError, match=r"T cannot be free: .* mixes steps") as fault:
        read(table, path, table.bindings)
    assert fault.value.where.value == layer


@pytest.mark.parametrize("most", [MOST, MOST + 1])
@pytest.mark.parametrize("name", MORE)
def test_a_layer_that_makes_more_steps_is_refused_by_its_name(tmp_path: Path, name: str, most: int) -> None:
    shape, body, value, code = MORE[name]
    path = model_at(tmp_path / "net.onnx", shape, body)
    table = ModelTable(path=FilePath(str(path), path), dims={"T": f"3..{most}"})
    with pytest.raises(ModelError, match=r"T cannot be free: ") as fault:
        read(table, path, table.bindings)
    assert fault.value.where.value == value and fault.value.code == code


@pytest.mark.parametrize("most", [MOST, MOST + 1])
def test_a_border_that_begins_elsewhere_at_other_lengths_is_refused(tmp_path: Path, most: int) -> None:
    body = 'd = Relu(x) c = Conv<strides=[2], auto_pad="SAME_UPPER">(d, k) t = Transpose<perm=[2,0,1]>(c) '
    path = model_at(tmp_path / "net.onnx", f"1,{INPUTS},T", body + RNN % "t" + "y = MatMul(s, dense)")
    table = ModelTable(path=FilePath(str(path), path), dims={"T": f"3..{most}"})
    with pytest.raises(ModelError, match=r"the border of c depends on the length") as fault:
        read(table, path, table.bindings)
    assert fault.value.code == "NF-MODEL-552" and "multiple of 2 steps" in fault.value.hint


@pytest.mark.parametrize(("name", "least"), [
    ("no border", 7), ("the largest of some steps, and the mean", 4),
])
def test_a_range_that_begins_too_low_says_where_it_may_begin(tmp_path: Path, name: str, least: int) -> None:
    path = model_at(tmp_path / "net.onnx", *BODIES[name])
    table = ModelTable(path=FilePath(str(path), path), dims={"T": f"1..{MOST}"})
    with pytest.raises(ModelError, match=r"T = 1 is too short") as fault:
        read(table, path, table.bindings)
    assert fault.value.code == "NF-MODEL-553" and f'T = "{least}..{MOST}"' in fault.value.hint
    assert read(replace(table, dims={"T": f"{least}..{MOST}"}), path, table.bindings).reading.graph.lengths


@pytest.mark.parametrize("said", ["1..x", "9..3", "0..3"])
def test_what_is_no_range_is_an_error_with_its_place(tmp_path: Path, said: str) -> None:
    model_at(tmp_path / "net.onnx", *BODIES["layers step by step"])
    np.savez(tmp_path / "x.npz", x=sample("T,1", MOST)[None])
    (tmp_path / "net.toml").write_text(RECIPE % said)
    with pytest.raises(RecipeError, match=r"is no range of lengths.*net.toml line=4"):
        plan_recipe(load(tmp_path / "net.toml", []), STAGES, Settings(cache=tmp_path / "cache"))


def test_samples_of_several_lengths_are_filled(tmp_path: Path) -> None:
    kinds = {"x": TensorType((9, 1, 4)), "z": TensorType((4, 4)), "T<=9": TensorType((1,), "int32")}
    given = {"x": np.ones((5, 1, 4), np.float32), "z": np.ones((4, 4), np.float32)}
    fed = InputSample(given).feed(kinds)
    assert fed["T<=9"].tolist() == [5] and fed["x"][:, 0, 0].tolist() == [1] * 5 + [0] * 4
    np.testing.assert_array_equal(fed["z"], given["z"])
    assert InputSample({**given, "x": np.ones((9, 1, 4), np.float32)}).feed(kinds)["T<=9"].tolist() == [9]
    assert not list(InputSample(given).misfits(kinds))
    assert InputSample({}, noise=1).feed(kinds)["T<=9"].tolist() == [9]
