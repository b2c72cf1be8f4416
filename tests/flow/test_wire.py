"""Wiring by signature, keys, locks and reasons, on stages written for each test."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from forge import VALUE, Forge

from npuflow.base.errors import InputError, InternalError, RecipeError, UsageError
from npuflow.base.tables import Locator
from npuflow.flow import lock as locks
from npuflow.flow.ahead import Ahead
from npuflow.flow.dry import dry
from npuflow.flow.explain import diff, why
from npuflow.flow.keys import key_of
from npuflow.flow.plan import Plan
from npuflow.flow.recipe import Recipe
from npuflow.flow.refs import ArtifactRef, ItemsRef
from npuflow.flow.run import Result, build
from npuflow.flow.store import Store
from npuflow.flow.wire import wire

KINDS = """
    from collections.abc import Iterator
    from dataclasses import dataclass
    from typing import Annotated
    from npuflow.base.tables import Config
    from npuflow.flow.artifact import Artifact
    from npuflow.flow.refs import Files, Item, Listing
    from npuflow.flow.stage import Items, Project, stage
""" + VALUE + """
    class One(Value):
        def above(self, item): return len(item)
    class Two(Value): ...
    class Part(Value): ...
    class Other(Value): ...
    @dataclass(frozen=True)
    class First(Config):
        n: int = 1
    @dataclass(frozen=True)
    class Polish(Config):
        by: float = 1.0
"""
ONE = "@stage\ndef one(first: First) -> One: return One(first.n)"
TWO = "@stage\ndef two(one: One) -> Two: return Two(one.value // 10)"
PARTS = """
    @stage
    def parts(one: One) -> Iterator[tuple[str, Part]]:
        for i in range(one.value): yield f"p{i}", Part(i)
"""
OTHERS = """
    @stage(over="parts", batch=3)
    def others(parts: Items[Part]) -> Iterator[tuple[str, Other]]:
        for name, part in parts.items(): yield name, Other(part.value // 2)
"""


@pytest.fixture
def forge(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Forge]:
    forge = Forge(tmp_path / "src", "wired", monkeypatch)
    forge.put("kinds", KINDS)
    yield forge
    forge.close()


def stages(forge: Forge, **files: str) -> None:
    for name, text in files.items():
        forge.put(f"stages/{name}", "from wired.kinds import *\n" + textwrap.dedent(text))


def plan(forge: Forge, tables: dict[str, Any] | None = None, **more: Any) -> Plan:
    return wire(forge.registry(), Recipe(None, "toy", tables or {}, Locator()), **more)


def run(forge: Forge, tmp_path: Path, tables: dict[str, Any] | None = None, **more: Any) -> Result:
    return build(plan(forge, tables, **more), Store(tmp_path / "cache"), jobs=1).check()


def names(plan: Plan) -> list[str]:
    return [step.name for step in plan]


def test_signatures_are_the_wiring(forge: Forge, tmp_path: Path) -> None:
    stages(forge, two=TWO, one=ONE)
    assert names(plan(forge)) == ["one", "two"]
    assert plan(forge)["two"].inputs["one"].step == "one"
    assert run(forge, tmp_path, {"first": {"n": 30}}).ran == 2
    assert names(plan(forge, until="one")) == ["one"]
    with pytest.raises(UsageError):
        plan(forge, until="tow")


def test_a_view_is_the_inputs_that_it_holds(forge: Forge, tmp_path: Path) -> None:
    """Views of views, shared fields, methods: wired, keyed and cached as the same parameters are by
    themselves; editing a method that the stage does not call changes nothing."""
    views = """
        from dataclasses import dataclass
        from npuflow.flow.stage import View
        from wired.kinds import First, One, Polish, Two
        @dataclass(frozen=True)
        class Tables(View):
            first: First
            polish: Polish
        @dataclass(frozen=True)
        class Made(View):
            tables: Tables
            one: One
            two: Two | None
            def sum(self): return self.one.value + self.two.value + self.tables.first.n
            def unused(self): return 1
    """
    end = """
        from wired.views import Made, Tables
        @stage
        def end(made: Made, tables: Tables, parts: Items[Part]) -> Other:
            return Other(int(made.sum() + tables.polish.by) + len(parts))
    """
    forge.put("views", views)
    stages(forge, one=ONE, two=TWO, parts=PARTS, end=end)
    tables = {"first": {"n": 30}, "polish": {"by": 2}}
    step = plan(forge, tables)["end"]
    assert set(step.inputs) == {"one", "two", "parts"} and set(step.configs) == {"first", "polish"}
    result = run(forge, tmp_path, tables)
    made = Store(tmp_path / "cache").load(result.refs["end"].digest, forge.kind("Other"))
    assert made.value == 30 + 3 + 30 + 2 + 30
    forge.put("views", views.replace("return 1", "return 2"))
    assert run(forge, tmp_path, tables).ran == 0
    forge.put("views", views.replace("self.one.value +", "2 * self.one.value +"))
    assert run(forge, tmp_path, tables).ran == 1
    assert run(forge, tmp_path, {**tables, "polish": {"by": 3}}).ran == 1
    forge.put("views", views.replace("first: First", "first: int"))
    with pytest.raises(InternalError, match='"first" is annotated'):
        plan(forge)
    forge.put("views", views.replace("two: Two | None", "two: Two | None; first: Polish"))
    with pytest.raises(InternalError, match='"first" is annotated twice'):
        plan(forge)
    stages(forge, end=end.replace(", tables: Tables", "").replace("tables.polish", "made.tables.polish"))
    with pytest.raises(InternalError, match='"first" is annotated twice'):
        plan(forge)


def test_stages_without_their_table_are_off(forge: Forge) -> None:
    extra = """
        @stage(when="extra")
        def extra(one: One) -> Other: return Other()
    """
    end = "@stage\ndef end(other: Other | None, two: Two) -> Value: return Value(0 if other is None else 1)"
    needs = "@stage\ndef needs(other: Other) -> Part: return Part(0)"
    extra = extra.replace("def extra(one: One)", "def extra(one: One, first: First)")
    forge.put("kinds", KINDS + "\n    class Extra(Config): ...\n")
    stages(forge, one=ONE, two=TWO, extra=extra, end=end, needs=needs)
    found = plan(forge)
    assert names(found) == ["one", "two", "end"]
    assert found["end"].inputs["other"].step is None
    assert set(found.off) == {"extra", "needs"} and "[extra]" in found.off["needs"]
    with pytest.raises(UsageError, match="off"):
        plan(forge, until="needs")


def test_refinements_stand_between_a_stage_and_its_consumers(forge: Forge, tmp_path: Path) -> None:
    polish = '@stage(refines="one")\ndef polish(one: One, polish: Polish) -> One: return One(one.value + 100)'
    buff = '@stage(refines="one", after=("polish",))\ndef buff(one: One) -> One: return One(one.value * 2)'
    stages(forge, one=ONE, two=TWO, polish=polish, buff=buff)
    without = plan(forge)
    assert without["two"].inputs["one"].step == "buff" and without["buff"].inputs["one"].step == "one"
    tables = {"polish": {"by": 1}, "first": {"n": 1}}
    assert names(plan(forge, tables)) == ["one", "polish", "buff", "two"]
    result = run(forge, tmp_path, tables)
    two = Store(tmp_path / "cache").load(result.refs["two"].digest, forge.kind("Two"))
    assert two.value == (1 + 100) * 2 // 10
    stages(forge, buff=buff.replace(', after=("polish",)', ""))
    with pytest.raises(InternalError, match="order"):
        plan(forge, tables)


def test_refinements_that_are_always_on_or_wanted_by_other_tables(forge: Forge) -> None:
    steady = '@stage(refines="one", always=True)\ndef steady(one: One, polish: Polish) -> One: return one'
    asked = """
        def large(first: First) -> bool: return first.n > 9
        @stage(refines="one", when="asked", wanted=large, after=("steady",))
        def asked(one: One, polish: Polish) -> One: return one
    """
    stages(forge, one=ONE, two=TWO, steady=steady, asked=asked)
    assert names(plan(forge)) == ["one", "steady", "two"]
    assert "[asked]" in plan(forge).off["asked"]
    assert names(plan(forge, {"first": {"n": 10}})) == ["one", "steady", "asked", "two"]
    with pytest.raises(RecipeError, match="n"):
        plan(forge, {"first": {"n": "many"}})


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"two": TWO}, "no one stage yields One"),
        ({"one": "@stage\ndef one(x: int) -> One: ..."}, 'parameter "x"'),
        ({"one": "@stage\ndef one(first: First) -> int: ..."}, "must return"),
        ({"one": '@stage(over="x")\ndef one(first: First) -> Iterator[tuple[str, One]]: ...'}, 'over "x"'),
        ({"one": "@stage\ndef one(first: 'Nowhere') -> One: ..."}, "Nowhere"),
        ({"one": "@stage\ndef one(two: Two) -> One: ...", "two": TWO}, "cycle"),
        ({"one": "@stage\ndef one(f: Files) -> One: ..."}, "files=LISTING"),
        ({"one": ONE, "uno": ONE, "two": TWO.replace("one: One", "x: One")}, "no one stage"),
        ({"one": "def one(first: First) -> One: ..."}, "marks no entry"),
    ],
)
def test_stages_that_cannot_be_wired_say_so(forge: Forge, files: dict[str, str], message: str) -> None:
    stages(forge, **files)
    with pytest.raises(InternalError, match=message):
        plan(forge)


def test_of_several_makers_the_one_of_the_parameters_name_is_meant(forge: Forge) -> None:
    stages(forge, one=ONE, uno=ONE, two=TWO)
    assert plan(forge)["two"].inputs["one"].step == "one"


def test_faults_of_the_recipe_come_together(forge: Forge) -> None:
    stages(forge, one=ONE, two=TWO.replace("one: One", "one: One, polish: Polish"))
    with pytest.raises(RecipeError) as caught:
        plan(forge, {"first": {"n": "x"}, "polish": {"bye": 2}})
    assert len(caught.value.faults()) == 2


def test_config_enters_after_defaults_and_coercion(forge: Forge) -> None:
    stages(forge, one=ONE, two=TWO.replace("one: One", "one: One, polish: Polish"))
    given = {"one": ArtifactRef("x3:1")}
    key = plan(forge, {})["two"].key(given)
    assert plan(forge, {"polish": {"by": 1}})["two"].key(given) == key
    assert plan(forge, {"polish": {"by": 2}})["two"].key(given) != key
    assert plan(forge, {"first": {"n": 9}})["two"].key(given) == key
    assert plan(forge, {})["two"].key({"one": ArtifactRef("x3:2")}) != key


def test_items_have_keys_of_their_own(forge: Forge) -> None:
    stages(forge, one=ONE, parts=PARTS, others=OTHERS)
    step = plan(forge)["others"]
    items = {name: ArtifactRef(f"x3:{name}") for name in "abc"}
    bound = step.bind({"parts": ItemsRef(items)})
    assert bound.ids == ("a", "b", "c")
    turned = step.bind({"parts": ItemsRef(dict(reversed(items.items())))})
    assert turned.ids == ("c", "b", "a")
    assert turned.key("b") == bound.key("b") != bound.key("a")
    assert key_of(bound.preimage("a")) == bound.key("a")
    assert ItemsRef(items).digest != ItemsRef(dict(reversed(items.items()))).digest


def test_projections_stand_for_the_whole(forge: Forge) -> None:
    projected = OTHERS.replace(
        "parts: Items[Part]", 'parts: Items[Part], one: Annotated[One, Project("above")]'
    )
    stages(forge, one=ONE, parts=PARTS, others=projected)
    step = plan(forge)["others"]
    items = ItemsRef({name: ArtifactRef("x3:1") for name in ("a", "bb")})

    def load(ref: ArtifactRef, kind: Any) -> Any:
        return kind(1)

    keys = [
        step.bind({"parts": items, "one": ArtifactRef(one)}, load).key(item)
        for one, item in [("x3:5", "a"), ("x3:6", "a"), ("x3:5", "bb")]
    ]
    assert keys[0] == keys[1] != keys[2]
    preimage = step.preimage({"parts": items, "one": ArtifactRef("x3:5")}, "a", load)
    assert "one" not in preimage["inputs"] and set(preimage["item"]["projected"]) == {"one"}


def test_early_cutoff_and_fan_out(forge: Forge, tmp_path: Path) -> None:
    stages(forge, one=ONE, two=TWO, parts=PARTS, others=OTHERS)
    first = run(forge, tmp_path, {"first": {"n": 3}})
    assert first.ran == 6
    again = run(forge, tmp_path, {"first": {"n": 4}})
    # One's value changed, two's did not; parts gives one more; others runs one.
    assert (again.ran, again.hit) == (4, 3)
    assert again.refs["two"] == first.refs["two"]


def locked(forge: Forge, tmp_path: Path, tables: dict[str, Any]) -> locks.Lock:
    found = plan(forge, tables)
    result = build(found, Store(tmp_path / "cache"), jobs=1).check()
    return locks.lock_of(found, result.refs)


def test_locks_are_sorted_text_and_read_back(forge: Forge, tmp_path: Path) -> None:
    stages(forge, one=ONE, two=TWO, parts=PARTS, others=OTHERS)
    lock = locked(forge, tmp_path, {"first": {"n": 3}})
    text = locks.text(lock)
    back = locks.parse(text, "x.lock")
    assert (back.steps, back.code) == (lock.steps, lock.code)
    assert locks.text(back) == text == locks.text(locked(forge, tmp_path, {"first": {"n": 3}}))
    assert list(back.steps["others"].items or {}) == ["p0", "p1", "p2"]
    assert str(tmp_path) not in text
    with pytest.raises(InputError, match="not a lock"):
        locks.parse("nonsense", "x.lock")
    odd = locks.Lock(
        {'a "b\\\n\x7f.é': locks.LockedStep("k", "o", {"x.y z": [1, None], "f": 1e-9, "t": True})}
    )
    assert locks.parse(locks.text(odd), "odd").steps['a "b\\\n\x7f.é'].fields == {
        "x.y z": "[1,null]", "f": 1e-9, "t": True,
    }


def test_why_names_the_field_and_the_chain(forge: Forge, tmp_path: Path) -> None:
    stages(forge, one=ONE, two=TWO, parts=PARTS, others=OTHERS)
    old = locked(forge, tmp_path, {"first": {"n": 3}})
    found = dry(plan(forge, {"first": {"n": 40}}), Store(tmp_path / "cache"), old)
    status = {(s.stage, s.item): (s.status, s.reason) for s in found.steps}
    assert status["one", None] == ("run", "config.first.n: 3 -> 40")
    assert status["two", None] == ("maybe", "waits for one")
    assert status["others", None][0] == "maybe"
    new = locked(forge, tmp_path, {"first": {"n": 40}})
    reason = why("two", old, new, found.sources)
    assert [c.field for c in reason.changes] == ["inputs.one"]
    (root,) = reason.roots()
    assert root.stage == "one" and str(root.changes[0]) == "config.first.n: 3 -> 40"
    assert {r.stage for r in diff(old, new)} == {"one", "two", "parts", "others"}
    assert diff(new, new) == []


def test_a_plan_runs_quick_stages_in_memory(forge: Forge, tmp_path: Path) -> None:
    one, two, parts = (text.replace("@stage\n", "@stage(quick=True)\n") for text in (ONE, TWO, PARTS))
    stages(forge, one=one, two=two, parts=parts, others=OTHERS)
    locked(forge, tmp_path, {"first": {"n": 3}})
    changed, store = plan(forge, {"first": {"n": 40}}), Store(tmp_path / "cache")
    before = sorted((tmp_path / "cache").rglob("*"))
    found = dry(changed, store, ahead=Ahead(store)).steps
    assert sorted((tmp_path / "cache").rglob("*")) == before
    reported = {(s.stage, s.item): s.status for s in found}
    done = build(changed, store, jobs=1).check()
    ran = {(stage, item): status for stage, items in done.status.items() for item, status in items.items()}
    assert {place: "ran" if status == "run" else status for place, status in reported.items()} == ran
    assert Counter(reported.values())["run"] > 3 and "maybe" not in reported.values()
    assert {s.status for s in dry(plan(forge, {"first": {"n": 41}}), store).steps} >= {"run", "maybe"}


def test_why_names_the_definition_that_changed(forge: Forge, tmp_path: Path) -> None:
    forge.put("helper", "def half(x): return x // 2\ndef spare(): return 1")
    stages(
        forge,
        one=ONE,
        two="from wired.helper import half\n" + TWO.replace("one.value // 10", "half(one.value)"),
    )
    old = locked(forge, tmp_path, {})
    forge.put("helper", "def half(x): return x // 3\ndef spare(): return 2")
    found = dry(plan(forge), Store(tmp_path / "cache"), old)
    assert {s.stage: s.status for s in found.steps} == {"one": "hit", "two": "run"}
    assert found.steps[1].reason == "code of wired.helper:half"
    assert [c.field for c in found.why("two").code] == ["wired.helper:half"]


def test_partly_known_fan_outs_are_planned_item_by_item(forge: Forge, tmp_path: Path) -> None:
    third = (
        OTHERS.replace("others", "third")
        .replace("Items[Part]", "Items[Other]")
        .replace('"parts"', '"others"')
    )
    third = (
        third.replace("parts:", "others:")
        .replace("parts.items", "others.items")
        .replace("str, Other", "str, Third")
    )
    forge.put("kinds", KINDS + "\n    class Third(Value): ...\n")
    third = third.replace("Other(part", "Third(part")
    stages(forge, one=ONE, parts=PARTS, others=OTHERS, third=third)
    store = Store(tmp_path / "cache")
    old = locked(forge, tmp_path, {"first": {"n": 2}})
    build(plan(forge, {"first": {"n": 3}}, until="parts"), store, jobs=1).check()
    found = dry(plan(forge, {"first": {"n": 3}}), store, old)
    reported = [(s.stage, s.item, s.status) for s in found.steps if s.stage in ("others", "third")]
    assert reported == [
        ("others", "p0", "hit"), ("others", "p1", "hit"), ("others", "p2", "run"),
        ("third", "p0", "hit"), ("third", "p1", "hit"), ("third", "p2", "maybe"),
    ]
    assert next(s.reason for s in found.steps if s.item == "p2") == "new item"
