"""Targets fitted to layer times that another target made: errors fall, constants are found again."""

from __future__ import annotations

import csv
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from npuflow.base.errors import DataError, NpuflowError
from npuflow.cli import targets
from npuflow.cli._app import application
from npuflow.report.fitting.fit import CONSTANTS, fit, with_constants
from npuflow.report.fitting.measured import Subject, measured, read
from tests.fitting.programs import in_order
from tests.networks.harness import SMALL

TRUTH = {
    "compute.fill_cycles": 31,
    "compute.command_cycles": 12,
    "dma.setup_cycles": 55,
    "memory.external_bandwidth": 1.5,
    "compute.vector_lanes": 2,
}


@pytest.fixture(scope="module")
def alone() -> list[Subject]:
    """One program, for tests that every run has."""
    return in_order(3)


@pytest.fixture(scope="module")
def subjects(alone: list[Subject]) -> list[Subject]:
    return [*alone, *in_order(5, 8)]


@pytest.fixture(scope="module")
def times(subjects: list[Subject]) -> list[np.ndarray]:
    return taken(subjects)


def taken(subjects: list[Subject]) -> list[np.ndarray]:
    """What a board would take: another target's times, give or take 2 %."""
    rng = np.random.default_rng(0)
    board = with_constants(SMALL, TRUTH)
    return [one.cycles(board) * rng.normal(1, 0.02, len(one.layers)) for one in subjects]


@pytest.mark.slow
def test_a_board_is_found_again(subjects: list[Subject], times: list[np.ndarray]) -> None:
    found = fit(subjects, times, SMALL, list(CONSTANTS), 0.25)
    assert any(row.held_out for row in found.rows) and len(found.rows) == sum(map(len, times))
    assert found.error(after=False, held_out=True) > 0.3
    assert found.error(after=True, held_out=True) < 0.08
    assert found.error(after=True, held_out=False) < 0.05


@pytest.mark.slow
def test_constants_of_exact_times_are_found_again(subjects: list[Subject]) -> None:
    board = with_constants(SMALL, TRUTH)
    found = fit(subjects, [one.cycles(board) for one in subjects], SMALL, list(TRUTH), 0.25)
    assert found.error(after=True, held_out=True) < 0.03
    for name, want in TRUTH.items():
        assert found.constants[name][1] == pytest.approx(want, rel=0.15), name


@pytest.mark.slow
def test_what_no_layer_depends_on_stays(alone: list[Subject]) -> None:
    """Nothing is known of a constant of engines that a target does not use: it keeps its value."""
    same = [one.cycles(SMALL) for one in alone]
    found = fit(alone, same, SMALL, list(CONSTANTS), 0.25)
    assert found.error(after=True, held_out=True) < 0.01
    for name in found.undetermined:
        before, after = found.constants[name]
        assert before == after
    assert found.target.memory.external_bandwidth == pytest.approx(SMALL.memory.external_bandwidth, rel=0.02)


def written(path: Path, subjects: list[Subject], times: list[np.ndarray], unit: str = "us") -> Path:
    with path.open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["program", "layer", unit])
        for one, cycles in zip(subjects, times, strict=True):
            for layer, taken in zip(one.layers, cycles, strict=True):
                rows.writerow([one.name, layer, taken / SMALL.compute.clock_mhz])
    return path


def test_the_verb_writes_a_target(alone: list[Subject], tmp_path: Path) -> None:
    paths = []
    for one in alone:
        one.program.save(tmp_path / f"{one.name}.npu")
        paths.append(str(tmp_path / f"{one.name}.npu"))
    table = str(written(tmp_path / "measured.csv", alone, taken(alone)))
    out = tmp_path / "fitted.toml"
    said = CliRunner().invoke(application("target"), ["target", "fit", table, *paths, "-o", str(out)])
    assert said.exit_code == 0, said.output
    assert (
        "held out" in said.output
        and "mean error" in said.output
        and "memory.external_bandwidth" in said.output
    )
    target = targets.target_of(out)
    plain = replace(SMALL, about=target.about, name=target.name)
    values = {name: getattr(getattr(target, name.split(".")[0]), name.split(".")[1]) for name in CONSTANTS}
    assert with_constants(plain, values) == target
    only = ["--only", "memory.external_bandwidth", "--json"]
    line = CliRunner().invoke(application("target"), ["target", "fit", table, *paths, *only]).output
    assert list(json.loads(line)["constants"]) == ["memory.external_bandwidth"]


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("name,us\na,1\n", "NF-RUN-031"),
        ("layer,us,ms\na,1,2\n", "NF-RUN-031"),
        ("layer,us\nno such layer,1\n", "NF-RUN-032"),
        ("layer,us\n{0},fast\n", "NF-RUN-033"),
        ("layer,us\n{0},-1\n", "NF-RUN-033"),
        ("layer,us,program\n{0},1,other\n", "NF-RUN-034"),
        ("layer,us\n{0},1\n", "NF-RUN-035"),
    ],
)
def test_tables_that_cannot_be_used(text: str, code: str, alone: list[Subject], tmp_path: Path) -> None:
    path, one = tmp_path / "m.csv", alone
    path.write_text(text.format(next(iter(one[0].layers))))
    with pytest.raises(NpuflowError) as raised:
        fit(one, measured(read(path), one, 1000.0), SMALL, list(CONSTANTS), 0.25)
    assert raised.value.code == code and isinstance(raised.value, DataError)


def test_rows_of_one_layer_add_up(alone: list[Subject], tmp_path: Path) -> None:
    one = alone[0]
    (tmp_path / "m.csv").write_text("layer,ms\n" + f"{list(one.layers)[1]},10\n" * 2)
    (found,) = measured(read(tmp_path / "m.csv"), [one], 2.0)
    assert found[1] == 40000 and np.isnan(np.delete(found, 1)).all()
