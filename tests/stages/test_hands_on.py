"""Components with a function between them: a sample of the first has any number of rows for the second."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from npuflow import Runner
from npuflow.base.errors import UsageError
from npuflow.cli._app import application
from npuflow.onnx.session import opened as session_of
from tests.stages.test_components import ENCODER, PLAIN_DECODER, built, faults, model

RECIPE = """
target = "edge-4t"
[correct]
bias = "off"
[components.finder]
hands_on = "python:parts.py:parts"
model = { path = "encoder.onnx" }
data = { source = "x.npz", count = 24 }
evaluate = { source = "x.npz" }
[components.reader]
inputs = { memory = "finder.part", token = "finder.token" }
model = { path = "decoder.onnx" }
evaluate = { metric = "top1" }
"""
KEY = "components.finder.hands_on"
FUNCTION = """
import numpy as np

def parts(arrays, label):
    for value in arrays["h"][0]:
        if value > 0:
            part = np.full((1, 4), value, np.float32)
            yield {"part": part, "token": arrays["x"][:, :4], "other": value}, int(value > 1)
"""


def project(folder: Path, function: str = FUNCTION) -> Path:
    model(ENCODER, folder / "encoder.onnx", 1, 6, 4)
    model(PLAIN_DECODER, folder / "decoder.onnx", 2, 4, 3)
    x = np.random.default_rng(0).normal(size=(30, 6)).astype(np.float32)
    x[3] = 0                                              # nothing is found in it
    np.savez(folder / "x.npz", x=x)
    (folder / "parts.py").write_text(function)
    (folder / "pair.toml").write_text(RECIPE)
    return folder / "pair.toml"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, dict[str, Any]]]:
    """The recipe, built, and how its steps ended."""
    recipe = project(tmp_path_factory.mktemp("made"))
    return recipe, built(recipe)


def test_the_second_is_calibrated_and_scored_on_what_the_function_makes(
    made: tuple[Path, dict[str, dict[str, Any]]]
) -> None:
    (recipe, ended), tmp_path = made, made[0].parent
    session, x = session_of(tmp_path / "encoder.onnx"), np.load(tmp_path / "x.npz")["x"]
    want = [
        (value, row[:4]) for row in x for value in session.run(["h"], {"x": row[None]})[0][0] if value > 0
    ]
    held = np.load(tmp_path / "out/pair/finder/evaluation-outputs.npz")
    assert sorted(held) == ["label", "npuflow:count", "npuflow:position", "part", "token"]
    assert held["npuflow:position"].tolist() == list(range(len(want))) and held["npuflow:count"] == len(want)
    np.testing.assert_allclose(held["part"][:, 0, 0], [value for value, _ in want], rtol=1e-6)
    np.testing.assert_array_equal(held["token"][:, 0], [token for _, token in want])
    assert held["label"].tolist() == [int(value > 1) for value, _ in want]
    assert len(np.load(tmp_path / "out/pair/finder/outputs.npz")["part"]) < len(want)
    assert ended["reader"]["evaluate"] == "ran" and built(recipe)[""]["summary"]["ran"] == 0
    # nothing in the file feeds what the function makes: the caller does
    file = tmp_path / "out/pair/model.npu"
    found = Runner(f"{file}#finder").run({"x": x[:1]})["h"]
    read = Runner(f"{file}#reader").run({"memory": np.full((1, 4), found.max()), "token": x[:1, :4]})
    assert read["y"].shape == (1, 3)


@pytest.mark.slow
def test_another_function_runs_what_reads_it(
    made: tuple[Path, dict[str, dict[str, Any]]], tmp_path: Path
) -> None:
    shutil.copytree(made[0].parent, tmp_path, dirs_exist_ok=True)
    recipe = tmp_path / made[0].name
    (tmp_path / "parts.py").write_text(FUNCTION.replace("value > 0", "value > 0.5"))
    again = built(recipe)
    assert again["reader"]["statistics"] == again["finder"]["component_outputs"] == "ran"
    assert again["finder"]["statistics"] == again["reader"]["model"] == "hit"


def failure(recipe: Path, *words: str) -> str:
    words = ("build", str(recipe), "--cache", str(recipe.parent / "c"), *words)
    done = CliRunner().invoke(application(), words)
    assert done.exit_code == 2 and "Traceback" not in done.output
    return done.output


def test_what_a_function_may_do_wrong(tmp_path: Path) -> None:
    output = failure(project(tmp_path, FUNCTION.replace("value > 1)", "1 / 0)")))
    assert "the function python:parts.py:parts fails" in output and "parts.py, line 8" in output
    assert "ZeroDivisionError" in output and "part, token" in output
    output = failure(project(tmp_path, FUNCTION.replace('"token"', '"tokn"')))
    assert "KeyError: 'token'" in output
    output = failure(project(tmp_path, FUNCTION.replace("value > 0", "value > 1e9")))
    assert "its function made nothing of any" in output
    output = failure(project(tmp_path, FUNCTION.replace("(1, 4)", "(1, 5)")))
    assert "memory" in output and "[1, 5]" in output.replace("(1, 5)", "[1, 5]")
    assert "no file" in failure(project(tmp_path), "--set", f"{KEY}='python:part.py:parts'")


def test_what_cannot_be_wired(made: tuple[Path, dict[str, dict[str, Any]]], tmp_path: Path) -> None:
    recipe = project(tmp_path)
    assert faults(recipe, RECIPE.replace('"python:parts.py:parts"', "7"))["NF-RECIPE-185"].where.line == 6
    other = '[components.other]\nmodel.path = "encoder.onnx"\ndata = { source = "x.npz" }\n'
    text = RECIPE.replace('token = "finder.token"', 'token = "other.h"') + other
    assert '"other"' not in faults(recipe, text)["NF-RECIPE-186"].message
    own = RECIPE.replace('metric = "top1" }', 'metric = "top1" }\ndata = { source = "x.npz" }')
    assert faults(recipe, own)["NF-RECIPE-187"].where.key == "components.reader.data"
    recipe.write_text(RECIPE)
    words = ["eval", str(recipe), "--cache", str(tmp_path / "cache")]
    fault = CliRunner().invoke(application(), words).exception
    assert isinstance(fault, UsageError) and fault.code == "NF-USAGE-423"
    with pytest.raises(UsageError, match="finder, reader"):
        Runner(made[0].parent / "out/pair/model.npu")
