"""What is kept of parsed sources goes by their content: it saves time and never changes a digest."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from packages import DAMAGES, damaged

from npuflow.base import code, code_memo, code_module
from npuflow.base.code_find import Finder
from npuflow.base.code_module import SourceModule

ROOT = Path(__file__).resolve().parents[2]
SOURCES = sorted((ROOT / "npuflow").rglob("*.py"))


@pytest.fixture(autouse=True)
def of_a_user_without_memos(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "user"))


def module(path: Path, parse: bool) -> SourceModule:
    name = ".".join(path.relative_to(ROOT).with_suffix("").parts)
    place = Finder().find(name.removesuffix(".__init__"))
    content = path.read_bytes()
    made = SourceModule(place if place.kind == "source" else code_module.Place(name, "source", path), content)
    return made.parse(content) if parse else made


def state(one: SourceModule) -> object:
    return one.name, one.units, one.effects, one.imports, one.stars, one.executed


def test_a_picture_gives_the_module_back(tmp_path: Path) -> None:
    first, second = code_memo.Pictures(), code_memo.Pictures()
    first.open(tmp_path / "code.json")
    parsed = [module(path, parse=True) for path in SOURCES[::9]]
    for one in parsed:
        first.keep(one)
    first.save()
    second.open(tmp_path / "code.json")
    for path, one in zip(SOURCES[::9], parsed, strict=True):
        again = module(path, parse=False)
        assert second.restore(again), path
        assert state(again) == state(one)


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_memo_is_no_memo(tmp_path: Path, damage: str) -> None:
    path = tmp_path / "code.json"
    first = code_memo.Pictures()
    first.open(path)
    first.keep(module(SOURCES[5], parse=True))
    first.save()
    path.write_bytes(damaged(path.read_bytes(), damage))
    shutil.rmtree(tmp_path / "user")
    second = code_memo.Pictures()
    second.open(path)
    assert not second.restore(module(SOURCES[5], parse=False))


SCRIPT = """
import sys
sys.path.insert(0, sys.argv[1])
from pathlib import Path
from npuflow.base import code, code_memo, code_module
code_memo.PICTURES.open(Path(sys.argv[1]) / "code.json")
parsed = []
parse = code_module.SourceModule.parse
code_module.SourceModule.parse = lambda self, content: parsed.append(self.name) or parse(self, content)
print(code.definition_closure("some.one", "f").digest)
print(sorted(parsed))
code_memo.PICTURES.save()
"""


def test_another_process_parses_only_what_changed(tmp_path: Path) -> None:
    package = tmp_path / "some"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "one.py").write_text("from some.two import g\ndef f(): return g()\n")
    (package / "two.py").write_text("def g(): return 1\n")

    def run() -> list[str]:
        line = [sys.executable, "-c", SCRIPT, str(tmp_path)]
        return subprocess.run(line, capture_output=True, text=True, check=True, cwd=ROOT).stdout.splitlines()

    first, second = run(), run()
    assert first[1] == "['some', 'some.one', 'some.two']" and second == [first[0], "[]"]
    (package / "two.py").write_text("def g(): return 2\n")
    third = run()
    assert third[1] == "['some.two']" and third[0] != first[0]
    (package / "two.py").write_text("def g(): return 1  # as before\n")
    assert run() == [first[0], "['some.two']"]


def test_the_memo_of_the_process_is_used() -> None:
    assert code.closure(code.closure).digest == code.closure(code.closure).digest
