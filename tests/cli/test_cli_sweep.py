"""`npuflow sweep`: every combination once, common steps once, faults before anything
runs, and the best points."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from commandline import Npuflow

from npuflow.flow.recipe import load
from npuflow.flow.recipe_sweep import points
from npuflow.flow.sweep import axes_of, front

SWEEP = '\n[sweep]\n"count.least" = [1, 2]\ncount.case = ["keep", "fold"]\n'


@pytest.fixture
def swept(project: Path) -> Path:
    recipe = project / "words.toml"
    recipe.write_text(recipe.read_text() + SWEEP)
    return recipe


def test_every_point_is_built_and_common_steps_run_once(npuflow: Npuflow, swept: Path, project: Path) -> None:
    done = npuflow("sweep", "words.toml", "--json")
    assert done.code == 0, done.err
    *found, last = done.lines
    assert [tuple(p["values"].values()) for p in found] == list(product((1, 2), ("keep", "fold")))
    assert last == {"event": "sweep", "points": 4, "failed": 0, "goals": []}
    assert [p["figures"]["total.words"] for p in found] == [6, 6, 2, 4]          # a b A c | c d
    pages = {p["products"]["page"] for p in found}
    assert len(pages) == 4 and all(Path(page).is_file() for page in pages)
    assert {Path(page).parent.name for page in pages} == {
        f"least-{n}_{c}" for n in (1, 2) for c in ("keep", "fold")
    }
    # two texts: words, tally; total, page
    assert "1/4  least 1, case keep: done (6 ran, 0 hit" in done.err
    assert "4/4  least 2, case fold: done (4 ran, 2 hit" in done.err             # words are read once
    again = npuflow("sweep", "words.toml")
    assert "4 points (0 ran, 24 hit" in again.out
    # the table is no part of a build
    assert npuflow("build", "words.toml").code == 0


def test_a_dry_run_counts_what_every_point_would_run(npuflow: Npuflow, swept: Path, project: Path) -> None:
    def figures(*more: str) -> list[tuple[float, ...]]:
        done = npuflow("sweep", "words.toml", "--dry-run", "--json", *more)
        *found, last = done.lines
        assert done.code == 0 and last == {"event": "sweep", "points": 4, "failed": 0, "goals": []}
        assert all(p["status"] == "planned" and not p["products"] for p in found)
        return [tuple(p["figures"].values()) for p in found]

    assert figures() == [(2, 4, 0), (0, 4, 2), (0, 4, 2), (0, 4, 2)]              # two texts, once
    assert figures("--cache", "own")[0] == (2, 4, 0) and not (project / "out").exists()
    kept = [path for part in ("records", "objects") for path in (project / "own" / part).rglob("*")]
    assert not [path for path in kept if path.is_file()]
    assert npuflow("build", "words.toml", "--set", "count.case=keep").code == 0
    assert figures()[0] == (0, 0, 6)
    said = npuflow("sweep", "words.toml", "-n", "--csv", "never.csv").out
    assert "4 points: 6 to run, 6 maybe, 12 hit" in said and not (project / "never.csv").exists()
    assert npuflow("sweep", "words.toml", "-n", "--goal", "words").code == 2      # faults as of a sweep


def test_points_list_equal_sources_once(
    npuflow: Npuflow, swept: Path, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed, glob = [], Path.glob

    def counted(place: Path, pattern: str) -> Iterator[Path]:
        listed.append(pattern)
        return glob(place, pattern)

    monkeypatch.setattr(Path, "glob", counted)
    npuflow("plan", "words.toml")
    alone = listed.count("*.txt")
    npuflow("sweep", "words.toml", "-n")
    assert alone and listed.count("*.txt") == 2 * alone
    (project / "texts/three.txt").write_text("e\n")
    npuflow("sweep", "words.toml", "-n", "--over", "texts.source=['texts/*.txt', 'texts/t*.txt']")
    assert listed.count("*.txt") == 3 * alone and listed.count("t*.txt") == alone


def test_axes_from_the_command_line_and_values_that_are_tables(npuflow: Npuflow, project: Path) -> None:
    done = npuflow(
        "sweep",
        "words.toml",
        "--over",
        'count=[{least=2, case="fold"}, {least=1}]',
        "--goal",
        "max:total.words",
        "--csv",
        "s.csv",
        "--show",
        "all",
    )
    assert done.code == 0, done.err
    assert "1 marked * that no other beats by most total.words" in done.out
    rows = list(csv.DictReader((project / "s.csv").open()))
    assert [(r["total.words"], r["best"]) for r in rows] == [("4", ""), ("6", "yes")]
    assert (
        npuflow("sweep", "words.toml", "--over", "count.least=[1, 2]", "--set", "count.case=fold").code == 0
    )


def test_a_point_that_fails_is_told_and_the_others_are_built(npuflow: Npuflow, project: Path) -> None:
    done = npuflow("sweep", "words.toml", "--over", 'page.fail=["", "no paper"]', "--json")
    assert done.code == 1
    good, bad, last = done.lines
    assert (good["status"], bad["status"], last["failed"]) == ("done", "failed", 1)
    assert bad["errors"][0]["message"] == "no paper" and "failed: fail no paper" in done.err


def test_all_faults_before_anything_runs(npuflow: Npuflow, project: Path) -> None:
    recipe = project / "words.toml"
    clean = recipe.read_text()
    recipe.write_text(
        clean + '[sweep]\n"count.least" = 3\n"count.case" = ["keep", "keep"]\nextends = ["x.toml"]\n'
    )
    done = npuflow("sweep", "words.toml")
    assert done.code == 2 and done.err.count("error:") == 3 and "expected a list of values" in done.err
    # a recipe is right or it is not
    assert npuflow("build", "words.toml").code == 2
    recipe.write_text(clean + '[sweep]\n"count.leest" = [1, 2]\n"count.case" = ["fold", "upper"]\n')
    done = npuflow("sweep", "words.toml")
    assert done.code == 2 and 'unknown key "leest"' in done.err and '"upper"' in done.err
    assert "words.toml:8" in done.err and "words.toml:9" in done.err            # the lines of [sweep]
    assert done.err.count("error:") == 2                                         # each once, not once a point
    recipe.write_text(clean)
    assert "nothing to sweep" in npuflow("sweep", "words.toml").err
    assert "no list of values" in npuflow("sweep", "words.toml", "--over", "count.least=3").err
    assert (
        "10000 at most"
        in npuflow("sweep", "words.toml", "--over", f"count.least={list(range(1, 20000))}").err
    )
    assert not list(project.glob("out/words/sweep/*"))
    wrong = npuflow("sweep", "words.toml", "--over", "count.least=[1, 2]", "--goal", "total.wrods")
    assert wrong.code == 2 and '"total.words"' in wrong.err


def test_what_options_name_is_told_before_the_points_are_built(
    npuflow: Npuflow, swept: Path, project: Path
) -> None:
    def refused(*options: str) -> str:
        done = npuflow("sweep", "words.toml", *options)
        assert done.code == 2
        return done.err

    for options, text in (
        (("--goal", "max:nothing.words"), 'no figure or number "nothing.words"'),
        (("--goal", "count.case"), 'no figure or number "count.case"'),
        (("--show", "total.words,nobody"), 'no figure or number "nobody"'),
        (("--goal", "total.words", "--plot", "p.svg"), "two goals"),
        (("--plot", "p.pdf"), "neither .svg nor .png"),
        (("--csv", "no/such/s.csv"), "there is no folder"),
    ):
        said = refused(*options)
        assert text in said and "1/4" not in said, options
    assert not list(project.glob("out/words/sweep/*"))
    said = refused("--goal", "total.wrods")                # whose figures a point shows
    assert "1/4" in said and "2/4" not in said and '"total.words"' in said


def test_a_plot_of_two_goals(npuflow: Npuflow, swept: Path, project: Path) -> None:
    goals = ("--goal", "max:total.words", "--goal", "count.least")
    assert npuflow("sweep", "words.toml", *goals, "--plot", "p.svg").code == 0
    points = ElementTree.parse(project / "p.svg").getroot().findall(".//{http://www.w3.org/2000/svg}title")
    assert len(points) == 4
    alone = npuflow("sweep", "words.toml", "--goal", "max:total.words", "--plot", "q.svg")
    assert alone.code == 2 and "two goals" in alone.err


def test_the_front_is_what_no_row_beats() -> None:
    """Against the definition, on random rows with ties; rows without a figure are never best."""
    rng = np.random.default_rng(0)
    for _ in range(50):
        rows = [{"a": int(x), "b": int(y)} for x, y in rng.integers(0, 4, (9, 2))]
        found = front([*rows, {"a": -1}], {"a": False, "b": True})
        want = [not any(o["a"] <= r["a"] and o["b"] >= r["b"] and o != r for o in rows) for r in rows]
        assert found == [*want, False]


def test_names_of_points_are_folders_of_their_own(tmp_path: Path) -> None:
    recipe = load(
        None, tables={"sweep": {"a": [[1], [2]], "b": ["x/y.toml", "y"], "target": {"c": [1.5, 2]}}}
    )
    names = [p.name for p in points(axes_of(recipe))]
    assert len(set(names)) == 8 and not any("/" in n or n in (".", "..") for n in names)


def test_targets_and_their_own_keys_are_axes(tmp_path: Path) -> None:
    """Whole targets beside parameters of theirs, which override each target's; paths are the recipe's."""
    (tmp_path / "mine.toml").write_text('extends = "edge-4t"\n[memory]\nlocal_banks = 7\n')
    recipe = tmp_path / "r.toml"
    recipe.write_text('target = "aries"\n[sweep]\ntarget = ["zhouyi-z2", "mine.toml"]\n"target.memory" = '
                      "[{ local_bytes = 4096, burst = 8 }, { local_bytes = 8192 }]\n")
    read = [load(recipe, point.overrides).tables["target"] for point in points(axes_of(load(recipe)))]
    alone = {name: load(recipe, [f"target={name}"]).tables["target"] for name in ("zhouyi-z2", "edge-4t")}
    burst = [8, alone["zhouyi-z2"]["memory"]["burst"], 8, alone["edge-4t"]["memory"]["burst"]]
    assert [t["memory"]["local_bytes"] for t in read] == [4096, 8192, 4096, 8192]
    assert [t["memory"]["burst"] for t in read] == burst
    assert [t["memory"]["local_banks"] for t in read][2:] == [7, 7]
    assert [t["compute"] for t in read] == [alone["zhouyi-z2"]["compute"]] * 2 + [
        alone["edge-4t"]["compute"]
    ] * 2
