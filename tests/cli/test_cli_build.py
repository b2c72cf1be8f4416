"""The build verb: what it runs, says, writes and returns."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest
from commandline import Npuflow, fresh

STEP = {"event", "stage", "item", "key", "status", "seconds", "output", "reason"}


def statuses(lines: list[dict[str, object]]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for line in lines:
        if line["event"] == "step":
            found.setdefault(str(line["stage"]), []).append(str(line["status"]))
    return found


def test_a_build_writes_its_products_and_a_second_does_nothing(npuflow: Npuflow, project: Path) -> None:
    first = npuflow("build", "words.toml")
    assert first.code == 0
    assert first.out.startswith("words: done (6 ran, 0 hit, ")
    assert "  page  out/words/page.txt\n" in first.out
    assert (project / "out/words/page.txt").read_text() == "Words\n2 a\n2 c\n1 b\n1 d\n"
    second = npuflow("build", "words.toml")
    assert second.code == 0
    assert second.out.startswith("words: nothing to do (0 ran, 6 hit")


def test_plain_lines_when_not_a_terminal(npuflow: Npuflow) -> None:
    said = npuflow("build", "words.toml").err.splitlines()
    assert [line.split()[:2] for line in said] == [
        ["words", "ran"],
        ["tally", "ran"],
        ["total", "ran"],
        ["page", "ran"],
    ]
    assert "2/2 items" in said[0]
    assert "words 6" in said[2]  # the artifact's own summary
    assert npuflow("build", "words.toml", "--quiet").err == ""


@pytest.mark.parametrize(("jobs", "each"), [(1, 2), (2, 1)])
def test_a_fan_out_says_how_it_goes(npuflow: Npuflow, project: Path, jobs: int, each: int) -> None:
    """Items are shared evenly among the jobs."""
    err = npuflow("build", "words.toml", "--jobs", str(jobs)).err
    (line,) = [line for line in err.splitlines() if line.startswith("words ")]
    assert re.search(rf"2/2 items, [\d.]+/s, {each} a task, 1 worker of [\d.]+ [MG]B$", line), line


def test_json_lines(npuflow: Npuflow, project: Path) -> None:
    ran = npuflow("build", "words.toml", "--json", "--jobs", "1")
    *steps, summary = ran.lines
    paces = [line for line in steps if line["event"] == "progress"]
    steps = [line for line in steps if line["event"] != "progress"]
    assert ran.err == ""
    assert {one["stage"] for one in paces} == {"words", "tally"}
    last = {one["stage"]: one for one in paces}
    assert all(
        (one["done"], one["total"], one["hits"], one["shard"]) == (2, 2, 0, 2) for one in last.values()
    )
    assert all(
        one["rate"] > 0 and one["workers"] == 1 and one["memory"] > 10_000_000 for one in last.values()
    )
    assert all(set(step) == STEP | {"figures"} and step["event"] == "step" for step in steps)
    assert statuses(steps) == {"words": ["ran"] * 2, "tally": ["ran"] * 2, "total": ["ran"], "page": ["ran"]}
    assert {step["item"] for step in steps if step["stage"] == "words"} == {"one.txt", "two.txt"}
    assert all(step["key"].startswith("x3:") and step["output"].startswith("x3:") for step in steps)
    assert (summary["event"], summary["version"]) == ("summary", 1)
    assert (summary["hit"], summary["ran"], summary["failed"]) == (0, 6, 0)
    assert set(summary["outputs"]) == {"words", "tally", "total", "page"}
    assert summary["products"] == {"page": str(project / "out/words/page.txt")}
    again = npuflow("build", "words.toml", "--json").lines
    assert (again[-1]["hit"], again[-1]["ran"]) == (6, 0)
    assert again[-1]["outputs"] == summary["outputs"]
    assert not [line for line in again if line["event"] == "progress"]


def test_a_profile_says_where_the_time_went(npuflow: Npuflow) -> None:
    """Stages that ran, with their steps, and those of them that were in the cache."""
    *_, profile, summary = npuflow("build", "words.toml", "--json", "--profile").lines
    rows = {row["stage"]: row for row in profile["stages"]}
    assert (profile["event"], summary["event"]) == ("profile", "summary")
    assert {name: (row["ran"], row["hit"]) for name, row in rows.items()} == {
        "words": (2, 0), "tally": (2, 0), "total": (1, 0), "page": (1, 0)
    }
    assert all(row["seconds"] >= row["processor"] > 0 for row in rows.values())
    assert all(row["memory"] > 10_000_000 for row in rows.values())
    said = npuflow("build", "words.toml", "--set", "page.title=Hi", "--profile").out.splitlines()
    at = next(i for i, text in enumerate(said) if text.startswith("stage"))
    assert said[at].split() == ["stage", "ran", "hit", "clock", "processor", "share", "memory"]
    assert [text.split()[:3] for text in said[at + 1 : -1]] == [["page", "1", "0"]]
    assert npuflow("build", "words.toml", "--profile").out.splitlines()[-1] == "nothing ran"


def test_a_change_runs_only_what_it_reaches(npuflow: Npuflow, project: Path) -> None:
    npuflow("build", "words.toml")
    (project / "texts/three.txt").write_text("e\n")
    found = statuses(npuflow("build", "words.toml", "--json").lines)
    assert sorted(found["words"]) == sorted(found["tally"]) == ["hit", "hit", "ran"]
    assert found["total"] == found["page"] == ["ran"]
    (project / "words.toml").write_text("# a comment\n[count]\n[texts]\nsource = 'texts/*.txt'\n[page]\n")
    assert npuflow("build", "words.toml", "--json").lines[-1]["ran"] == 0


def test_set_until_force(npuflow: Npuflow) -> None:
    npuflow("build", "words.toml")
    found = statuses(npuflow("build", "words.toml", "--set", "page.title=Hi", "--json").lines)
    assert found == {"words": ["hit"] * 2, "tally": ["hit"] * 2, "total": ["hit"], "page": ["ran"]}
    found = statuses(npuflow("build", "words.toml", "--until", "tally", "--json").lines)
    assert found == {"words": ["hit"] * 2, "tally": ["hit"] * 2}
    found = statuses(npuflow("build", "words.toml", "--force", "total", "--json").lines)
    assert found["total"] == ["ran"] and found["page"] == ["hit"]  # the same product: early cutoff


def test_an_edited_artifact_enters_as_an_override(npuflow: Npuflow, project: Path) -> None:
    npuflow("build", "words.toml")
    assert npuflow("show", "total", "words.toml", "--export", "edited").code == 0
    counts = project / "edited/counts.json"
    counts.write_text(json.dumps({"z": 7}))
    ran = npuflow("build", "words.toml", "--override", "total=edited", "--json")
    assert ran.code == 0
    assert (project / "out/words/page.txt").read_text() == "Words\n7 z\n"
    assert npuflow("build", "words.toml").code == 0
    assert (project / "out/words/page.txt").read_text().startswith("Words\n2 a")


def test_a_deleted_product_is_written_again(npuflow: Npuflow, project: Path) -> None:
    npuflow("build", "words.toml")
    page = project / "out/words/page.txt"
    page.unlink()
    ran = npuflow("build", "words.toml", "--json")
    assert ran.lines[-1]["ran"] == 0 and page.is_file()
    page.write_text("scribbled")
    npuflow("build", "words.toml")
    assert page.read_text().startswith("Words")


def test_a_failed_step_is_named_with_its_place(npuflow: Npuflow, project: Path) -> None:
    (project / "words.toml").write_text('[texts]\nsource = "texts/*.txt"\n[page]\nfail = "oh no"\n')
    ran = npuflow("build", "words.toml")
    assert ran.code == 1
    assert ran.err.endswith(
        "error: oh no\n"
        "  recipe   words.toml:3  page\n"
        "  stage    page\n"
        "  because  the recipe asks for it\n"
        "  try      remove page.fail\n"
    )
    assert ran.out.startswith("words: failed (0 ran, 5 hit, 1 failed") or "5 ran" in ran.out
    ran = npuflow("build", "words.toml", "--json")
    assert ran.code == 1
    assert ran.lines[-1]["failed"] == 1 and ran.lines[-1]["hit"] == 5  # finished work was kept
    failed = next(line for line in ran.lines if line.get("status") == "failed")
    assert (failed["stage"], failed["reason"], failed["output"]) == ("page", "oh no", None)


def test_every_fault_of_every_recipe_before_anything_runs(npuflow: Npuflow, project: Path) -> None:
    (project / "bad.toml").write_text('[texts]\nsorce = "x"\n[cuont]\n[count]\nleast = 100\n')
    ran = npuflow("build", "words.toml", "bad.toml", "gone.toml")
    assert ran.code == 2
    assert ran.out == ""
    assert 'bad.toml:2  texts.sorce' in ran.err and 'try      "source"' in ran.err
    assert 'unknown table [cuont]' in ran.err and 'try      "count"' in ran.err
    assert "100 is out of range" in ran.err and "1 to 99" in ran.err
    assert '"source" is missing' in ran.err
    assert "4 faults" in ran.err
    assert 'no recipe "gone.toml"' in ran.err
    events = npuflow("build", "bad.toml", "--json").lines
    assert [e["event"] for e in events] == ["error"] * 4
    assert {e["exit"] for e in events} == {2}
    assert events[0]["where"]["file"] == "bad.toml"


def test_recipes_share_steps(npuflow: Npuflow, project: Path) -> None:
    (project / "other.toml").write_text('extends = "words.toml"\n[page]\ntitle = "Other"\n')
    ran = npuflow("build", "words.toml", "other.toml", "--json")
    summaries = [line for line in ran.lines if line["event"] == "summary"]
    assert [(s["recipe"], s["ran"], s["hit"]) for s in summaries] == [("words", 6, 0), ("other", 1, 5)]


def test_wrong_arguments(npuflow: Npuflow) -> None:
    for args, said in (
        (("build",), "RECIPE... is missing"),
        (("build", "words.toml", "--until", "pge"), 'there is no stage "pge"'),
        (("build", "words.toml", "--force", "pge"), 'there is no stage "pge"'),
        (("build", "words.toml", "--override", "page=nowhere"), "no file or folder"),
        (("build", "words.toml", "--override", "page"), "not STAGE=PATH"),
        (("build", "words.toml", "--set", "count"), 'has no "="'),
        (("build", "words.toml", "--scheduler", "thread"), "thread"),
        (("build", "words.toml", "--jobs", "0"), "jobs"),
        (("biuld", "words.toml"), "build"),
    ):
        ran = npuflow(*args)
        assert ran.code == 2, (args, ran)
        assert said in ran.err, (args, ran.err)


def test_the_cache_is_where_it_is_said_to_be(npuflow: Npuflow, project: Path, tmp_path: Path) -> None:
    def used(*args: str, **env: str) -> Path:
        ran = fresh("build", "words.toml", *args, **env)
        assert ran.code == 0, ran.err
        made = [p.parent for p in tmp_path.rglob("store.json")]
        assert len(made) == 1, made
        for store in made:
            store.rename(tmp_path / "spent")
            shutil.rmtree(tmp_path / "spent")
        return made[0]

    assert used() == tmp_path / "home/npuflow"
    (project / "words.toml").write_text(
        (project / "words.toml").read_text() + '[build]\ncache = "../of-recipe"\n'
    )
    assert used() == tmp_path / "of-recipe"
    assert used(NPUFLOW_CACHE=str(tmp_path / "of-env")) == tmp_path / "of-env"
    assert (
        used("--cache", str(tmp_path / "of-flag"), NPUFLOW_CACHE=str(tmp_path / "of-env"))
        == tmp_path / "of-flag"
    )


def test_a_tagged_cache_folder_above_the_recipe_is_used(npuflow: Npuflow, project: Path) -> None:
    (project.parent / "cache").mkdir()
    (project.parent / "cache/CACHEDIR.TAG").write_text("Signature: 8a477f597d28d172789f06886806bc55\n")
    assert npuflow("build", "words.toml").code == 0
    assert (project.parent / "cache/store.json").is_file()


def test_products_elsewhere(npuflow: Npuflow, project: Path) -> None:
    assert npuflow("build", "words.toml", "--out", "made").code == 0
    assert (project / "made/words/page.txt").is_file()
    (project / "words.toml").write_text((project / "words.toml").read_text() + '[build]\nout = "here"\n')
    assert npuflow("build", "words.toml").code == 0
    assert (project / "here/page.txt").is_file()


def test_an_unwritable_cache_is_one_clear_error(npuflow: Npuflow, project: Path) -> None:
    (project / "file").write_text("")
    ran = npuflow("build", "words.toml", "--cache", "file")
    assert ran.code == 2
    assert ran.err.count("error:") == 1


def test_places_that_take_no_files_are_no_bugs(npuflow: Npuflow, project: Path) -> None:
    (project / "file").write_text("")
    ran = npuflow("build", "words.toml", "--out", "file")
    assert ran.code == 2 and "Traceback" not in ran.err
    assert "cannot write the product" in ran.err and "--out DIR" in ran.err
    assert npuflow("build", "words.toml").code == 0       # nothing was lost
    ran = npuflow("build", "words.toml", "--cache", "/proc/nothing")
    assert ran.code == 2 and "Traceback" not in ran.err
    assert "cannot write to the cache" in ran.err


def test_json_lines_of_steps_carry_the_figures_of_the_terminal(npuflow: Npuflow) -> None:
    lines = npuflow("build", "words.toml", "--json").lines
    text = npuflow("build", "words.toml", "--force", "total").err
    for line in lines:
        if line["event"] == "step" and line["item"] is None:
            assert isinstance(line["figures"], dict)
            shown = ", ".join(f"{name} {value}" for name, value in line["figures"].items())
            rows = [row for row in text.splitlines() if row.startswith(line["stage"])]
            assert any(row.endswith(shown) for row in rows), (line, text)
    assert any(line["event"] == "step" and line["figures"] for line in lines)
