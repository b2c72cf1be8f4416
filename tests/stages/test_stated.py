"""Faults that need the model come together, right after it is parsed, each at its key."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

from npuflow import build
from npuflow.base.errors import RecipeError
from npuflow.flow.events import Event, StepEvent
from npuflow.flow.recipe import load
from npuflow.flow.recipe_build import Settings, open_cache, plan_recipe, run_plan
from npuflow.flow.stage import STAGES


def recipe(folder: Path, more: str = "", model: str = "", width: int = 4) -> Path:
    value = onnx.helper.make_tensor_value_info
    weight = onnx.numpy_helper.from_array(np.eye(4, dtype=np.float32), "w")
    nodes = [
        onnx.helper.make_node("MatMul", ["x", "w"], ["m"], "product"),
        onnx.helper.make_node("Tanh", ["m"], ["t"], "tanh"),
        onnx.helper.make_node("Det", ["t"], ["d"], "det"),
        onnx.helper.make_node("Add", ["t", "d"], ["y"], "add"),
    ]
    graph = onnx.helper.make_graph(nodes, "g", [value("x", 1, [4, 4])], [value("y", 1, [4, 4])], [weight])
    onnx.save(
        onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)]), folder / "m.onnx"
    )
    rng = np.random.default_rng(0)
    np.save(folder / "d.npy", rng.normal(size=(8, 4, width)).astype(np.float32))
    path = folder / "r.toml"
    path.write_text(
        f'target = "edge-4t"\n[model]\npath = "m.onnx"\n{model}\n[data]\nsource = "d.npy"\n{more}'
    )
    return path


WRONG = """[calibrate]
layers = [{ layers = ["tanj"], method = "minmax" }, { layers = ["*nothing*"], method = "kl" }]
[quantize]
weights = { signed = false }
overrides = [{ layers = ["produkt"], bits = 16 }]
[tiling]
keep = ["q"]
groups = [["product", "prduct"], ["det"]]
tiles = { "tan" = { d0 = 2 } }
"""
KEYS = {
    "quantize.weights.signed",
    "calibrate.layers[0].layers",
    "calibrate.layers[1].layers",
    "quantize.overrides[0].layers",
    "tiling.tiles.tan",
    "tiling.groups[0][1]",
    "tiling.groups[1][0]",
    "tiling.keep[0]",
}


def ran(path: Path, folder: Path) -> tuple[list[str], RecipeError]:
    loaded, settings = load(path), Settings(cache=folder / "cache", out=folder / "out", jobs=1)
    plan, events = plan_recipe(loaded, STAGES, settings), list[Event]()
    with pytest.raises(RecipeError) as caught:
        run_plan(plan, loaded, open_cache(loaded, settings), settings, events.append).check()
    return [e.stage for e in events if isinstance(e, StepEvent) and e.status == "ran"], caught.value


def test_all_faults_come_at_once_before_anything_dear(tmp_path: Path) -> None:
    steps, error = ran(recipe(tmp_path, WRONG, width=5), tmp_path)
    assert {fault.where.key for fault in error.faults()} == KEYS | {"data"}
    assert all(fault.where.line is not None and fault.where.file for fault in error.faults())
    assert set(steps) <= {
        "hardware", "model", "page_library", "parse", "samples", "splits", "fit", "choose", "verify",
    }
    hints = {fault.where.key: fault.hint for fault in error.faults()}
    assert (
        hints["calibrate.layers[0].layers"] == '"tanh"'
        and hints["quantize.overrides[0].layers"] == '"product"'
    )
    assert '"det" does not run on the NPU' in str(error) and "the sample is float32 [4, 5]" in str(error)


def test_every_input_that_the_data_lack_is_named(tmp_path: Path) -> None:
    path = recipe(tmp_path)
    value = onnx.helper.make_tensor_value_info
    node = onnx.helper.make_node("Sum", ["a", "b", "c"], ["y"], "sum")
    ports = [value(name, 1, [1, 4]) for name in "abc"]
    graph = onnx.helper.make_graph([node], "g", ports, [value("y", 1, [1, 4])])
    onnx.save(
        onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)]), tmp_path / "m.onnx"
    )
    np.savez(tmp_path / "d.npz", a=np.zeros((8, 4), np.float32), b=np.zeros((8, 5), np.float32))
    path.write_text(path.read_text().replace("d.npy", "d.npz"))
    _, error = ran(path, tmp_path)
    reported = [fault.message for fault in error.faults()]
    assert reported == [
        'a sample does not fit the model input "b"',
        'the samples have no array for the model input "c"',
    ]


@pytest.mark.parametrize("wrong", [9, -8])
def test_an_index_outside_of_its_table_is_named_before_anything_dear_runs(tmp_path: Path, wrong: int) -> None:
    """By the input's name and the sample's, not by that of what the compiler makes of the input."""
    path = recipe(tmp_path)
    value = onnx.helper.make_tensor_value_info
    nodes = [
        onnx.helper.make_node("Transpose", ["a"], ["turned"], perm=[1, 0]),
        onnx.helper.make_node("Gather", ["t", "turned"], ["e"]),
        onnx.helper.make_node("ReduceSum", ["e", "axes"], ["y"], keepdims=0),
    ]
    held = [
        onnx.numpy_helper.from_array(np.ones((7, 4), np.float32), "t"),
        onnx.numpy_helper.from_array(np.array([0]), "axes"),
    ]
    graph = onnx.helper.make_graph(nodes, "g", [value("a", 7, [1, 5])], [value("y", 1, [1, 4])], held)
    onnx.save(
        onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)]), tmp_path / "m.onnx"
    )
    numbers = np.tile(np.array([0, 6, -7, 3, 1]), (8, 1))
    numbers[1, 2] = wrong
    np.savez(tmp_path / "d.npz", a=numbers)
    path.write_text(path.read_text().replace("d.npy", "d.npz"))
    steps, error = ran(path, tmp_path)
    (fault,) = error.faults()
    assert "statistics" not in steps
    assert fault.message == f'"a" has the index {wrong}; the table has 7 rows'
    assert fault.where.item == "d.npz#1"


def test_a_recipe_without_faults_runs_on_the_same_graph(tmp_path: Path) -> None:
    result = build(recipe(tmp_path), cache=tmp_path / "cache", out=tmp_path / "out", until="placement")
    assert result.outputs["checked"] == result.outputs["parse"]
    changed = build(
        recipe(tmp_path, "[quantize]\nactivations = { bits = 6 }\n"),
        cache=tmp_path / "cache",
        out=tmp_path / "out",
        until="placement",
    )
    assert changed.ran == 1, "only the check itself depends on the table"


def test_all_faults_of_the_model_table_come_at_once(tmp_path: Path) -> None:
    model = 'inputs = { "x" = [4, 5], "u" = [1] }\noutputs = ["z", "t", "yy"]\nconstants = { v = 1.0 }'
    _, error = ran(recipe(tmp_path, model=model), tmp_path)
    reported = [(fault.where.key, fault.where.line) for fault in error.faults()]
    assert reported == [
        ("model.inputs.u", 4),
        ("model.constants.v", 6),
        ("model.inputs.x", 4),
        *[("model.outputs", 5)] * 2,
    ]


def test_a_recipe_without_data_is_checked_too(tmp_path: Path) -> None:
    path = recipe(tmp_path, '[calibrate]\nlayers = [{ layers = ["tanj"] }]\n')
    path.write_text(path.read_text().replace('[data]\nsource = "d.npy"\n', ""))
    with pytest.raises(RecipeError, match='no layer is called "tanj"'):
        build(path, cache=tmp_path / "cache", out=tmp_path / "out", until="placement")


def test_a_source_that_is_not_there_is_one_fault(tmp_path: Path) -> None:
    path = recipe(tmp_path, '[calibrate]\nmethod = "foo"\n')
    path.write_text(path.read_text().replace("d.npy", "e.npy"))
    with pytest.raises(RecipeError) as caught:
        build(path, cache=tmp_path / "cache", out=tmp_path / "out")
    assert [fault.where.key for fault in caught.value.faults()] == ["calibrate.method", "data.source"]
