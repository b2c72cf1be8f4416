"""Twenty and more planted regressions: the gate closes, shows the figure, and names the key that changed."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from npuflow.cli import main
from npuflow.cli._gate import CLOSED
from tests.gate.planted import PLANTED, Planted, lay_out
from tests.tiers import often


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The network, built once, with its record."""
    folder = tmp_path_factory.mktemp("gate")
    lay_out(folder)
    assert run(folder, "--record", str(folder / "base.json")) == 0
    return folder


def run(folder: Path, *args: str) -> int:
    return main([
        "build", str(folder / "net.toml"), "--quiet", "--cache", str(folder / "cache"),
        "--out", str(folder / "out"), *args,
    ])


def gate(
    base: Path, sets: Sequence[str], capfd: pytest.CaptureFixture[str]
) -> tuple[int, list[dict[str, Any]]]:
    capfd.readouterr()
    chosen = [word for text in sets for word in ("--set", text)]
    code = run(base, "--json", "--baseline", str(base / "base.json"), *chosen)
    lines = [json.loads(line) for line in capfd.readouterr().out.splitlines()]
    return code, [line for line in lines if line["event"] == "gate"]


@pytest.mark.parametrize("one", often(PLANTED[1:] + PLANTED[:1], 15), ids=lambda one: one.name)
def test_a_planted_regression_is_found_with_its_key(
    one: Planted, base: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    kept = {path: path.read_bytes() for path in base.iterdir() if path.is_file()}
    try:
        if one.edit is not None:
            one.edit(base)
        code, rows = gate(base, one.sets, capfd)
    finally:
        for path, content in kept.items():
            path.write_bytes(content)
    row = next(row for row in rows if row["figure"] == one.figure)
    assert code == CLOSED and row["verdict"] == "worse", rows
    assert one.key in row["keys"][0], row["keys"]


def test_the_same_build_passes(base: Path, capfd: pytest.CaptureFixture[str]) -> None:
    code, rows = gate(base, (), capfd)
    assert code == 0 and {row["verdict"] for row in rows} == {"same"}
    assert {row["figure"] for row in rows} == {
        "score", "cycles", "external_bytes", "program_bytes", "energy_uj",
    }


def test_a_key_that_cost_nothing_is_not_blamed(base: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Another number of evaluation samples cannot have made the program slower."""
    code, rows = gate(base, ("evaluate.count=300", "tiling.level=0"), capfd)
    row = next(row for row in rows if row["figure"] == "cycles")
    assert code == CLOSED and not [key for key in row["keys"] if "evaluate" in key]


def test_limits_let_a_known_loss_pass(base: Path, capfd: pytest.CaptureFixture[str]) -> None:
    args = ("--set", "tiling.level=0", "--baseline", str(base / "base.json"))
    assert run(base, *args) == CLOSED
    said = capfd.readouterr().out
    assert "tiling.level: 3 -> 0" in said and "figures worse than" in said
    allowed = ("--max-cycles", "500", "--max-bytes", "500", "--max-energy", "500")
    assert run(base, *args, *allowed) == 0
    assert "none of 5 figures is worse" in capfd.readouterr().out


def test_an_output_folder_and_a_report_are_baselines(base: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert run(base) == 0
    kept = base / "kept"
    shutil.copytree(base / "out" / "net", kept)
    try:
        for place in (kept, kept / "report.json"):
            assert run(base, "--set", "tiling.level=0", "--baseline", str(place)) == CLOSED
            assert "tiling.level: 3 -> 0" in capfd.readouterr().out
        (kept / "net.lock").unlink()
        assert run(base, "--set", "tiling.level=0", "--baseline", str(kept)) == CLOSED
        assert "no lock beside the baseline" in capfd.readouterr().out
    finally:
        shutil.rmtree(kept)


def test_a_figure_that_is_gone_closes_the_gate(base: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """To leave out the evaluation is no way past it."""
    recipe = base / "net.toml"
    kept = recipe.read_text()
    recipe.write_text(kept[: kept.index("[evaluate]")])
    try:
        code, rows = gate(base, (), capfd)
    finally:
        recipe.write_text(kept)
    score = next(row for row in rows if row["figure"] == "score")
    assert code == CLOSED and score["verdict"] == "gone" and score["now"] is None
    assert score["keys"] == ["no step evaluate any more"]


@pytest.mark.slow
def test_a_sweep_is_held_against_its_record(base: Path, capfd: pytest.CaptureFixture[str]) -> None:
    words = [
        "sweep", str(base / "net.toml"), "--over", "target.compute.cores=[1, 2]",
        "--cache", str(base / "cache"), "--out", str(base / "swept"),
    ]
    assert main([*words, "--record", str(base / "sweep.json")]) == 0
    capfd.readouterr()
    assert main([*words, "--baseline", str(base / "sweep.json")]) == 0
    assert "none of 10 figures is worse" in capfd.readouterr().out
    assert main([*words, "--baseline", str(base / "sweep.json"), "--set", "tiling.level=0"]) == CLOSED
    said = capfd.readouterr().out
    assert "cores-1" in said and "cores-2" in said and "tiling.level: 3 -> 0" in said
    folder = base / "swept" / "net"
    assert main([*words, "--baseline", str(folder), "--set", "tiling.level=0"]) == 0
    assert "none of" in capfd.readouterr().out


def test_history_lists_and_draws_records(base: Path, capfd: pytest.CaptureFixture[str]) -> None:
    records = base / "records"
    for number, commit in enumerate(("aaaa", "bbbb")):
        body = json.loads((base / "base.json").read_text())
        body |= {"commit": commit * 10, "made": f"2026-01-0{2 - number}T00:00:00+00:00"}
        body["builds"]["net"]["figures"]["cycles"] += 1000 * number
        records.mkdir(exist_ok=True)
        (records / f"{number}.json").write_text(json.dumps(body))
    capfd.readouterr()
    picture = base / "history.html"
    assert main(["history", str(records), "--plot", str(picture)]) == 0
    head, *rows = capfd.readouterr().out.splitlines()
    assert head.split()[:4] == ["commit", "made", "build", "score"]
    assert [row.split()[0] for row in rows] == ["bbbbbbbbbb", "aaaaaaaaaa"]       # by date, not by name
    assert "vega" in picture.read_text() and "bbbbbbbbbb" in picture.read_text()
    assert main(["history", str(records), "--json"]) == 0
    lines = [json.loads(line) for line in capfd.readouterr().out.splitlines()]
    assert [line["event"] for line in lines] == ["history", "history"]
    assert lines[0]["cycles"] - lines[1]["cycles"] == 1000


@pytest.mark.parametrize(
    ("content", "because"),
    [
        (None, "No such file or directory"),
        ("not json", "it is not JSON"),
        ("[1]", "it holds a list"),
        ("{}", "an older npuflow"),
        ('{"figures": {"cycles": "many", "external_bytes": 1}}', "an older npuflow"),
        ('{"kind": "npuflow record", "version": 9}', "a record of version 9"),
        ('{"kind": "npuflow record", "version": 1, "builds": {}}', "it records no build"),
        ('{"kind": "npuflow record", "version": 1, "builds": {"a": {}}}', 'the figures of "a" are malformed'),
    ],
)
def test_a_bad_baseline_is_one_clear_error(
    content: str | None, because: str, base: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = base / "bad.txt"
    path.unlink(missing_ok=True)
    if content is not None:
        path.write_text(content)
    assert run(base, "--baseline", str(path)) == 2
    said = capfd.readouterr().err
    assert said.count("error:") == 1 and "NF-USAGE-350" in said and because in said and str(path) in said


def test_a_baseline_of_other_builds_and_a_part_of_a_build_are_errors(
    base: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    body = json.loads((base / "base.json").read_text())
    body["builds"] = {"other": body["builds"]["net"], "another": body["builds"]["net"]}
    (base / "others.json").write_text(json.dumps(body))
    assert run(base, "--baseline", str(base / "others.json")) == 2
    assert "has no build called net" in capfd.readouterr().err
    assert run(base, "--baseline", str(base / "base.json"), "--until", "parse") == 2
    assert "--until parse" in capfd.readouterr().err
