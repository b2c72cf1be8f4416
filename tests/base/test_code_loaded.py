"""Which text of a source file a process runs."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from npuflow.base import code
from npuflow.base.code_loaded import LOADED
from npuflow.base.foreign import function


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A package `edits` with a module `one`, none of it imported."""
    folder = tmp_path / "edits"
    folder.mkdir()
    (folder / "__init__.py").write_text("")
    (folder / "one.py").write_text("def give(): return 1\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    LOADED.own.add("edits")
    code.forget()
    yield folder
    LOADED.own.discard("edits")
    for name in ("edits", "edits.one"):
        sys.modules.pop(name, None)
    code.forget()


def mixed(folder: Path) -> list[str]:
    return [path for path in LOADED.mixed() if path.startswith(str(folder))]


def edited(path: Path) -> None:
    path.write_text(path.read_text() + "# a line more\n")


def test_a_file_edited_after_its_import_and_before_its_key(package: Path) -> None:
    importlib.import_module("edits.one")
    edited(package / "one.py")
    assert not mixed(package)
    code.definition_closure("edits.one", "give")
    assert mixed(package) == LOADED.outdated(str(package)) == [str(package / "one.py")]
    del sys.modules["edits.one"]
    importlib.import_module("edits.one")
    assert not mixed(package) and not LOADED.outdated(str(package))


def test_a_file_edited_after_its_key_and_before_its_import(package: Path) -> None:
    code.definition_closure("edits.one", "give")
    assert not LOADED.edited()
    edited(package / "one.py")
    assert LOADED.edited() == [str(package / "one.py")] and not mixed(package)
    importlib.import_module("edits.one")
    assert mixed(package) == [str(package / "one.py")]
    code.forget()
    code.definition_closure("edits.one", "give")
    assert not mixed(package) and not LOADED.edited()


def test_a_module_that_is_looked_up_is_not_taken_for_imported(package: Path) -> None:
    importlib.import_module("edits.one")
    edited(package / "one.py")
    importlib.util.find_spec("edits.one")
    code.definition_closure("edits.one", "give")
    assert mixed(package) == [str(package / "one.py")]


def test_installed_packages_are_left_out() -> None:
    """Keys hold their versions; to note their thousands of files would take time."""
    import yaml.tokens  # noqa: F401

    assert not [path for path in LOADED.__dict__["_loaded"] if "/yaml/" in path]


def test_a_data_file_of_a_package_edited_after_its_key(package: Path) -> None:
    (package / "table.txt").write_text("1")
    (package / "one.py").write_text(
        "from npuflow.base.code import package_file\n"
        "def give(): return package_file('table.txt').read_text()\n"
    )
    code.definition_closure("edits.one", "give")
    assert not mixed(package)
    (package / "table.txt").write_text("22")
    assert mixed(package) == [str(package / "table.txt")]


def test_a_module_beside_a_recipe_is_the_one_that_is_there_now(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process of a cluster serves one recipe after another: it kept the first module of a name, and ran
    what it had loaded before an edit, under the key of the edited file."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    for name, number in (("a", 1), ("b", 2)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "scoring.py").write_text("from helping import n\ndef give(): return n\n")
        (tmp_path / name / "helping.py").write_text(f"n = {number}\n")

    def give(name: str) -> int:
        return int(function("scoring", "give", tmp_path / name)[0]())

    assert (give("a"), give("b"), give("a"), give("a")) == (1, 2, 1, 1)
    (tmp_path / "a" / "helping.py").write_text("n = 333\n")
    assert (give("a"), give("b")) == (333, 2)
    for name in ("scoring", "helping"):
        del sys.modules[name]
