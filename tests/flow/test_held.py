"""A run is held to its key: a stage uses of registries only what the key says."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from forge import Forge

from npuflow.base.tables import Locator
from npuflow.flow.recipe import Recipe
from npuflow.flow.run import build
from npuflow.flow.store import Store
from npuflow.flow.wire import wire

HELD = """
from dataclasses import dataclass
from typing import Annotated
from npuflow.base.registry import Registry
from npuflow.base.tables import Config
from npuflow.flow.artifact import Artifact
from npuflow.flow.stage import stage
PARTS = Registry("parts", "held.parts")

@dataclass(frozen=True)
class Pick(Config):
    name: Annotated[str, PARTS] = "one"

@dataclass(frozen=True)
class Text(Artifact):
    text: str
    def save(self, folder): folder.text("text", self.text + "".join(PARTS[n]() for n in PARTS.names())[:0])
    @classmethod
    def load(cls, folder): return cls(folder.text("text"))
"""
HEAD = "from held.kinds import *\n@stage\ndef make(pick: Pick) -> Text:\n"


@pytest.fixture
def forge(tmp_path: Path) -> Iterator[Forge]:
    made = Forge(tmp_path, "held")
    yield made
    made.close()


def test_a_stage_is_held_to_the_plugins_of_its_key(forge: Forge, tmp_path: Path) -> None:
    """What a stage takes from a registry without its key knowing fails it; a constant name is
    known, and an artifact's own."""
    forge.put("parts/__init__", "")
    for name in ("one", "two"):
        forge.put(
            f"parts/{name}", f"from held.kinds import PARTS\n@PARTS.entry\ndef {name}(): return '{name}'\n"
        )
    forge.put("kinds", HELD)
    forge.put("stages/make", HEAD + "    return Text(PARTS[pick.name]())\n")
    recipe = Recipe(None, "toy", {"pick": {"name": "two"}}, Locator())
    assert build(wire(forge.registry(), recipe), Store(tmp_path / "cache")).ok, (
        "a table that names it is enough"
    )
    whole = HEAD + "    return Text(''.join(PARTS[n]() for n in PARTS.names()))\n"
    forge.put("stages/make", whole)
    (error,) = build(wire(forge.registry(), recipe), Store(tmp_path / "cache")).errors
    assert (
        error.message == "make used parts/one, whose code is not in its key" and error.where.stage == "make"
    )
    forge.put("stages/make", whole.replace("return", 'PARTS["one"]\n    return'))
    assert build(wire(forge.registry(), recipe), Store(tmp_path / "cache")).ok, (
        "a constant name is in the key"
    )
