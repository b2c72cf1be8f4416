"""Builds of loops whose end depends on data, with `[model] max_steps`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import npuflow
from npuflow import build
from npuflow.base.errors import NpuflowError, RecipeError
from npuflow.onnx.run import run
from npuflow.stages.rewrite_check import RewriteCheck
from npuflow.stages.simulate import Simulation
from npuflow.stages.thresholds import Thresholds
from tests.frontends.building import Built
from tests.networks.ending_loops import CASES

Made = Callable[..., Built]


@pytest.fixture
def made(tmp_path: Path) -> Made:
    def build_it(name: str, most: str, until: str | None = None) -> Built:
        rng = np.random.default_rng(0)
        sizes = np.exp(rng.uniform(np.log(0.005), 0, (40, 1, 1)))
        x = rng.normal(size=(40, 1, 4))
        x *= sizes / np.abs(x).max((1, 2), keepdims=True)
        np.savez(tmp_path / "data.npz", x=x.astype(np.float32))
        (tmp_path / "net.onnx").write_bytes(CASES[name])
        (tmp_path / "net.toml").write_text(
            f'target = "edge-4t"\n[model]\npath = "net.onnx"\nmax_steps = {most}\n'
            '[data]\nsource = "data.npz"\n'
        )
        done = build(tmp_path / "net.toml", cache=tmp_path / "cache", out=tmp_path / "out", until=until)
        return Built(tmp_path, done.outputs)

    return build_it


@pytest.mark.slow
@pytest.mark.parametrize(("name", "least"), [("plain", 36), ("tokens", 32)])
def test_a_program_gives_what_onnxruntime_does(name: str, least: int, made: Made) -> None:
    """Of 40 samples. In codes some end a step earlier or later, and of tokens another one may follow."""
    done = made(name, "20")
    found = done.artifact("simulate", Simulation).summary()
    assert found["different"] == found["hazards"] == 0
    check = done.artifact("rewrite_check", RewriteCheck)
    assert not check.reason and "warning" not in check.summary()
    assert "warning" not in done.artifact("thresholds", Thresholds).summary()
    with np.load(done.folder / "data.npz") as held:
        samples = held["x"]
    runner, alike, steps = npuflow.Runner(done.product(".npu")), 0, set()
    names = [port.name for port in runner.outputs]
    for x in samples:
        wanted = dict(zip(names, run(CASES[name], {"x": x}, names), strict=True))
        given: Any = runner.run({"x": x})
        rows = wanted["ys" if name == "plain" else "ts"]
        steps.add(len(rows))
        near = np.abs(given["S"] - wanted["S"]).max() < 0.1 * np.abs(wanted["S"]).max()
        alike += bool(near) and not given["ys" if name == "plain" else "ts"][len(rows) :].any()
    assert len(steps) > 4 and alike >= least, (sorted(steps), alike)


def test_ends_that_are_not_reached_are_a_warning(made: Made) -> None:
    done = made("plain", "{ search = 6 }", "thresholds")
    found = done.artifact("thresholds", Thresholds)
    assert found.summary()["warning"].startswith('a loop has not ended: "search" in ')
    assert "max_steps" in found.summary()["warning_hint"]
    again = made("plain", "24", "thresholds")
    assert not again.artifact("thresholds", Thresholds).endless
    assert again.outputs["samples"] == done.outputs["samples"]
    assert again.outputs["model"] != done.outputs["model"]


@pytest.mark.parametrize(
    ("most", "code", "said"),
    [
        ("0", "NF-RECIPE-208", "0 is not a number of steps"), ("-3", "NF-RECIPE-208", "-3 is not"),
        ("{ search = 0 }", "NF-RECIPE-208", "0 is not a number of steps"),
        ('"many"', "NF-RECIPE-010", 'expected an integer or a table, got "many"'),
        ("1.5", "NF-RECIPE-010", "expected an integer or a table, got 1.5"),
        ("true", "NF-RECIPE-010", "expected an integer or a table, got true"),
        ('{ search = "x" }', "NF-RECIPE-010", 'expected an integer, got "x"'),
    ],
)
def test_what_is_no_number_of_steps(most: str, code: str, said: str, made: Made) -> None:
    with pytest.raises(RecipeError, match=said) as caught:
        made("plain", most)
    (fault,) = caught.value.faults()
    assert fault.code == code and "max_steps" in fault.where.key


def test_a_name_that_no_loop_has(made: Made) -> None:
    with pytest.raises(NpuflowError, match='no loop "serach" has an end that depends on data') as caught:
        made("plain", "{ serach = 5 }")
    assert caught.value.where.key == "model.max_steps.serach"
