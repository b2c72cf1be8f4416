"""Builds of the toy compiler for tests."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from npuflow.base.registry import Registry
from npuflow.base.tables import Locator
from npuflow.flow.artifact import Artifact, Reader, Writer
from npuflow.flow.plan import Plan
from npuflow.flow.recipe import Recipe
from npuflow.flow.run import Result, build
from npuflow.flow.store import Store
from npuflow.flow.wire import wire

STAGES = Registry.unlisted("stages", "toybox.stages")


def plan(tables: dict[str, Any] | None = None, **more: Any) -> Plan:
    return wire(STAGES, Recipe(None, "toy", tables or {}, Locator()), **more)


def run(cache: Path, tables: dict[str, Any] | None = None, until: str | None = None, **more: Any) -> Result:
    override = more.pop("override", None)
    store = more.pop("store", None) or Store(cache)
    return build(plan(tables, until=until, override=override), store, **more)


def environment() -> dict[str, str]:
    """Of a process that imports this module and npuflow, as the tests do."""
    here = Path(__file__).parent
    path = os.pathsep.join([str(here), str(here.parents[1])])
    return {**os.environ, "PYTHONPATH": path, "PYTHONWARNINGS": "ignore"}


def kind(name: str) -> Any:
    """An artifact class of the toy compiler."""
    from toybox import kinds

    return getattr(kinds, name)


def dies(_: Any) -> list[str]:
    """What a worker is asked, for one that dies over it."""
    os.kill(os.getpid(), 9)
    return []


def waits(gate: str) -> None:
    """What a worker is given that is to be busy until a file is there."""
    until = time.monotonic() + 60
    while not Path(gate).exists() and time.monotonic() < until:
        time.sleep(0.01)


@dataclass(frozen=True)
class Blob(Artifact):
    """So many bytes, streamed."""

    size: int

    def save(self, folder: Writer) -> None:
        block = bytes(range(256)) * 4096
        with folder.stream("blob.bin") as sink:
            for start in range(0, self.size, len(block)):
                sink.write(block[: self.size - start])

    @classmethod
    def load(cls, folder: Reader) -> Blob:
        return cls(folder.path("blob.bin").stat().st_size)
