"""What a room says of itself is true: its public names are there, and its page is linked."""

from __future__ import annotations

import ast
import re
import sys
from pathlib import Path

import pytest

from tests.sources import parsed

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "docs"))
import rooms  # noqa: E402

STATED = [room for room in rooms.rooms() if "Noun: " in rooms.docstring(rooms.PACKAGE / room / "__init__.py")]


def test_every_room_states_its_noun() -> None:
    assert set(rooms.rooms()) - set(STATED) == {"ort", "torch"}, "a product that explains itself at length"


@pytest.mark.parametrize("room", STATED)
def test_public_names_are_defined_in_the_room(room: str) -> None:
    folder = rooms.PACKAGE / room
    text = rooms.docstring(folder / "__init__.py")
    stated = dict(rooms.statements(text.partition("\n\n")[2].partition("\n\n")[0]))
    assert list(stated) == ["Noun", "Public", "Does not know"]
    defined = {
        name
        for path in folder.rglob("*.py")
        for node in parsed(path).body
        for name in names_of(node)
    }
    missing = set(re.findall(r"`([A-Za-z_]+)`", stated["Public"])) - defined
    assert not missing, missing


def names_of(node: ast.stmt) -> list[str]:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return [node.name]
    if isinstance(node, ast.Assign):
        return [target.id for target in node.targets if isinstance(target, ast.Name)]
    return []


def test_the_architecture_names_every_room() -> None:
    page = (ROOT / "docs" / "explanation" / "architecture.md").read_text()
    assert {room for room in rooms.rooms() if f"(../rooms/{room}.md)" not in page} == set()
