"""What is wrong with data and model inputs is reported with the recipe's other
faults, at the key that has it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

from npuflow import build
from npuflow.base.errors import NpuflowError, RecipeError
from npuflow.base.tables_toml import dotted, path_of
from npuflow.flow.recipe import load
from npuflow.flow.recipe_build import Settings, open_cache
from npuflow.stages.fidelity import Fidelity
from npuflow.stages.statistics import Statistics
from npuflow.stages.thresholds import Thresholds


def recipe(folder: Path, more: str = "", source: str = "nothing") -> Path:
    value = onnx.helper.make_tensor_value_info
    node = onnx.helper.make_node("Relu", ["input.1"], ["y"])
    graph = onnx.helper.make_graph([node], "g", [value("input.1", 1, [1, 4])], [value("y", 1, [1, 4])])
    onnx.save(
        onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)]), folder / "m.onnx"
    )
    np.save(folder / "d.npy", np.zeros((4, 4), np.float32))
    path = folder / "r.toml"
    path.write_text(f'target = "edge-4t"\n[model]\npath = "m.onnx"\n{more}\n[data]\nsource = "{source}"\n')
    return path


def test_missing_data_are_a_fault_among_others(tmp_path: Path) -> None:
    path = recipe(tmp_path)
    path.write_text(path.read_text() + '[calibrate]\nmethod = "foo"\n')
    with pytest.raises(RecipeError) as caught:
        build(path, cache=tmp_path / "cache", out=tmp_path / "out")
    assert {fault.where.key for fault in caught.value.faults()} == {"data.source", "calibrate.method"}
    assert {fault.where.line for fault in caught.value.faults()} == {6, 8}


@pytest.mark.parametrize(
    ("more", "key"),
    [
        ('inputs = { "input.2" = [1, 4] }', 'model.inputs."input.2"'),
        ('inputs = { "input.1" = [1, 5] }', 'model.inputs."input.1"'),
        ('outputs = ["z"]', "model.outputs"),
        ("constants = { nothing = 1.0 }", "model.constants.nothing"),
    ],
)
def test_faults_of_model_inputs_point_at_their_keys(tmp_path: Path, more: str, key: str) -> None:
    with pytest.raises(NpuflowError) as caught:
        build(recipe(tmp_path, more, "d.npy"), cache=tmp_path / "cache", out=tmp_path / "out", until="parse")
    assert (caught.value.where.key, caught.value.where.line) == (key, 4)


@pytest.mark.parametrize("path", [("a", "b.c", 3, "d"), ('say "x"', "y"), ("data", "steps", 0, "resize")])
def test_a_dotted_key_is_read_back(path: tuple[str | int, ...]) -> None:
    assert path_of(dotted(path)) == path


def test_activations_that_are_no_numbers_are_warned_of(tmp_path: Path) -> None:
    value = onnx.helper.make_tensor_value_info
    nodes = [onnx.helper.make_node("Log", ["x"], ["l"], "log"), onnx.helper.make_node("Relu", ["l"], ["y"])]
    graph = onnx.helper.make_graph(nodes, "g", [value("x", 1, [1, 4])], [value("y", 1, [1, 4])])
    onnx.save(
        onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)]), tmp_path / "m.onnx"
    )
    data = np.random.default_rng(0).normal(size=(16, 4)).astype(np.float32)
    data[0] = 1
    np.save(tmp_path / "d.npy", data)
    path = tmp_path / "r.toml"
    path.write_text('target = "edge-4t"\n[model]\npath = "m.onnx"\n[data]\nsource = "d.npy"\n')
    result = build(path, cache=tmp_path / "cache", out=tmp_path / "out", until="fidelity")
    store = open_cache(load(path), Settings(cache=tmp_path / "cache"))
    statistics = store.load(result.outputs["statistics"], Statistics)
    seen = [int(name.partition("#")[2]) for name in statistics.content.samples]
    nan = int((data[seen] < 0).sum())
    said = store.load(result.outputs["thresholds"], Thresholds).summary()["warning"]
    assert f"{nan} NaN" in said and "not numbers" in said
    found = store.load(result.outputs["fidelity"], Fidelity).tensors
    assert sum(one.strange for one in found.values()) > 0
    assert all(one.sqnr is None or np.isfinite(one.sqnr) for one in found.values())
