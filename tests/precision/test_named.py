"""A calibration method that the recipe names is used, with a warning where `auto` is much better."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from npuflow.cli import main
from npuflow.onnx.export import export_model
from npuflow.strategies import Output
from npuflow.tune.precision.named import better
from tests.precision.harnesses import feeds_of, mixed_net
from tests.tiers import often

RECIPE = """
target = "edge-4t"
[model]
path = "net.onnx"
[data]
source = "calib.npz"
[precision]
sqnr_db = 5.0
"""
MEAN = '[calibrate]\nmethod = "mean"\n'


def of(sqnr: float, agreement: float | None = None) -> tuple[Output, ...]:
    return (Output("y", sqnr, sqnr, agreement),)


@pytest.mark.parametrize(
    ("built", "named", "auto", "much"),
    [
        (of(25.0), of(24.0), of(28.0), True),              # 3 dB more than the build reached
        (of(25.0), of(24.0), of(27.9), False),
        # a build that chance made worse than its fake quantisation
        (of(21.0), of(25.0), of(27.0), False),
        (of(41.0), of(41.0), of(55.0), False),             # clean as it is
        (of(25.0, 0.97), of(25.0, 0.96), of(26.0, 0.99), False),      # one answer of 64 samples
        (of(25.0, 0.95), of(25.0, 0.94), of(26.0, 0.99), True),
        (of(50.0, 0.95), of(50.0, 0.94), of(50.0, 0.99), True),
        (of(25.0, 0.99), of(25.0, 0.99), of(20.0, 0.90), False),
    ],
)
def test_much_is_three_decibels_or_a_point_of_answers(
    built: tuple[Output, ...], named: tuple[Output, ...], auto: tuple[Output, ...], much: bool
) -> None:
    found = better("kl", built, named, auto, 64)
    assert (found is not None) == much
    if found is not None:
        assert (
            '"kl" is used' in found.text
            and f"{auto[0].sqnr:.1f} dB" in found.text
            and "64 held-out" in found.text
        )


def test_the_output_that_gains_most_is_named() -> None:
    two = [(*of(level), Output("z", level, level)) for level in (20.0, 20.0, 24.0)]
    most = (two[2][0], Output("z", 30.0, 30.0))
    found = better("kl", two[0], two[1], most, 16)
    assert found is not None and found.auto.name == "z"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    graph = mixed_net()
    (tmp_path / "net.onnx").write_bytes(export_model(graph))
    np.savez(tmp_path / "calib.npz", x=np.concatenate([f["x"] for f in feeds_of(graph, 48)]))
    monkeypatch.setenv("NPUFLOW_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    yield tmp_path


def events_of(folder: Path, capfd: pytest.CaptureFixture[str], more: str) -> list[dict[str, Any]]:
    """Events of a build up to its verdict."""
    (folder / "net.toml").write_text(RECIPE + more)
    capfd.readouterr()
    assert main(["build", "net.toml", "--until", "verdict", "--json"]) == 0
    return [json.loads(line) for line in capfd.readouterr().out.splitlines()]


def built(folder: Path, capfd: pytest.CaptureFixture[str], more: str) -> list[str]:
    """Warnings of a build's verdict."""
    events = events_of(folder, capfd, more)
    return [e["message"] for e in events if e["event"] == "warning" and e["stage"] == "verdict"]


def test_a_method_that_costs_much_is_warned_of_with_figures(
    folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (said,) = built(folder, capfd, MEAN)
    assert said.startswith('[calibrate] method = "mean" is used, but "auto" is much better on ')
    assert main(["show", "verdict", "net.toml"]) == 0
    shown = capfd.readouterr().out
    assert '"auto" is much better' in shown
    output, promised = re.findall(r'the output "(\w+)" [\d.]+ -> ([\d.]+) dB', said)[0]
    # What it promises is what the fake-quantised network has in the build with `auto`, on the same samples,
    events = events_of(folder, capfd, "")
    (precision,) = (e for e in events if e["event"] == "step" and e["stage"] == "precision")
    assert precision["figures"]["sqnr_db"] == pytest.approx(float(promised), abs=0.06)
    # and the program holds it on samples that no choice has seen.
    assert main(["show", "verdict", "net.toml"]) == 0
    row = next(line.split() for line in capfd.readouterr().out.splitlines() if line.startswith(f"{output} "))
    assert float(row[1]) > float(promised) - 2.0


@pytest.mark.parametrize(
    "more",
    often(['[calibrate]\nmethod = "minmax"\n', "", f'[verdict]\nadvice = false\n{MEAN}'], 3),
)
def test_no_warning_where_it_does_not_matter(
    folder: Path, capfd: pytest.CaptureFixture[str], more: str
) -> None:
    assert built(folder, capfd, more) == []


def test_the_default_compares_nothing(
    folder: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(*_: object) -> None:
        raise AssertionError("nothing was named")

    monkeypatch.setattr("npuflow.stages.verdict.automatic", never)
    assert built(folder, capfd, "") == []
