"""The script that counts the house follows methods by type, and knows Protocols that only avoid an import."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "benchmarks"))
import house as script  # noqa: E402

CALLER = """
from collections.abc import Sequence
from npuflow.tune.kinds import Left, Right, Worker

def stage(one: Left, many: Sequence[Right], any_one, worker: Worker):
    one.work()
    for each in many:
        each.work()
    any_one.work()
    worker.done()
"""
KINDS = """
from typing import Protocol
from npuflow.search import left, right, deed

class Left:
    def work(self): left.left()

class Right:
    def work(self): right.right()

class Worker(Protocol):
    def done(self, /) -> None: ...

class Deed:
    def done(self): deed.deed()
"""


def house(root: Path, files: Mapping[str, str]) -> script.House:
    for name, text in files.items():
        path = root / "npuflow" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return script.House(root)


def plain(name: str) -> str:
    return f"def {name}(): pass\n"


def package(root: Path, caller: str) -> script.House:
    deeds = {f"search/{name}.py": plain(name) for name in ("left", "right", "deed")}
    return house(root, {"stages/work.py": caller, "tune/kinds.py": KINDS, **deeds})


def reached(found: script.House) -> list[str]:
    (start,) = (name for name in found.functions if name.endswith(".stage"))
    return [name.rpartition("kinds.")[2] for name in script.called(found, start)]


def test_a_method_is_followed_to_the_class_that_annotations_name(tmp_path: Path) -> None:
    found = package(tmp_path, CALLER)
    assert reached(found) == ["Left.work", "Right.work", "Deed.done"]
    stops, rooms = script.walk(found, "npuflow.stages.work.stage")
    # kinds and a file of search, three times, with the way back each time
    assert stops == 13 and rooms == {"npuflow/stages", "npuflow/tune", "npuflow/search"}


@pytest.mark.parametrize(
    ("line", "method"),
    [
        ("def stage(): Left().work()", "Left.work"),
        ("def stage(it: Left | None): it.work()", "Left.work"),
        ("def stage(them: dict[str, Right]):\n    for name, it in them.items(): it.work()", "Right.work"),
        ("def pick() -> Right: ...\ndef stage():\n    it = pick()\n    it.work()", "Right.work"),
        ("class Held:\n    it: Left\ndef stage(held: Held): held.it.work()", "Left.work"),
        (
            "class Held:\n    def __init__(self, a: Left): self.it = a\ndef stage(): Held(Left()).it.work()",
            "Left.work",
        ),
        ("def stage(pair: tuple[Left, Right]):\n    a, b = pair\n    b.work()", "Right.work"),
        ("def stage(them: list[Right]): return [it.work() for it in them]", "Right.work"),
    ],
)
def test_a_type_is_found_where_code_says_it(tmp_path: Path, line: str, method: str) -> None:
    head = "from npuflow.tune.kinds import Left, Right\n"
    found = reached(package(tmp_path, head + line))
    assert [name for name in found if not name.startswith("npuflow")] == [method]


def test_a_name_of_two_classes_is_not_guessed(tmp_path: Path) -> None:
    head = "from npuflow.tune.kinds import Left\n"
    assert reached(package(tmp_path, head + "def stage(it): it.work()")) == []
    assert reached(package(tmp_path, head + "def stage(it: Left | int): it.work()")) == ["Left.work"]
    assert reached(package(tmp_path, head + "def stage(it: str): it.done()")) == ["Deed.done"]


def test_a_protocol_of_one_class_only_avoids_an_import_but_for_contracts_of_plugins(tmp_path: Path) -> None:
    worker = KINDS[KINDS.index("class Worker") : KINDS.index("class Deed")]
    files = {
        "tune/kinds.py": KINDS,
        "strategies/__init__.py": "from typing import Protocol\n" + worker.replace("Worker", "Plug"),
        "tune/asked.py": "from typing import Protocol\nclass Asked(Protocol):\n    def work(self): ...\n",
        "tune/other.py": "class Other:\n    def done(self, what): ...\n",
    }
    assert script.avoiding(house(tmp_path, files)) == ["npuflow.tune.kinds.Worker"]
