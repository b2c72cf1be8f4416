"""Which methods of plug-ins a key holds: those that the code which gets them may call, and no others."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest
from forge import Forge

from npuflow.base.registry import Registry
from npuflow.base.tables import Locator
from npuflow.flow.plan import Plan
from npuflow.flow.recipe import Recipe
from npuflow.flow.run import Result, build
from npuflow.flow.store import Store
from npuflow.flow.wire import wire

KINDS = """
    from collections.abc import Iterator
    from dataclasses import dataclass
    from functools import cached_property
    from operator import attrgetter
    import math
    from npuflow.base.registry import Registry
    from npuflow.flow.artifact import Artifact
    from npuflow.flow.stage import Items, stage

    OPS = Registry("facet ops", "facets.ops")
    RULES = Registry("facet rules", "facets.rules")

    @dataclass(frozen=True)
    class Graph(Artifact):
        ops: tuple[str, ...]
        rules: tuple[str, ...] = ()
        def save(self, folder): folder.json("graph", [self.ops, self.rules])
        @classmethod
        def load(cls, folder): return cls(*map(tuple, folder.json("graph")))
        def uses(self): return {k: v for k, v in (("facet ops", self.ops), ("facet rules", self.rules)) if v}
        def op(self): return OPS[self.ops[0]]()

    @dataclass(frozen=True)
    class Number(Artifact):
        value: float = 0
        def save(self, folder): folder.json("value", self.value)
        @classmethod
        def load(cls, folder): return cls(folder.json("value"))

    @dataclass(frozen=True)
    class Table:
        samples: int = 3
"""
BASE = """
    class Op:
        gain = 1
        def infer(self, x): return x + self.inner()
        def inner(self): return 1
        def lower(self, site, tile): return 2
        def samples(self): return 3
        def floor(self, x): return x
        def reference(self, *xs): return 4
        def rewritten(self, x): return x
        @property
        def size(self): return 5
        @classmethod
        def made(cls, text, more=0): return cls()
"""
ENTRY = """
    from facets.kinds import OPS
    from facets.base import Op

    @OPS.entry
    class {name}(Op):
        {body}
"""
RULE = """
    from facets.kinds import RULES

    @RULES.entry
    class Fold:
        def apply(self, op): return op.rewritten(7)
        def undo(self, op): return op.lower(1, 2)
"""
OWN = {                                       # an override of each method that gives the same
    "infer": "def infer(self, x): return super().infer(x) + 0",
    "inner": "def inner(self): return super().inner() + 0",
    "lower": "def lower(self, site, tile): return 2",
    "samples": "def samples(self): return 3",
    "floor": "def floor(self, x): return x",
    "reference": "def reference(self, *xs): return 4",
    "rewritten": "def rewritten(self, x): return x",
    "size": "@property\n        def size(self): return 5",
    "made": "@classmethod\n        def made(cls, text, more=0): return cls()",
    "gain": "gain = 1",
}


@pytest.fixture
def forge(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Forge]:
    forge = Forge(tmp_path / "src", "facets", monkeypatch)
    for package in ("ops", "rules"):
        forge.put(f"{package}/__init__", "")
    forge.put("kinds", KINDS)
    forge.put("base", BASE)
    forge.put("ops/relu", ENTRY.format(name="Relu", body="pass"))
    forge.put("rules/fold", RULE)
    yield forge
    forge.close()
    for name in ("facet ops", "facet rules"):
        Registry.known.pop(name, None)


def stages(forge: Forge, use: str, graph: str = 'Graph(("relu",))') -> None:
    head = "from facets.kinds import *\nfrom npuflow.flow.stage import Items, stage\nimport math\n"
    made = f"@stage\ndef source() -> Graph: return {graph}"
    used = f"@stage\ndef number(graph: Graph) -> Number:\n{textwrap.indent(textwrap.dedent(use), '    ')}\n"
    for name, text in (("source", made), ("number", used)):
        forge.put(f"stages/{name}", head + text)


def plan(forge: Forge) -> Plan:
    return wire(forge.registry(), Recipe(None, "toy", {}, Locator()))


def changing(forge: Forge, cache: Path) -> set[str]:
    """The methods whose override changes the key of `number`."""
    done: Result = build(plan(forge), Store(cache), jobs=1).check()

    def key() -> str:
        return plan(forge)["number"].key({"graph": done.refs["source"]})

    before, found = key(), set()
    for name, text in OWN.items():
        forge.put("ops/relu", ENTRY.format(name="Relu", body=text))
        if key() != before:
            found.add(name)
    forge.put("ops/relu", ENTRY.format(name="Relu", body="pass  # a comment"))
    assert key() == before
    return found


CASES = {
    "a call": ("return Number(graph.op().infer(1))", {"infer", "inner"}),
    "a call through a variable": ("op = graph.op()\nreturn Number(op.floor(1))", {"floor"}),
    "a call of another number of arguments": ("return Number(len('A'.lower()))", set()),
    "a spread call": ("xs = (1, 2)\nreturn Number(graph.op().lower(*xs))", {"lower"}),
    "any number of arguments": ("return Number(graph.op().reference(1, 2, 3))", {"reference"}),
    "a property": ("return Number(graph.op().size)", {"size"}),
    "a class method": ("return Number(graph.op().made('x').gain)", {"made"}),
    "a module's function of the same name": ("return Number(math.floor(1.5))", set()),
    "a method that is passed on": ("return Number(sum(map(graph.op().floor, [1])))", {"floor"}),
    "a field of the same name": ("return Number(Table().samples)", set()),
    "getattr": ("return Number(getattr(graph.op(), 'infer')(1))", {"infer", "inner"}),
    "attrgetter": ("return Number(attrgetter('lower')(graph.op())(1, 2))", {"lower"}),
    "nothing": ("return Number(len(graph.ops))", set()),
}


@pytest.mark.parametrize("case", CASES)
def test_a_key_holds_the_methods_that_may_be_called(forge: Forge, tmp_path: Path, case: str) -> None:
    use, expected = CASES[case]
    stages(forge, use)
    assert changing(forge, tmp_path / "cache") == expected | {"gain"}, "class attributes always count"


def test_what_a_plug_in_calls_of_another_counts(forge: Forge, tmp_path: Path) -> None:
    """A rule that the stage applies rewrites operators; what undoes it is out of reach."""
    stages(forge, "return Number(RULES[graph.rules[0]]().apply(graph.op()))", 'Graph(("relu",), ("fold",))')
    assert changing(forge, tmp_path / "cache") == {"rewritten", "gain"}


def test_items_hold_the_methods_of_their_own_plug_ins(forge: Forge, tmp_path: Path) -> None:
    head = "from facets.kinds import *\nfrom npuflow.flow.stage import Items, stage\n"
    forge.put("ops/add", ENTRY.format(name="Add", body="pass"))
    forge.put("stages/parts", head + textwrap.dedent("""
        @stage
        def parts() -> Iterator[tuple[str, Graph]]:
            for name in ("relu", "add"): yield name, Graph((name,))
    """))
    forge.put("stages/number", head + textwrap.dedent("""
        @stage(over="parts")
        def number(parts: Items[Graph]) -> Iterator[tuple[str, Number]]:
            for name, one in parts.items(): yield name, Number(one.op().floor(1))
    """))
    done = build(plan(forge), Store(tmp_path / "cache"), jobs=1).check()

    def keys() -> dict[str, str]:
        step, refs = plan(forge)["number"], {"parts": done.refs["parts"]}
        return {item: step.key(refs, item) for item in ("relu", "add")}

    before = keys()
    forge.put("ops/add", ENTRY.format(name="Add", body=OWN["floor"]))
    assert [item for item, key in keys().items() if key != before[item]] == ["add"]
    forge.put("ops/add", ENTRY.format(name="Add", body=OWN["lower"]))
    assert keys() == before
