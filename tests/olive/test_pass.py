"""A pass of Olive: models with EPContext nodes and in QDQ form, alone and in a workflow."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("olive", reason="the extra olive is not installed")
pytest.importorskip("torch", reason="the extra olive is not installed")

import onnx
import onnxruntime
from olive.model import ONNXModelHandler
from olive.passes.olive_pass import create_pass_from_dict
from olive.workflows import run

import npuflow
import npuflow.ort
from npuflow.apps.olive import NpuflowCompile, package_config
from npuflow.base.errors import DataError, UsageError
from tests.olive.models import data, drawn, saved


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("olive")
    saved(made / "net.onnx")
    return made


def passed(folder: Path, output: str, **config: Any) -> Path:
    """The path of the model that the pass makes."""
    known = {"target": "edge-4t", "cache": str(folder / "cache"), **config}
    made = create_pass_from_dict(NpuflowCompile, known, disable_search=True)
    return Path(made.run(ONNXModelHandler(str(folder / "net.onnx")), str(folder / output)).model_path)


@pytest.mark.parametrize("external", [False, True])
def test_nodes_that_are_compiled(folder: Path, external: bool) -> None:
    """Their bits are those of the program that npuflow builds of the same samples."""
    path = passed(folder, f"context{external}", data_config=data(), external=external)
    assert [node.op_type for node in onnx.load(path).graph.node] == ["EPContext"]
    assert (path.parent / "model_context.npu").is_file() == external
    samples = np.stack([drawn(seed)[None] for seed in range(8)])
    build = npuflow.compile(
        folder / "net.onnx", "edge-4t", data={"x": samples}, cache=folder / "cache", out=folder / "out",
        until="codegen",
    )
    x = drawn(100)[None]
    want = npuflow.Runner(build.program).run({"x": x})["y"]
    (got,) = npuflow.ort.InferenceSession(str(path)).run(None, {"x": x})
    np.testing.assert_array_equal(got, want)


def test_a_quantised_model_in_a_workflow(folder: Path) -> None:
    """Olive's own engine runs the pass by its name, and writes what onnxruntime runs."""
    config = {
        "input_model": {"type": "OnnxModel", "model_path": str(folder / "net.onnx")},
        "data_configs": [data()],
        "passes": {
            "npu": {
                "type": "NpuflowCompile", "target": "edge-4t", "form": "qdq", "data_config": "drawn",
                "cache": str(folder / "cache"), "tables": {"quantize": {"activations": {"bits": 16}}},
            }
        },
        "output_dir": str(folder / "workflow"),
        "cache_dir": str(folder / "olive"),
    }
    run(config, package_config=package_config())
    path = folder / "workflow" / "model.onnx"
    model = onnx.load(path)
    assert "QuantizeLinear" in {node.op_type for node in model.graph.node}
    wide = {onnx.TensorProto.INT16, onnx.TensorProto.UINT16}
    assert wide & {one.data_type for one in model.graph.initializer}
    feed = {"x": drawn(100)[None]}
    (got,) = onnxruntime.InferenceSession(path).run(None, feed)
    (want,) = onnxruntime.InferenceSession(folder / "net.onnx").run(None, feed)
    assert np.abs(got - want).max() < 0.05


def test_samples_of_a_recipes_table(folder: Path) -> None:
    np.save(folder / "x.npy", np.stack([drawn(seed)[None] for seed in range(8)]))
    path = passed(folder, "table", tables={"data": {"source": str(folder / "x.npy")}})
    feed = {"x": drawn(100)[None]}
    (got,) = npuflow.ort.InferenceSession(str(path)).run(None, feed)
    (want,) = onnxruntime.InferenceSession(folder / "net.onnx").run(None, feed)
    assert np.abs(got - want).max() < 0.1


def test_another_form(folder: Path) -> None:
    with pytest.raises(UsageError, match='no form "tflite"'):
        passed(folder, "none", form="tflite", data_config=data())


def test_samples_of_other_inputs(folder: Path) -> None:
    with pytest.raises(DataError, match='no samples of input "x"'):
        passed(folder, "none", data_config=data("pixels"))
