"""The log of a build: one line for a stage with its parts and refinements, none for
minor ones unless asked."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from npuflow.base.tables import Locator
from npuflow.cli._plan import _table
from npuflow.cli._progress import Plain
from npuflow.cli._progress_lines import Lines
from npuflow.flow.dry import dry
from npuflow.flow.plan import Plan
from npuflow.flow.recipe import Recipe, load
from npuflow.flow.recipe_build import Settings, plan_recipe
from npuflow.flow.run import build
from npuflow.flow.stage import STAGES
from npuflow.flow.store import Store
from npuflow.flow.wire import wire
from tests.flow.forge import VALUE, Forge

ROOT = Path(__file__).parents[2]
KINDS = """
    from dataclasses import dataclass
    from npuflow.base.tables import Config
    from npuflow.flow.artifact import Artifact
""" + VALUE + """        def summary(self): return {"value": self.value}

    class Number(Value): ...
    class Note(Value): ...
    class Sum(Value): ...
    @dataclass(frozen=True)
    class Fault(Config):
        at: str = ""
"""
FILES = {
    "numbers": """
        @stage(minor=True)
        def numbers() -> Iterator[tuple[str, Number]]:
            for i in range(20): yield f"n{i}", Number(i)
    """,
    "total": """
        def add(sums: Items[Number]) -> Sum: return Sum(sum(one.value for one in sums.values()))

        @stage(over="numbers", merge=(add, add))
        def total(numbers: Items[Number], fault: Fault) -> Iterator[tuple[str, Number]]:
            for name, one in numbers.items():
                assert name != fault.at
                yield name, one
    """,
    "doubled": """
        @stage(refines="total", always=True, minor=True)
        def doubled(total: Sum) -> Sum: return Sum(2 * total.value)
    """,
    "note": """
        @stage(minor=True)
        def note(sum: Sum, fault: Fault) -> Note:
            assert fault.at != "note"
            return Note(sum.value)
    """,
}
HEAD = """from collections.abc import Iterator
from npuflow.flow.stage import Items, stage
from logged.kinds import *
"""


@pytest.fixture
def forge(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Forge]:
    forge = Forge(tmp_path / "src", "logged", monkeypatch)
    forge.put("kinds", KINDS)
    for name, text in FILES.items():
        forge.put(
            f"stages/{name}",
            HEAD + textwrap.dedent(text).replace("Items[Number]) -> Sum", "Items[Value]) -> Sum"),
        )
    yield forge
    forge.close()


def plan(forge: Forge, at: str = "") -> Plan:
    return wire(forge.registry(), Recipe(None, "toy", {"fault": {"at": at}}, Locator()))


def said(
    forge: Forge, cache: Path, capsys: pytest.CaptureFixture[str], at: str = "", every: bool = False
) -> list[list[str]]:
    taken = plan(forge, at)
    build(taken, Store(cache), jobs=1, on_event=Plain(taken, every).show)
    return [line.split() for line in capsys.readouterr().err.splitlines()]


def test_a_stage_has_one_line_with_its_parts_and_refinements(
    forge: Forge, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (line,) = said(forge, tmp_path, capsys)
    assert line[:2] == ["total", "ran"] and "20/20 items" in " ".join(line) and line[-2:] == ["value", "380"]
    (line,) = said(forge, tmp_path, capsys)
    assert line[:2] == ["total", "hit"] and "20/20 items, 20 hit" in " ".join(line)


def test_all_steps_when_asked(forge: Forge, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = said(forge, tmp_path, capsys, every=True)
    assert [line[:2] for line in lines] == [
        [step, "ran"] for step in ("numbers", "total.items", "total.merge1", "total", "doubled", "note")
    ]
    assert "20/20" in lines[1]


def test_what_is_asked_for_has_a_line(forge: Forge) -> None:
    assert Lines(plan(forge), every=False).shown == ["total"]
    assert Lines(plan(forge), every=False, asked=["note"]).shown == ["total", "note"]


@pytest.mark.parametrize(("at", "name"), [("n7", "total.items/n7"), ("note", "note")])
def test_what_fails_has_a_line_whatever_its_step(
    forge: Forge, tmp_path: Path, capsys: pytest.CaptureFixture[str], at: str, name: str
) -> None:
    assert [name, "failed"] in [line[:2] for line in said(forge, tmp_path, capsys, at)]


def test_the_default_log_is_short() -> None:
    """At most eight lines of steps; with the result, four products and the verdict fourteen."""
    recipe = load(ROOT / "recipes" / "fashion.toml")
    lines = Lines(plan_recipe(recipe, STAGES, Settings()), every=False).shown
    assert len(lines) <= 8 and {"statistics", "quantize", "tiling", "simulate", "evaluate"} <= set(lines)


def test_what_a_table_switches_on_has_a_line() -> None:
    recipe = load(ROOT / "recipes" / "fashion.toml", ["search.objective=sqnr", 'channels.tensors=["*"]'])
    lines = Lines(plan_recipe(recipe, STAGES, Settings()), every=False).shown
    assert {"search", "channels"} <= set(lines) and "thresholds" not in lines


def test_a_plan_has_one_line_for_a_stage_and_its_parts(forge: Forge, tmp_path: Path) -> None:
    taken, store = plan(forge), Store(tmp_path)
    rows = _table(taken, dry(taken, store).steps, items=False)
    assert [row.split()[0] for row in rows] == ["numbers", "total", "doubled", "note"]
    build(taken, store, jobs=1)
    assert re.search(r"hit +2\d hit$", _table(taken, dry(taken, store).steps, items=False)[1])
    named = [row.split()[0] for row in _table(taken, dry(taken, store).steps, items=True)]
    assert named[1:4] == ["total.items", "total.merge1", "total"]
