"""A small build of its own stages and plug-ins, whose sources a test edits while builds run.

`first` and `middle` wait at gates, so that a test can edit what comes after them. `last` selects one plug-in
by a table, gets another by the name that its input holds, and imports a module only when it runs.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from pathlib import Path

from tests.acceptance.conftest import Started
from tests.acceptance.environments import Environment

FILES = {
    "__init__.py": "",
    "stages/__init__.py": "",
    "entries/__init__.py": "",
    "plugs.py": """
from npuflow.base.registry import Registry
PLUGS = Registry("shop plugs", "shop.entries")
""",
    "kinds.py": """
from dataclasses import dataclass
from typing import Annotated
from npuflow.base.tables import Config
from npuflow.flow.artifact import Artifact
from shop.plugs import PLUGS

@dataclass(frozen=True)
class Value(Artifact):
    value: int = 0
    used: tuple[str, ...] = ()
    def save(self, folder): folder.json("value", [self.value, list(self.used)])
    @classmethod
    def load(cls, folder):
        value, used = folder.json("value")
        return cls(value, tuple(used))
    def uses(self): return {"shop plugs": self.used} if self.used else {}

class First(Value): ...
class Middle(Value): ...
class Last(Value): ...

@dataclass(frozen=True)
class Tune(Config):
    method: Annotated[str, PLUGS] = "alpha"
""",
    "gates.py": """
import os
import time
from pathlib import Path

def wait(name):
    place = Path(os.environ["SHOP_GATE"])
    (place / f"{name} began").touch()
    until = time.monotonic() + 120
    while not (place / f"{name} open").exists() and time.monotonic() < until:
        time.sleep(0.02)
""",
    "stages/first.py": """
from npuflow.flow.stage import stage
from shop.gates import wait
from shop.kinds import First

@stage
def first() -> First:
    wait("first")
    return First(1)
""",
    "stages/middle.py": """
from npuflow.flow.stage import stage
from shop.gates import wait
from shop.kinds import First, Middle

@stage
def middle(first: First) -> Middle:
    wait("middle")
    return Middle(first.value * 10 + 2, ("beta",))
""",
    "stages/last.py": """
from npuflow.flow.stage import stage
from shop.kinds import Last, Middle, Tune
from shop.plugs import PLUGS

@stage
def last(middle: Middle, tune: Tune) -> Last:
    from shop.late import finish
    named = [PLUGS[name]().apply(middle.value) for name in middle.used]
    return Last(finish(PLUGS[tune.method]().apply(sum(named))))
""",
    "late.py": "def finish(x): return x * 10 + 3\n",
    "entries/alpha.py": '''
from shop.plugs import PLUGS

@PLUGS.entry
class Alpha:
    """The plug-in that a table selects."""
    def apply(self, x): return x * 10 + 4
''',
    "entries/beta.py": '''
from shop.plugs import PLUGS

@PLUGS.entry
class Beta:
    """The plug-in that an input names."""
    def apply(self, x): return x * 10 + 5
''',
}
EDITS = {
    "stage": ("stages/last.py", "sum(named)", "(sum(named) + 100000)"),
    "middle": ("stages/middle.py", "10 + 2", "10 + 7"),
    "selected": ("entries/alpha.py", "10 + 4", "10 + 8"),
    "named": ("entries/beta.py", "10 + 5", "10 + 9"),
    "late": ("late.py", "10 + 3", "10 + 6"),
}


class Shop:
    """The sources of the build, a folder for it, and the environment that runs it."""

    def __init__(self, environment: Environment, place: Path, cache: Path | None = None) -> None:
        self.environment, self.place = environment, place
        self.cache = cache or place / "cache"
        self.source = place / "src" / "shop"
        self.gate = place / "gate"
        self.gate.mkdir(parents=True)
        (place / "shop.toml").write_text('[tune]\nmethod = "alpha"\n')
        for name, text in FILES.items():
            path = self.source / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)

    @property
    def variables(self) -> Mapping[str, str]:
        """Of builds, and of workers that are to find the sources. Compiled files would be confused: their
        time stamps are of whole seconds."""
        return {
            "PYTHONPATH": str(self.source.parent),
            "PYTHONDONTWRITEBYTECODE": "1",
            "NPUFLOW_STAGES": "shop.stages",
            "SHOP_GATE": str(self.gate),
        }

    def command(self, scheduler: str, cache: Path | None = None) -> list[str]:
        place = ["--cache", str(cache or self.cache), "--out", str(self.place / "out")]
        return ["build", str(self.place / "shop.toml"), *place, "--scheduler", scheduler, "--json"]

    def open(self, *stages: str) -> None:
        """Let stages go on, without names all."""
        for name in stages or ("first", "middle"):
            (self.gate / f"{name} open").touch()

    def close(self) -> None:
        """Shut all gates again."""
        for path in self.gate.iterdir():
            path.unlink()

    def began(self, build: Started, stage: str = "first") -> None:
        """Wait until a stage runs."""
        until = time.monotonic() + 120
        while not (self.gate / f"{stage} began").exists():
            assert time.monotonic() < until and build.process.poll() is None, build.text
            time.sleep(0.02)

    def edit(self, what: str) -> None:
        """Change what a part computes. The file is replaced, as editors do."""
        name, old, new = EDITS[what]
        path = self.source / name
        text = path.read_text()
        assert text.count(old) == 1
        made = path.with_suffix(".new")
        made.write_text(text.replace(old, new))
        made.replace(path)

    def outputs(self, scheduler: str = "threads", cache: Path | None = None) -> dict[str, str]:
        """The product of every stage, built in one go."""
        self.open()
        done = self.environment.npuflow(*self.command(scheduler, cache), env=self.variables, cwd=self.place)
        return finished(done.stdout)


def finished(printed: str) -> dict[str, str]:
    """Of the JSON lines of a build that succeeded: stage -> product."""
    last = json.loads([line for line in printed.splitlines() if line.startswith("{")][-1])
    assert last["event"] == "summary" and last["failed"] == 0, printed
    return dict(last["outputs"])
