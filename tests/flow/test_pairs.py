"""Fan-outs over two collections and over groups: keys, batches, plans, and what a
change of one item reruns."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from forge import VALUE, Forge

from npuflow.base.errors import InternalError
from npuflow.base.tables import Locator
from npuflow.flow.dry import dry
from npuflow.flow.lock import lock_of
from npuflow.flow.plan import Plan
from npuflow.flow.recipe import Recipe
from npuflow.flow.refs import FAN_IN, groups, pair, parts
from npuflow.flow.run import Result, build
from npuflow.flow.store import Store
from npuflow.flow.wire import wire

KINDS = """
    from collections.abc import Iterator
    from dataclasses import dataclass
    from pathlib import Path
    from typing import Annotated
    from npuflow.base.tables import Config
    from npuflow.flow.artifact import Artifact
    from npuflow.flow.stage import Groups, Items, Whole, pair, stage
""" + VALUE + """
    class Row(Value): ...
    class Column(Value): ...
    class Cell(Value): ...
    class Sum(Value): ...
    class Total(Value): ...
    @dataclass(frozen=True)
    class Rows(Config):
        values: tuple[int, ...] = (1, 2)
    @dataclass(frozen=True)
    class Columns(Config):
        values: tuple[int, ...] = (1, 2, 3)
        names: str = "c"
"""
STAGES = {
    "rows": """
        @stage
        def rows(rows: Rows) -> Iterator[tuple[str, Row]]:
            for i, value in enumerate(rows.values): yield f"r{i}", Row(value)
    """,
    "columns": """
        @stage
        def columns(columns: Columns) -> Iterator[tuple[str, Column]]:
            for i, value in enumerate(columns.values): yield f"{columns.names}{i}", Column(value)
    """,
    "cells": """
        CALLS = []
        @stage(over="columns", by="rows", batch=4)
        def cells(columns: Items[Column], rows: Annotated[Items[Row], Whole()]) -> Iterator[tuple[str, Cell]]:
            CALLS.append((rows.asked, tuple(columns)))
            first = next(iter(rows.values())).value
            for column, one in columns.items():
                for row in rows.asked: yield pair(row, column), Cell(one.value * rows[row].value + 0 * first)
    """,
    "sums": """
        @stage(over="cells")
        def sums(cells: Groups[Cell]) -> Iterator[tuple[str, Sum]]:
            for group, members in cells.items(): yield group, Sum(sum(one.value for one in members.values()))
    """,
    "total": """
        @stage
        def total(sums: Items[Sum]) -> Total: return Total(sum(one.value for one in sums.values()))
    """,
}


@pytest.fixture
def forge(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Forge]:
    forge = Forge(tmp_path / "src", "paired", monkeypatch)
    forge.put("kinds", KINDS)
    for name, text in STAGES.items():
        put(forge, name, text)
    yield forge
    forge.close()


def put(forge: Forge, name: str, text: str) -> None:
    forge.put(f"stages/{name}", "from paired.kinds import *\n" + textwrap.dedent(text))


def plan(forge: Forge, rows: Any, columns: Any, names: str = "c") -> Plan:
    tables = {"rows": {"values": list(rows)}, "columns": {"values": list(columns), "names": names}}
    return wire(forge.registry(), Recipe(None, "toy", tables, Locator()))


def run(forge: Forge, cache: Path, rows: Any, columns: Any, **more: Any) -> tuple[Result, dict[str, int]]:
    """The result, and how many items and steps ran, by stage."""
    result = build(plan(forge, rows, columns, **more), Store(cache), jobs=1).check()
    ran = {stage: list(status.values()).count("ran") for stage, status in result.status.items()}
    return result, {stage: count for stage, count in ran.items() if count}


def value(cache: Path, result: Result, stage: str) -> int:
    return int(Store(cache).open(result.refs[stage].digest).json("value"))


def calls(forge: Forge) -> list[Any]:
    import importlib

    found = importlib.import_module("paired.stages.cells").CALLS
    taken, found[:] = list(found), []
    return taken


def test_there_is_an_item_for_every_pair(forge: Forge, tmp_path: Path) -> None:
    result, ran = run(forge, tmp_path, (1, 2), (1, 2, 3))
    assert list(result.keys["cells"]) == [f"r{i}:c{j}" for i in range(2) for j in range(3)]
    assert ran["cells"] == 6 and value(tmp_path, result, "total") == 3 * 6
    assert calls(forge) == [(("r0", "r1"), ("c0", "c1", "c2"))]


def test_a_batch_counts_items_of_one_collection_and_is_full(forge: Forge, tmp_path: Path) -> None:
    run(forge, tmp_path, (1, 2), range(6))
    assert [len(columns) for _, columns in calls(forge)] == [4, 2]
    _, ran = run(forge, tmp_path, (1, 2, 3), range(7))          # a row more and a column more
    assert ran["cells"] == 6 + 3
    assert sorted(calls(forge)) == [
        (("r0", "r1", "r2"), ("c6",)),
        (("r2",), ("c0", "c1", "c2", "c3")),
        (("r2",), ("c4", "c5")),
    ]


def test_a_changed_item_reruns_its_pairs_alone(forge: Forge, tmp_path: Path) -> None:
    run(forge, tmp_path, (1, 2), (1, 2, 3))
    result, ran = run(forge, tmp_path, (1, 5), (1, 2, 3))
    assert ran["cells"] == 3 and value(tmp_path, result, "total") == 6 * 6
    assert {item for item, status in result.status["cells"].items() if status == "ran"} == {
        "r1:c0",
        "r1:c1",
        "r1:c2",
    }
    assert result.status["sums"]["r0:c0"] == "hit"
    clean, _ = run(forge, tmp_path / "clean", (1, 5), (1, 2, 3))
    assert clean.outputs == result.outputs


def test_a_plan_knows_pairs_and_groups_item_by_item(forge: Forge, tmp_path: Path) -> None:
    first = build(plan(forge, (1, 2), range(100)), Store(tmp_path), jobs=1).check()
    old = lock_of(plan(forge, (1, 2), range(100)), first.refs)
    changed = plan(forge, (1, 5), range(100))
    build(wire(forge.registry(), changed.recipe, until="rows"), Store(tmp_path), jobs=1).check()
    found = dry(changed, Store(tmp_path), old).steps
    count = lambda stage, status: sum(s.stage == stage and s.status == status for s in found)  # noqa: E731
    assert (count("cells", "hit"), count("cells", "run")) == (100, 100)
    assert count("sums", "hit") == count("sums", "maybe") == len(first.status["sums"]) // 2
    assert [s.status for s in found if s.stage == "total"] == ["maybe"]
    reported = {(s.stage, s.item): s.status for s in found}
    done = build(changed, Store(tmp_path), jobs=1).check()
    assert {(stage, item) for stage, items in done.status.items() for item in items} == set(reported)
    assert all(
        reported[stage, item] == "hit"
        for stage, items in done.status.items()
        for item, s in items.items()
        if s == "hit" and stage in ("cells", "sums")
    )


def test_groups_are_bounded_and_local() -> None:
    ids = [f"item {i}" for i in range(5000)]
    whole = groups(ids, "x")
    assert [one for members in whole.values() for one in members] == ids
    assert all(name == members[0] and len(members) <= FAN_IN for name, members in whole.items())
    assert 20 <= len(ids) / len(whole) <= 40
    assert groups(ids, "y") != whole
    for at in (0, 17, 2500, 4999):
        less = groups(ids[:at] + ids[at + 1 :], "x")
        # a group that was cut by its size moves one more end
        assert len(set(less.items()) - set(whole.items())) <= 3
        more = groups([*ids[:at], "new", *ids[at:]], "x")
        assert len(set(more.items()) - set(whole.items())) <= 3


def test_pairs_of_different_first_parts_are_never_in_one_group() -> None:
    found = groups([pair(by, f"s{i}") for by in ("00", "01") for i in range(10)], "x")
    assert all(len({parts(one)[0] for one in members}) == 1 for members in found.values())
    shape = [[parts(one)[1] for one in members] for members in found.values()]
    assert shape[: len(shape) // 2] == shape[len(shape) // 2 :]


def test_ids_that_could_be_two_pairs_are_refused(forge: Forge, tmp_path: Path) -> None:
    put(forge, "rows", STAGES["rows"].replace('f"r{i}"', 'f"r:{i}"'))
    with pytest.raises(InternalError, match="colon"):
        run(forge, tmp_path, (1, 2), (1, 2, 3))
    put(forge, "rows", STAGES["rows"])
    result, _ = run(forge, tmp_path, (1, 2), (1, 2, 3), names="c:")
    assert next(iter(result.keys["cells"])) == "r0:c:0"


def test_a_batch_that_fails_is_tried_item_by_item(forge: Forge, tmp_path: Path) -> None:
    loop = "for column, one in columns.items():"
    bad = STAGES["cells"].replace(loop, f"{loop}\n                if one.value == 2: raise ValueError('two')")
    put(forge, "cells", bad)
    result = build(plan(forge, (1, 2), (1, 2, 3)), Store(tmp_path), jobs=1, keep_going=True)
    assert {item for item, status in result.status["cells"].items() if status == "failed"} == {
        "r0:c1",
        "r1:c1",
    }
    assert list(result.status["cells"].values()).count("ran") == 4


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("cells", STAGES["cells"].replace('by="rows"', 'by="lines"'), "not two Items parameters"),
        (
            "cells",
            STAGES["cells"].replace("columns: Items[Column]", "columns: Groups[Column]"),
            "not two Items parameters",
        ),
        ("sums", STAGES["sums"].replace("cells: Groups", "some: Groups"), "is not one of"),
        ("total", STAGES["total"].replace("Items[Sum]", "Groups[Sum]"), "in groups or whole"),
    ],
)
def test_what_cannot_be_paired_or_grouped_is_said(forge: Forge, name: str, text: str, message: str) -> None:
    put(forge, name, text)
    with pytest.raises(InternalError, match=message):
        plan(forge, (1, 2), (1, 2, 3))
