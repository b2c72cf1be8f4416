"""The plan verb: what would run, what may, and that nothing does."""

from __future__ import annotations

import hashlib
from pathlib import Path

from commandline import Npuflow, Ran

STEP = {"event", "stage", "item", "key", "status", "seconds", "output", "reason"}


def planned(ran: Ran) -> dict[str, dict[str | None, str]]:
    assert ran.code == 0, ran.err
    found: dict[str, dict[str | None, str]] = {}
    for line in ran.lines[:-1]:
        assert set(line) == STEP
        found.setdefault(line["stage"], {})[line["item"]] = line["status"]
    return found


def everything(folder: Path) -> dict[str, str]:
    files = [p for p in folder.rglob("*") if p.is_file()]
    return {str(p): hashlib.sha256(p.read_bytes()).hexdigest() for p in files}


def test_before_the_first_build(npuflow: Npuflow, project: Path) -> None:
    ran = npuflow("plan", "words.toml", "--json")
    assert planned(ran) == {
        "words": {"one.txt": "run", "two.txt": "run"},
        "tally": {"one.txt": "maybe", "two.txt": "maybe"},
        "total": {None: "maybe"},
        "page": {None: "maybe"},
    }
    summary = ran.lines[-1]
    assert (summary["event"], summary["version"]) == ("summary", 1)
    assert (summary["run"], summary["maybe"], summary["hit"]) == (2, 4, 0)
    assert not (project / "out").exists()


def test_after_a_build_all_hit_and_nothing_is_written(npuflow: Npuflow, project: Path) -> None:
    npuflow("build", "words.toml")
    before = everything(project.parent)
    ran = npuflow("plan", "words.toml", "--json")
    assert {s for stage in planned(ran).values() for s in stage.values()} == {"hit"}
    assert ran.lines[-1]["outputs"].keys() == {"total", "page"}
    assert "\nwords: 6 hit (" in npuflow("plan", "words.toml").out
    assert everything(project.parent) == before


def test_a_new_item_and_what_may_follow(npuflow: Npuflow, project: Path) -> None:
    npuflow("build", "words.toml")
    (project / "texts/three.txt").write_text("e\n")
    assert planned(npuflow("plan", "words.toml", "--json")) == {
        "words": {"one.txt": "hit", "two.txt": "hit", "three.txt": "run"},
        "tally": {"one.txt": "hit", "two.txt": "hit", "three.txt": "maybe"},
        "total": {None: "maybe"},
        "page": {None: "maybe"},
    }
    text = npuflow("plan", "words.toml").out
    assert "three.txt: run" in text and "three.txt: maybe, waits for words" in text
    ran = npuflow("build", "words.toml", "--json").lines
    assert {(s["stage"], s["item"]) for s in ran if s["event"] == "step" and s["status"] == "ran"} == {
        ("words", "three.txt"), ("tally", "three.txt"), ("total", None), ("page", None),
    }


def test_a_change_of_config_runs_from_there(npuflow: Npuflow) -> None:
    npuflow("build", "words.toml")
    found = planned(npuflow("plan", "words.toml", "--set", "count.case=keep", "--json"))
    assert found["words"] == {"one.txt": "hit", "two.txt": "hit"}
    assert found["tally"] == {"one.txt": "run", "two.txt": "run"}
    assert found["total"] == found["page"] == {None: "maybe"}
    found = planned(npuflow("plan", "words.toml", "--set", "page.title=x", "--json"))
    assert found["total"] == {None: "hit"} and found["page"] == {None: "run"}


def test_dry_run_is_plan(npuflow: Npuflow, project: Path) -> None:
    plan, dry = npuflow("plan", "words.toml", "--json"), npuflow("build", "words.toml", "--dry-run", "--json")
    assert planned(plan) == planned(dry)
    assert not (project / "out").exists()


def test_force_and_until(npuflow: Npuflow) -> None:
    npuflow("build", "words.toml")
    found = planned(npuflow("plan", "words.toml", "--force", "total", "--until", "total", "--json"))
    assert found["total"] == {None: "run"} and "page" not in found


def test_a_lost_object_is_planned_again(npuflow: Npuflow, project: Path, tmp_path: Path) -> None:
    npuflow("build", "words.toml")
    page = next(p for p in (tmp_path / "home").rglob("page.txt"))
    page.unlink()
    assert planned(npuflow("plan", "words.toml", "--json"))["page"] == {None: "run"}
    assert npuflow("build", "words.toml", "--json").lines[-1]["ran"] == 1


def test_faults_of_all_recipes(npuflow: Npuflow, project: Path) -> None:
    (project / "a.toml").write_text("[count]\nleast = 0\n")
    ran = npuflow("plan", "a.toml", "gone.toml")
    assert ran.code == 2
    assert ran.err.count("error:") == 3 and "3 faults" in ran.err
    assert [line["event"] for line in npuflow("plan", "a.toml", "--json").lines] == ["error"] * 2
