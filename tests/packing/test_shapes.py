"""One network built at several shapes and packed: the shape of an input chooses the program."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import parser
from typer.testing import CliRunner

import npuflow
from npuflow.base.errors import DataError
from npuflow.cli._app import application
from npuflow.ort import InferenceSession
from npuflow.runner.opening import opened
from tests.stages.builds import made, products

TEXT = """<ir_version: 8, opset_import: ["" : 17]> g (float[1,3,H,W] x) => (float[1,4,H,W] y) {
    a = Conv<pads=[1,1,1,1]>(x, k) y = Relu(a) }"""
RECIPE = """target = "edge-4t"
[model]
path = "net.onnx"
inputs.x = [1, 3, %d, %d]
[data]
source = "x%d.npy"
[calibrate]
method = "minmax"
"""
SIZES = (8, 12)


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder, rng = tmp_path_factory.mktemp("shapes"), np.random.default_rng(0)
    proto = parser.parse_model(TEXT)
    weights = rng.normal(size=(4, 3, 3, 3)).astype(np.float32)
    proto.graph.initializer.append(onnx.numpy_helper.from_array(weights, "k"))
    onnx.save_model(proto, str(folder / "net.onnx"))
    for size in SIZES:
        data = np.clip(rng.normal(size=(4, 3, size, size)), -2, 2).astype(np.float32)
        data[:, :, 0, 0], data[:, :, 0, 1] = -2, 2
        np.save(folder / f"x{size}.npy", data)
        recipe = folder / f"net{size}.toml"
        recipe.write_text(RECIPE % (size, size, size))
        (compiled,) = products(recipe, made(recipe, until="codegen"), "codegen")
        compiled.program.save(folder / f"net{size}.npu")
    files = [str(folder / f"net{size}.npu") for size in SIZES]
    done = CliRunner().invoke(application(), ["pack", *files, "-o", str(folder / "net.npu")])
    assert done.exit_code == 0, done.output
    return folder / "net.npu"


def sample(size: int) -> dict[str, np.ndarray]:
    return {"x": np.random.default_rng(size).normal(size=(1, 3, size, size)).astype(np.float32)}


@pytest.mark.parametrize("exact", ["executor", "simulator"])
def test_the_shape_chooses_the_program(file: Path, exact: str) -> None:
    model = opened(file, exact)
    assert model.inputs[0].shape == (1, 3, -1, -1)
    order = (12, 8, 8, 12)
    found = model.run([model.fed(sample(size)) for size in order], False)
    for size, one in zip(order, found, strict=True):
        alone = opened(file.with_name(f"net{size}.npu"), exact)
        (want,) = alone.run([alone.fed(sample(size))], False)
        np.testing.assert_array_equal(one["y"], want["y"])


def test_runner_and_session_follow(file: Path) -> None:
    with npuflow.Runner(file) as runner:
        assert [runner.run(sample(size))["y"].shape[2] for size in SIZES] == list(SIZES)
    session = InferenceSession(str(file))
    for size in SIZES:
        assert session.run(None, sample(size))[0].shape == (1, 4, size, size)


def test_another_shape_lists_those_there_are(file: Path) -> None:
    model = opened(file)
    with pytest.raises(DataError, match="x 1x3x9x9") as caught:
        model.fed(sample(9))
    assert "1x3x8x8" in caught.value.because and "1x3x12x12" in caught.value.because


def test_run_takes_files_of_any_listed_shape(file: Path, tmp_path: Path) -> None:
    np.savez(tmp_path / "in.npz", **sample(12))
    words = ["run", str(file), str(tmp_path / "in.npz"), "-o", str(tmp_path / "out.npz")]
    done = CliRunner().invoke(application(), words)
    assert done.exit_code == 0, done.output
    assert np.load(tmp_path / "out.npz")["y"].shape == (1, 4, 12, 12)
