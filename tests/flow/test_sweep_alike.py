"""Points of a sweep share what they have in common: their plans and counts are those of each alone."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from npuflow.base.tables import Config, Location
from npuflow.flow.ahead import Ahead
from npuflow.flow.dry import dry
from npuflow.flow.recipe import Recipe, load, parse_set
from npuflow.flow.recipe_alike import AlikeTables
from npuflow.flow.recipe_build import Settings, plan_build
from npuflow.flow.recipe_sweep import points
from npuflow.flow.stage import STAGES
from npuflow.flow.store import Store
from npuflow.flow.sweep import FORECAST, axes_of, forecast, planned

RECIPE = Path(__file__).parents[2] / "recipes/fashion.toml"
OVER = (
    "target.memory.local_bytes=[65536, 131072]",
    "data.count=[16, 32]",
    "calibrate.method=['kl', 'percentile']",
    "calibrate.percentile=[{}, {percentile = 99.0}]",
)


@dataclass(frozen=True)
class Held(Config, table="held"):
    """A table with a value of any type, and a place."""

    value: Any = 0
    place: Location | None = None


def test_a_forecast_counts_what_plans_made_singly_say(tmp_path: Path) -> None:
    store, settings = Store(tmp_path / "cache"), Settings(cache=tmp_path / "cache")
    every = points(axes_of(load(RECIPE), [parse_set(text) for text in OVER]))
    shared = planned(lambda more: load(RECIPE, more, lenient=True), every, STAGES, settings)
    counted = [outcome.figures for outcome in forecast(shared, store, settings)]
    ahead, begun = Ahead(store), set[str | None]()
    assert len(every) == 16 and len({tuple(figures.values()) for figures in counted}) > 3
    for point, (_, _, plan), figures in zip(every, shared, counted, strict=True):
        alone = plan_build(load(RECIPE, point.overrides, lenient=True), STAGES, settings)
        assert plan.off == alone.off
        steps = dry(alone, store, ahead=ahead).steps
        assert [(s.stage, s.item, s.key, s.status) for s in dry(plan, store, ahead=ahead).steps] == [
            (s.stage, s.item, s.key, s.status) for s in steps
        ]
        run = {step.key for step in steps if step.status == "run"} - begun
        maybe = sum(step.status == "maybe" for step in steps)
        begun |= run
        assert figures == dict(zip(FORECAST, (len(run), maybe, len(steps) - len(run) - maybe), strict=True))


def recipe(alike: AlikeTables, tables: dict[str, Any] | Path, *sets: str) -> Recipe:
    made = load(tables, sets) if isinstance(tables, Path) else load(None, sets, tables=tables)
    made.alike = alike
    return made


def test_equal_tables_are_one_and_values_of_other_types_are_not() -> None:
    alike = AlikeTables()
    found = [recipe(alike, {"held": {"value": value}}).read(Held)[0] for value in (1, 1.0, True, "1", 1)]
    assert [type(one.value) for one in found if one is not None] == [int, float, bool, str, int]
    assert found[0] is found[4]
    other = recipe(alike, {"held": {"value": 1}, "more": {"value": 2}}).read(Held)[0]
    assert other is found[0]                              # another table does not matter


def test_equal_texts_in_other_folders_are_other_places(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    alike, found = AlikeTables(), []
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "r.toml").write_text('[held]\nplace = "x.npz"\n')
        found.append(recipe(alike, tmp_path / name / "r.toml").read(Held)[0])
    assert [one.place.base.name for one in found if one is not None and one.place is not None] == ["a", "b"]
    monkeypatch.chdir(tmp_path)
    words = recipe(alike, tmp_path / "a/r.toml", "held.place=x.npz").read(Held)[0]
    assert words is not None and words.place is not None and words.place.base == tmp_path


def test_tables_with_faults_are_told_with_places_of_their_own(tmp_path: Path) -> None:
    alike = AlikeTables()
    for line, text in ((2, "[held]\nplaec = 1\n"), (3, "\n[held]\nplaec = 1\n")):
        (tmp_path / "r.toml").write_text(text)
        found, faults = recipe(alike, tmp_path / "r.toml").read(Held)
        assert found is None and [fault.where.line for fault in faults] == [line]
