"""Stages that merge what they made of items, and steps that belong to a stage alone."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from forge import VALUE, Forge

from npuflow.base.errors import InternalError
from npuflow.base.tables import Locator
from npuflow.flow.ahead import Ahead
from npuflow.flow.dry import dry
from npuflow.flow.plan import Plan
from npuflow.flow.recipe import Recipe
from npuflow.flow.run import Result, build
from npuflow.flow.store import Store
from npuflow.flow.wire import wire

KINDS = """
    from collections.abc import Iterator
    from dataclasses import dataclass
    from npuflow.base.tables import Config
    from npuflow.flow.artifact import Artifact
    from npuflow.flow.stage import Items, part, stage
""" + VALUE + """
    class Number(Value): ...
    class Square(Value): ...
    class Sum(Value): ...
    class Total(Value): ...
    class Better(Value): ...
    @dataclass(frozen=True)
    class Numbers(Config):
        values: tuple[int, ...] = (1, 2, 3)
    @dataclass(frozen=True)
    class Scale(Config):
        by: int = 1
    @dataclass(frozen=True)
    class Extra(Config):
        plus: int = 100
"""
NUMBERS = """
    @stage
    def numbers(numbers: Numbers) -> Iterator[tuple[str, Number]]:
        for i, value in enumerate(numbers.values): yield f"n{i}", Number(value)
"""
TOTAL = """
    @part(batch=2)
    def shard(squares: Items[Square]) -> Sum:
        return Sum(sum(one.value for one in squares.values()))

    def region(sums: Items[Sum]) -> Sum:
        return Sum(sum(one.value for one in sums.values()))

    def whole(sums: Items[Sum], scale: Scale) -> Total:
        return Total(scale.by * sum(one.value for one in sums.values()))

    @stage(over="numbers", merge=(shard, region, whole), batch=16)
    def total(numbers: Items[Number]) -> Iterator[tuple[str, Square]]:
        for name, one in numbers.items(): yield name, Square(one.value ** 2)
"""
BETTER = """
    @part
    def options(total: Total) -> Iterator[tuple[str, Number]]:
        for i in range(3): yield f"o{i}", Number(total.value + i)

    @part(over="options", when="extra")
    def extras(options: Items[Number], extra: Extra) -> Iterator[tuple[str, Value]]:
        for name, one in options.items(): yield name, Value(one.value + extra.plus)

    def best(sums: Items[Sum], extras: Items[Value] | None) -> Better:
        found = [one.value for one in sums.values()] + [one.value for one in (extras or {}).values()]
        return Better(max(found))

    @stage(parts=(options, extras), over="options", merge=best)
    def better(options: Items[Number]) -> Iterator[tuple[str, Sum]]:
        for name, one in options.items(): yield name, Sum(one.value)
"""


@pytest.fixture
def forge(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Forge]:
    forge = Forge(tmp_path / "src", "merged", monkeypatch)
    forge.put("kinds", KINDS)
    for name, text in (("numbers", NUMBERS), ("total", TOTAL), ("better", BETTER)):
        put(forge, name, text)
    yield forge
    forge.close()


def put(forge: Forge, name: str, text: str) -> None:
    head = "from merged.kinds import *\nfrom npuflow.flow.stage import part, stage\n"
    forge.put(f"stages/{name}", head + textwrap.dedent(text))


def plan(forge: Forge, count: int = 3, **tables: Any) -> Plan:
    whole = {"numbers": {"values": list(range(count))}, **tables}
    return wire(forge.registry(), Recipe(None, "toy", whole, Locator()))


def run(forge: Forge, cache: Path, count: int = 3, **more: Any) -> tuple[Result, Counter[str]]:
    """The result, and how many steps ran, by step."""
    options = {name: more.pop(name) for name in ("force", "scheduler") if name in more}
    result = build(plan(forge, count, **more), Store(cache), jobs=2, **options).check()
    return result, Counter(
        stage for stage, found in result.status.items() for how in found.values() if how == "ran"
    )


def value(cache: Path, result: Result, stage: str) -> int:
    return int(Store(cache).open(result.refs[stage].digest).json("value"))


def test_a_stage_gives_the_merge_of_what_it_made_of_its_items(forge: Forge, tmp_path: Path) -> None:
    result, ran = run(forge, tmp_path, 200)
    assert value(tmp_path, result, "total") == sum(i * i for i in range(200))
    assert (
        ran["total.items"] == 200
        and 3 < ran["total.merge1"] < 30
        and ran["total.merge2"] < 4
        and ran["total"] == 1
    )


def test_one_item_more_reruns_one_merge_a_level(forge: Forge, tmp_path: Path) -> None:
    run(forge, tmp_path, 200)
    _, ran = run(forge, tmp_path, 201)
    assert {name: n for name, n in ran.items() if name.startswith("total")} == {
        "total.items": 1, "total.merge1": 1, "total.merge2": 1, "total": 1,
    }


@pytest.mark.parametrize(
    ("old", "new", "again"),
    [
        ("value ** 2", "value ** 2 + 0", {"total.items"}),
        ("squares.values()))", "squares.values()) + 0)", {"total.merge1"}),
        (
            "return Sum(sum(one.value for one in sums.values()))",
            "return Sum(0 + sum(one.value for one in sums.values()))",
            {"total.merge2"},
        ),
        ("scale.by * sum", "scale.by * 1 * sum", {"total"}),
        ("batch=16", "batch=8", set()),
        ("@stage(over", "# a comment\n    @stage(over", set()),
    ],
)
def test_an_edit_reruns_the_level_that_it_is_of(
    forge: Forge, tmp_path: Path, old: str, new: str, again: set[str]
) -> None:
    run(forge, tmp_path)
    assert old in TOTAL
    put(forge, "total", TOTAL.replace(old, new))
    assert set(run(forge, tmp_path)[1]) == again


def test_a_table_of_a_merge_reruns_that_merge(forge: Forge, tmp_path: Path) -> None:
    run(forge, tmp_path)
    assert set(run(forge, tmp_path, scale={"by": 2})[1]) == {
        "total",
        "better.options",
        "better.items",
        "better",
    }


def test_parts_are_seen_by_their_stage_alone(forge: Forge, tmp_path: Path) -> None:
    """`Number` comes from `numbers` too, and is no choice for `total`."""
    result, _ = run(forge, tmp_path)
    assert value(tmp_path, result, "better") == 5 + 2
    taken = plan(forge)
    assert taken["better.items"].inputs["options"].step == "better.options"
    assert taken["total.items"].inputs["numbers"].step == "numbers"
    put(forge, "other", "@stage\ndef other(extras: Items[Value]) -> Better: return Better(1)")
    with pytest.raises(InternalError, match="no one stage yields Value"):
        plan(forge, extra={})


def test_a_part_with_a_table_of_its_own_is_off_without_it(forge: Forge, tmp_path: Path) -> None:
    assert "better.extras" not in plan(forge) and plan(forge).off == {}
    result, ran = run(forge, tmp_path, extra={"plus": 10})
    assert value(tmp_path, result, "better") == 5 + 2 + 10 and ran["better.extras"] == 3


def test_parts_are_off_with_their_stage(forge: Forge, tmp_path: Path) -> None:
    put(forge, "better", BETTER.replace("@stage(", '@stage(when="extra", '))
    assert list(plan(forge).off) == ["better"]
    assert not [step for step in plan(forge) if step.whole == "better"]


def test_to_force_a_stage_is_to_force_its_parts(forge: Forge, tmp_path: Path) -> None:
    run(forge, tmp_path)
    assert set(run(forge, tmp_path, force=["total"])[1]) == {
        "total.items",
        "total.merge1",
        "total.merge2",
        "total",
    }
    assert set(run(forge, tmp_path, force=["total.merge1"])[1]) == {"total.merge1"}


def test_a_plan_knows_the_parts(forge: Forge, tmp_path: Path) -> None:
    put(forge, "numbers", NUMBERS.replace("@stage", "@stage(quick=True)"))
    run(forge, tmp_path, 40)
    found = dry(plan(forge, 41), Store(tmp_path), ahead=Ahead(Store(tmp_path))).steps
    assert [step.item for step in found if step.stage == "total.items" and step.status != "hit"] == ["n40"]
    assert Counter((step.stage, step.status) for step in found)["total.items", "hit"] == 40
    assert {step.status for step in found if step.stage == "total"} == {"maybe"}


@pytest.mark.slow
def test_parts_run_in_other_processes(forge: Forge, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import os

    monkeypatch.setenv("PYTHONPATH", f"{tmp_path / 'src'}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
    result, _ = run(forge, tmp_path, 40, scheduler="processes:2")
    assert value(tmp_path, result, "total") == sum(i * i for i in range(40))
