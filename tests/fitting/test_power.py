"""Tables of energy fitted to power logs that another table made."""

from __future__ import annotations

import csv
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from npuflow.base.errors import DataError
from npuflow.cli import targets
from npuflow.cli._app import application
from npuflow.hw.energy import Energy, MacEnergy
from npuflow.report.fitting import power
from npuflow.report.fitting.measured import Subject
from npuflow.report.profile import Profile
from npuflow.sim.clock import timeline_of
from tests.fitting.programs import in_order
from tests.networks.harness import SMALL

BOARD = Energy(
    "a board", (MacEnergy(8, 8, 0.8), MacEnergy(16, 16, 2.5)), (), local_byte=4.0, external_byte=90.0,
    vector_op=2.0, idle_mw=3.0,
)
GUESS = replace(BOARD, macs=(MacEnergy(8, 8, 0.3), MacEnergy(16, 16, 0.9)), local_byte=9.0,
                external_byte=160.0, vector_op=3.2, idle_mw=0.0)


@pytest.fixture(scope="module")
def subjects() -> list[Subject]:
    return in_order(3, 5, 8)


def milliseconds(one: Subject) -> np.ndarray:
    return one.cycles(SMALL) / SMALL.compute.clock_mhz / 1000


def drawn(one: Subject) -> np.ndarray:
    """What the board takes for each layer, in microjoules."""
    profile = Profile(one.program, one.order, timeline_of(one.program, one.order))
    works = [profile.work(np.flatnonzero(np.isin(profile.nodes, m))) for m in one.layers.values()]
    both = zip(works, milliseconds(one), strict=True)
    return np.array([sum(work.microjoules(BOARD, ms).values()) for work, ms in both])


def test_a_board_is_found_again(subjects: list[Subject]) -> None:
    rng = np.random.default_rng(0)
    spent = [drawn(one) * rng.normal(1, 0.02, len(one.layers)) for one in subjects]
    found = power.fit(subjects, spent, [milliseconds(one) for one in subjects], GUESS, 0.25)
    assert any(row.held_out for row in found.rows) and len(found.rows) == sum(map(len, spent))
    assert found.error(after=False, held_out=True) > 0.2
    assert found.error(after=True, held_out=True) < 0.05


def test_exact_figures_give_the_boards_constants(subjects: list[Subject]) -> None:
    spent = [drawn(one) for one in subjects]
    found = power.fit(subjects, spent, [milliseconds(one) for one in subjects], GUESS, 0.0)
    assert found.error(after=True, held_out=False) < 0.005
    assert found.energy.external_byte == pytest.approx(BOARD.external_byte, rel=0.05)
    assert found.energy.source == "fitted to a power log by npuflow target fit"
    assert found.undetermined == ("energy.shared_byte",)          # no layer moves any
    assert found.constants["energy.shared_byte"] == (0.0, 0.0)


def test_without_a_table_one_is_made(subjects: list[Subject]) -> None:
    spent = [drawn(one) for one in subjects]
    found = power.fit(subjects, spent, [milliseconds(one) for one in subjects], None, 0.25)
    assert found.energy.stated and not list(found.energy.check())
    assert found.error(after=True, held_out=True) < 0.05


@pytest.mark.parametrize("unit", ["uj", "mw"])
def test_the_verb_writes_the_table(unit: str, subjects: list[Subject], tmp_path: Path) -> None:
    paths, times, log = [], tmp_path / "t.csv", tmp_path / "p.csv"
    with times.open("w", newline="") as one, log.open("w", newline="") as other:
        taken, used = csv.writer(one), csv.writer(other)
        taken.writerow(["program", "layer", "cycles"])
        used.writerow(["program", "layer", unit])
        for found in subjects:
            paths.append(str(tmp_path / f"{found.name}.npu"))
            found.program.save(paths[-1])
            both = zip(found.layers, found.cycles(SMALL), drawn(found), strict=True)
            for layer, cycles, uj in both:
                ms = cycles / SMALL.compute.clock_mhz / 1000
                taken.writerow([found.name, layer, cycles])
                used.writerow([found.name, layer, uj if unit == "uj" else uj / ms])
    out, app = tmp_path / "b.toml", application("target")
    words = ["target", "fit", str(times), *paths, "--power", str(log), "--only", "dma.setup_cycles"]
    ran = CliRunner().invoke(app, [*words, "-o", str(out)])
    assert ran.exit_code == 0, ran.output
    assert "energy.external_byte" in ran.output and "uJ" in ran.output
    table = targets.target_of(out).energy
    assert table is not None and table.external_byte == pytest.approx(BOARD.external_byte, rel=0.1)
    said = json.loads(CliRunner().invoke(app, [*words, "--json"]).output)
    assert said["energy_constants"]["energy.external_byte"][1] == table.external_byte


def test_a_log_without_energies_is_refused(subjects: list[Subject], tmp_path: Path) -> None:
    path = tmp_path / "p.csv"
    path.write_text("layer,us\na,1\n")
    with pytest.raises(DataError, match="no energies or powers of layers"):
        power.read(path, subjects, [milliseconds(one) for one in subjects])
