"""What the choice of widths costs when something changes: only what the change reaches, and the
same bytes for any workers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from npuflow.flow.recipe import load
from npuflow.flow.recipe_build import Settings, build, open_cache, plan_recipe, run_plan
from npuflow.flow.stage import STAGES
from npuflow.onnx.export import export_model
from tests.networks import recipes
from tests.precision.harnesses import feeds_of, mixed_net

RECIPE = recipes.RECIPE + """\
[precision]
sqnr_db = 45.0
"""
INFERENCE = {"samples", "observed", "sensitivity"}
CHOICE = ("thresholds", "clipping", "baseline", "sensitivity", "precision", "quantize", "correct", "verdict")


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("widths")
    graph = mixed_net()
    (folder / "net.onnx").write_bytes(export_model(graph))
    np.savez(folder / "calib.npz", x=np.concatenate([f["x"] for f in feeds_of(graph, 40)]))
    (folder / "net.toml").write_text(RECIPE)
    ran(folder)
    yield folder


def ran(project: Path, *sets: str, until: str = "codegen") -> Counter[str]:
    """Items and steps that ran, by stage."""
    settings = Settings(cache=project / "cache", until=until, jobs=1, publish=False)
    recipe = load(project / "net.toml", sets)
    plan, store = plan_recipe(recipe, STAGES, settings), open_cache(recipe, settings)
    found: Counter[str] = Counter()

    def count(event: object) -> None:
        if getattr(event, "status", None) == "ran":
            found[event.stage] += 1  # type: ignore[attr-defined]

    run_plan(plan, recipe, store, settings, count).check()
    return found


def test_widths_were_needed(project: Path) -> None:
    recipe = load(project / "net.toml", ())
    store = open_cache(recipe, Settings(cache=project / "cache"))
    settings = Settings(cache=project / "cache", until="verdict", publish=False)
    result = run_plan(plan_recipe(recipe, STAGES, settings), recipe, store, settings).check()
    assert store.open(result.refs["precision"].digest).json("overrides")


def test_nothing_runs_again(project: Path) -> None:
    assert ran(project) == {}


def test_a_changed_budget_measures_nothing_again(project: Path) -> None:
    """The units' noise does not depend on what is asked for: the choice is made anew from what is known.
    Whether ranges must clip does depend on it, and is looked at again."""
    found = ran(project, "precision.sqnr_db=46.0")
    assert not INFERENCE & set(found) and found["precision"] == found["clipping"] == 1
    assert not {"parse", "statistics", "thresholds"} & set(found)


@pytest.mark.slow
def test_a_budget_that_needs_no_widths_and_one_again(project: Path) -> None:
    ran(project, "precision.sqnr_db=5.0")
    assert ran(project, "precision.sqnr_db=5.0") == {}
    assert not INFERENCE & set(ran(project, "precision.sqnr_db=47.0"))


@pytest.mark.parametrize("change", ["simulate.samples=1", "tiling.allocation=climb", "verdict.advice=false"])
def test_a_change_behind_the_widths_reaches_none_of_it(project: Path, change: str) -> None:
    found = ran(project, change, until="simulate" if "verdict" not in change else "verdict")
    assert found and not {*CHOICE[:-1], *INFERENCE} & set(found)


def test_off_and_on_again(project: Path) -> None:
    """Switched off, nothing of the search runs; switched on again, all of it is there."""
    found = ran(project, "precision.strategy=none")
    assert not {"samples", "observed", "clipping"} & set(found)
    assert ran(project) == {}


@pytest.mark.slow
def test_one_worker_and_two_choose_the_same(project: Path) -> None:
    sets = ("data.count=32",)
    more = {"until": "verdict", "out": project / "out"}
    one = build(project / "net.toml", sets, cache=project / "one", jobs=1, **more)
    two = build(project / "net.toml", sets, cache=project / "two", jobs=2, scheduler="threads", **more)
    assert [one.outputs[name] for name in CHOICE] == [two.outputs[name] for name in CHOICE]
