"""`--batch`: a program of several samples at once from a file that says 1, run on rows."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from npuflow.cli import main
from tests.networks.onnx_text import model, normal

RECIPE = """
target = "edge-4t"
[model]
path = "net.onnx"
[data]
source = "data.npz"
[simulate]
samples = 1
[rewrite_check]
samples = 0
[qdq_check]
samples = 0
[verdict]
advice = false
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("batch")
    held = {"w": normal(1, 5, 3, 3, 3), "s": np.array([1, 320], np.int64), "v": normal(2, 320, 7)}
    body = "c = Conv<kernel_shape=[3,3], pads=[1,1,1,1]>(x, w) r = Relu(c) f = Reshape(r, s) y = MatMul(f, v)"
    (folder / "net.onnx").write_bytes(model("float[1,3,8,8] x => float[1,7] y", body, held))
    (folder / "net.toml").write_text(RECIPE)
    np.savez(folder / "data.npz", x=normal(5, 16, 3, 8, 8))
    return folder


def test_a_program_of_a_batch_gives_what_one_of_single_samples_gives(
    place: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Calibrated by one sample many times: a batch of them is then like one of them."""
    np.savez(place / "same.npz", x=np.repeat(normal(5, 1, 3, 8, 8), 16, axis=0))
    (place / "same.toml").write_text(RECIPE.replace("data.npz", "same.npz"))
    words = ("build", str(place / "same.toml"), "--cache", str(place / "cache"), "-q", "--out")
    assert main([*words, str(place / "one")]) == 0
    assert main([*words, str(place / "four"), "--batch", "4"]) == 0
    found = {}
    for name in ("one", "four"):
        made = place / f"{name}.npz"
        program = str(place / name / "same/model.npu")
        assert main(["run", program, str(place / "data.npz"), "-o", str(made)]) == 0
        found[name] = np.load(made)["y"]
    assert found["four"].shape == (16, 7)
    np.testing.assert_array_equal(found["one"], found["four"])
    np.savez(place / "odd.npz", x=normal(5, 6, 3, 8, 8))
    capfd.readouterr()
    assert main(["run", str(place / "four/same/model.npu"), str(place / "odd.npz"), "-o", str(made)]) != 0
    assert "give a multiple of 4 rows" in capfd.readouterr().err


def test_inspect_and_new_know_the_batch(place: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", str(place / "net.onnx"), "--batch", "4", "--json"]) == 0
    assert json.loads(capfd.readouterr().out)["inputs"] == {"x": "float32[4, 3, 8, 8]"}
    assert main(["new", str(place / "net.onnx"), "--batch", "4", "-o", "-"]) == 0
    assert "\nbatch = 4\n" in capfd.readouterr().out


def test_a_batch_that_cannot_be_is_one_error(place: Path, capfd: pytest.CaptureFixture[str]) -> None:
    data = model("float[1,6] x => float[1,6] y", "r = Relu(x) y = Softmax<axis=0>(r)")
    (place / "mixing.onnx").write_bytes(data)
    assert main(["inspect", str(place / "mixing.onnx"), "--batch", "4"]) == 2
    told = capfd.readouterr().err
    assert "cannot be made for a batch of 4: y (softmax)" in told and "model.batch" in told
    assert told.count("error:") == 1
