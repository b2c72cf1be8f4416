"""A small build with one of everything a key may depend on, and the edits that a user could make to it."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from forge import Forge

from npuflow.base.files import DIGESTS
from npuflow.base.registry import Registry
from npuflow.base.tables import Locator
from npuflow.flow.dry import dry
from npuflow.flow.plan import Plan
from npuflow.flow.recipe import Recipe
from npuflow.flow.run import Result, build
from npuflow.flow.store import Store
from npuflow.flow.wire import wire

PACKAGE = "edited"

KINDS = '''
"""What the stages hand on: numbers that every edit shows in."""
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated
from npuflow.base.tables import Config, Location
from npuflow.flow.artifact import Artifact
from npuflow.flow.refs import Files, Item, Listing
from npuflow.flow.stage import Items, stage
from edited.plugs import PLUGS

@dataclass(frozen=True)
class Value(Artifact):
    value: int = 0
    used: tuple[str, ...] = ()
    def save(self, folder): folder.json("value", [self.value, list(self.used)])
    @classmethod
    def load(cls, folder):
        value, used = folder.json("value")
        return cls(value, tuple(used))
    def uses(self): return {"edited plugs": self.used} if self.used else {}

class Source(Value): ...
class Sample(Value): ...
class Model(Value): ...
class Tuned(Value): ...
class Merged(Value): ...
class Final(Value): ...

@dataclass(frozen=True)
class Read(Config):
    source: Location
    scale: int = 1
@dataclass(frozen=True)
class Shape(Config):
    plugs: tuple[str, ...] = ("alpha",)
@dataclass(frozen=True)
class Tune(Config):
    method: Annotated[str, PLUGS] = "alpha"
    level: float = 1.0
@dataclass(frozen=True)
class Extra(Config):
    add: int = 1
'''

STAGES = {
    "sources": """
def listing(read: Read) -> Listing:
    place = read.source.path
    return {p.name: Item((p,), {"scale": read.scale}) for p in sorted(place.parent.glob(place.name))}

@stage(over="files", files=listing, batch=2)
def sources(files: Files) -> Iterator[tuple[str, Source]]:
    for name, item in files.items():
        yield name, Source(int(item.files[0].read_text()) * item.detail["scale"] + {sources})
""",
    "samples": """
from edited.facade import bump
@stage(over="sources", batch=3)
def samples(sources: Items[Source]) -> Iterator[tuple[str, Sample]]:
    for name, one in sources.items():
        yield name, Sample((bump(one.value) + {samples}) // 2)
""",
    "model": """
@stage
def model(shape: Shape) -> Model:
    return Model({model}, tuple(sorted(set(shape.plugs))))
""",
    "tuned": """
@stage
def tuned(model: Model, tune: Tune) -> Tuned:
    from edited.late import finish
    total = sum(PLUGS[name]().weigh(model.value) for name in model.used)
    return Tuned(finish(total) + PLUGS[tune.method]().apply(int(tune.level * 4)) + {tuned})
""",
    "merged": """
@stage
def merged(samples: Items[Sample], tuned: Tuned) -> Merged:
    from npuflow.base.code import package_file
    table = int(package_file("../data/table.txt").read_text())
    value = 0
    for index, one in enumerate(samples.values()):
        value = (value * 31 + one.value * (index + 1) + tuned.value) % 1000003
    return Merged((value + table + {merged}) // 2)
""",
    "extra": """
@stage(refines="merged")
def extra(merged: Merged, extra: Extra) -> Merged:
    return Merged(merged.value + extra.add + {extra})
""",
    "final": """
@stage
def final(merged: Merged, model: Model, tuned: Tuned) -> Final:
    from edited.deep import late
    return Final(late(merged.value) + sum(PLUGS[name]().apply(model.value) for name in model.used) + {final})
""",
}

HELPERS = {
    "plugs/__init__.py": "from npuflow.base.registry import Registry\nPLUGS = Registry('edited plugs', "
    "'edited.entries')",
    "facade/__init__.py": "from ._work import bump, spare",
    "facade/_work.py": "from .. import amounts\ndef bump(x): return x + amounts.STEP + {bump}\ndef "
    "spare(x): return x * {spare}",
    "amounts.py": "STEP = {step}\nUNUSED = {unused}",
    "late.py": "def finish(x): return x + {finish}",
    "deep/__init__.py": "from edited.deep.inner import late",
    "deep/inner.py": "import math\nclass Adder:\n    n = {adder}\n    def add(self, x): return x + self.n\n"
    "def late(x): return Adder().add(x)",
    "entries/__init__.py": "",
    "data/table.txt": "{table}",
}

ENTRY = """
from edited.plugs import PLUGS
@PLUGS.entry
class Plug:
    '''{doc}'''
    base = {base}
    def weigh(self, x): return x + self.base
    def apply(self, x): return x * 3 + {apply}
    def other(self, x): return {other}
"""

PLUGINS = ("alpha", "beta", "gamma")


@dataclass
class State:
    """Every number that a user could edit."""

    numbers: dict[str, int] = field(default_factory=dict)
    entries: dict[str, dict[str, int]] = field(default_factory=dict)
    samples: dict[str, int] = field(default_factory=dict)
    tables: dict[str, dict[str, Any]] = field(default_factory=dict)
    noise: int = 0

    @classmethod
    def first(cls) -> State:
        names = [*STAGES, "bump", "spare", "step", "unused", "finish", "adder", "table"]
        return cls(
            dict.fromkeys(names, 1),
            {name: {"base": 1, "apply": 1, "other": 1, "doc": 1} for name in PLUGINS},
            {"a.txt": 1, "b.txt": 2, "c.txt": 3},
            {"tune": {"method": "alpha"}, "shape": {"plugs": ["alpha", "beta"]}},
        )


class World:
    """The build on disk."""

    def __init__(self, root: Path) -> None:
        self.root, self.state = root, State.first()
        self.forge = Forge(root / "src", PACKAGE)
        self.store = Store(root / "cache")
        (root / "samples").mkdir()
        self.write()

    def write(self) -> None:
        """Bring the disk to the state; comments and formatting carry the noise."""
        state, noise = self.state, f"\n\n# {self.state.noise}\n" + "\n" * (self.state.noise % 3)
        self._put("kinds.py", KINDS)
        for name, text in HELPERS.items():
            tail = "" if name.endswith(".txt") else noise
            self._put(name, text.format(**state.numbers) + tail)
        for name, text in STAGES.items():
            for key, number in state.numbers.items():
                text = text.replace("{" + key + "}", str(number))
            self._put(
                f"stages/{name}.py", f"'''{state.noise}'''\nfrom edited.kinds import *\n" + text + noise
            )
        for name, numbers in state.entries.items():
            self._put(f"entries/{name}.py", ENTRY.format(**numbers) + noise)
        for path in (self.root / "samples").iterdir():
            if path.name not in state.samples:
                path.unlink()
        for name, number in state.samples.items():
            (self.root / "samples" / name).write_text(str(number))
        self.forge.forget()
        Registry.known.pop("edited plugs", None)

    def _put(self, name: str, text: str) -> None:
        path = self.forge.root / PACKAGE / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def plan(self) -> Plan:
        DIGESTS.forget()
        tables = {"read": {"source": str(self.root / "samples" / "*.txt")}}
        for name, table in self.state.tables.items():
            tables[name] = {**tables.get(name, {}), **table}
        return wire(self.forge.registry(), Recipe(None, "edited", tables, Locator()))

    def expected(self) -> dict[tuple[str, str | None], str]:
        """(stage, item) -> run or maybe, as a dry run says."""
        return {(s.stage, s.item): s.status for s in dry(self.plan(), self.store).steps if s.status != "hit"}

    def build(self) -> tuple[Result, dict[tuple[str, str | None], str]]:
        ran: dict[tuple[str, str | None], str] = {}

        def tell(event: Any) -> None:
            if getattr(event, "status", None) == "ran":
                ran[event.stage, event.item] = event.output

        return build(self.plan(), self.store, jobs=1, on_event=tell).check(), ran

    def clean(self, folder: Path) -> dict[str, str]:
        """The digests of a build that has no cache to lean on."""
        return build(self.plan(), Store(folder), jobs=1).check().outputs

    def check(self, scratch: Path) -> int:
        """Build with the cache and without; they must agree, and the plan must have foreseen what ran."""
        foreseen = self.expected()
        result, ran = self.build()
        wholly = {stage for stage, item in foreseen if item is None}
        unforeseen = [one for one in ran if one not in foreseen and one[0] not in wholly]
        assert not unforeseen, f"ran, but not planned: {unforeseen}"
        certain = [one for one, status in foreseen.items() if status == "run" and one not in ran]
        assert not certain, f"planned, but not run: {certain}"
        assert result.outputs == self.clean(scratch), "the cached build differs from a clean one"
        assert self.build()[1] == {}, "a build without edits ran something"
        return len(ran)

    def close(self) -> None:
        self.forge.close()
        Registry.known.pop("edited plugs", None)


Edit = Callable[[State, random.Random], None]


def _number(*names: str) -> Edit:
    def edit(state: State, rnd: random.Random) -> None:
        state.numbers[rnd.choice(names)] = rnd.randrange(40)

    return edit


def _entry(field_name: str) -> Edit:
    def edit(state: State, rnd: random.Random) -> None:
        state.entries[rnd.choice(list(state.entries))][field_name] = rnd.randrange(40)

    return edit


def _recipe(state: State, rnd: random.Random) -> None:
    table, key, values = rnd.choice(
        [
            ("tune", "method", PLUGINS),
            ("tune", "level", (1, 1.0, 2, 2.5)),
            ("shape", "plugs", (["alpha"], ["beta", "alpha"], ["gamma"], [])),
            ("read", "scale", (1, 2, 3)),
        ]
    )
    state.tables.setdefault(table, {})[key] = rnd.choice(values)


def _refinement(state: State, rnd: random.Random) -> None:
    if state.tables.pop("extra", None) is None:
        state.tables["extra"] = {"add": rnd.randrange(4)}


def _sample(state: State, rnd: random.Random) -> None:
    name = rnd.choice("abcdefg") + ".txt"
    if name in state.samples and len(state.samples) > 1 and rnd.random() < 0.4:
        del state.samples[name]
    else:
        state.samples[name] = rnd.randrange(12)


def _noise(state: State, rnd: random.Random) -> None:
    state.noise += 1


EDITS: dict[str, Edit] = {
    "recipe": _recipe,
    "refinement": _refinement,
    "stage code": _number(*STAGES),
    "helper behind a facade": _number("bump", "spare", "step", "unused"),
    "function-level import": _number("finish", "adder"),
    "package data": _number("table"),
    "sample": _sample,
    "plug-in facet": _entry("base"),
    "plug-in": _entry("apply"),
    "plug-in, unused method": _entry("other"),
    "plug-in, docstring": _entry("doc"),
    "comments and formatting": _noise,
}
NO_TASKS = {"comments and formatting", "plug-in, docstring", "plug-in, unused method"}
