"""Closures kept between processes are used only while every answer that they were drawn from is the same."""

from __future__ import annotations

import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from packages import DAMAGES, damaged

from npuflow.base import code
from npuflow.base.code_find import Place
from npuflow.base.code_sources import Sources
from tests.tiers import often

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def of_a_user_without_memos(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "user"))


SCRIPT = """
import sys
sys.path.insert(0, sys.argv[1])
from pathlib import Path
from npuflow.base import code, code_walk
code.open_memo(Path(sys.argv[1]) / "memo")
drawn = []
begin = code_walk.ClosureWalk.__init__
code_walk.ClosureWalk.__init__ = lambda self, *given: drawn.append(1) or begin(self, *given)
found = code.definition_closure("some.one", "f")
plugin = code.plugin_closure(code.registry_named("some ops"), "relu", ("infer",))
print(found.digest, plugin.digest, sorted(plugin.definitions), sorted(found.entries), sorted(found.mentions))
print(len(drawn))
print(sorted(Path(path).name for path in code.files_read()))
code.save_memo()
"""

FILES = {
    "__init__.py": "",
    "one.py": """
from some.two import g
from some.reg import OPS
try:
    from some import fast
except ImportError:
    fast = None
def f(x): return g() + OPS["relu"].infer(x) + x.half(1) + len(OPS.names()) + fast.h()
""",
    "two.py": "from some.three import h\ndef g(): return h()\ndef spare(): return 0\n",
    "three.py": "def h(): return 1\n",
    "reg.py": "from npuflow.base.registry import Registry\nOPS = Registry('some ops', 'some.ops')\n",
    "ops/__init__.py": "",
    "ops/relu.py": """
from some.reg import OPS
@OPS.entry
class Relu:
    def infer(self, x): return x
    def lower(self, x): return -x
""",
}


def run(folder: Path) -> list[str]:
    line = [sys.executable, "-c", SCRIPT, str(folder)]
    return subprocess.run(line, capture_output=True, text=True, check=True, cwd=ROOT).stdout.splitlines()


@pytest.fixture
def package(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        path = tmp_path / "some" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path


def test_another_process_draws_no_closure_again(package: Path) -> None:
    first, second = run(package), run(package)
    assert first[1] == "2" and second[1] == "0"
    assert second[0] == first[0] and second[2] == first[2]


def test_an_edit_of_another_checkout_changes_nothing(package: Path, tmp_path_factory: Any) -> None:
    """A memo of the user's serves all checkouts of equal text: one of them is edited while another builds."""
    run(package)
    other = tmp_path_factory.mktemp("other")
    shutil.copytree(package / "some", other / "some")
    edit = f"""
Path({str(package / "some" / "two.py")!r}).write_text("def g(): return 5\\ndef spare(): return 0\\n")
from npuflow.base.code_loaded import LOADED
print(LOADED.edited(), all(path.startswith(sys.argv[1]) for path in code.files_read() if "/some/" in path))
"""
    script = SCRIPT.replace("code.save_memo()", edit)
    words = [sys.executable, "-c", script, str(other)]
    said = subprocess.run(words, capture_output=True, text=True, check=True, cwd=ROOT).stdout.splitlines()
    assert said[1] == "2", "the other checkout's closures are not this one's"
    assert said[-1] == "[] True"


@pytest.mark.parametrize(
    "name, text",
    [
        ("three.py", "def h(): return 2\n"),
        ("fast.py", "def h(): return 3\n"),  # a module that was looked for and not there
        ("ops/silu.py", FILES["ops/relu.py"]),  # the list of entries is part of the closure
        ("ops/relu.py", FILES["ops/relu.py"].replace("return x", "return x + 1")),
    ],
)
def test_what_changed_is_seen(package: Path, name: str, text: str) -> None:
    first = run(package)
    (package / "some" / name).write_text(text)
    second = run(package)
    assert second[1] == "2" and second[0] != first[0]
    shutil.rmtree(package / "memo")
    shutil.rmtree(package / "user")
    assert run(package)[:2] == second[:2]


def test_a_comment_draws_anew_and_changes_nothing(package: Path) -> None:
    first = run(package)
    (package / "some" / "three.py").write_text("def h(): return 1  # one\n")
    assert run(package)[:2] == [first[0], "2"]
    assert run(package)[1] == "0"


def test_a_file_that_is_gone_is_seen(package: Path) -> None:
    first = run(package)
    (package / "some" / "three.py").rename(package / "some" / "three")
    (package / "some" / "two.py").write_text("def g(): return 1\n")
    assert run(package)[0] != first[0]


@pytest.mark.parametrize("damage", often(DAMAGES, 3))
def test_a_damaged_memo_is_no_memo(package: Path, damage: str) -> None:
    first, path = run(package), package / "memo" / "closures.json"
    path.write_bytes(damaged(path.read_bytes(), damage))
    shutil.rmtree(package / "user")
    assert run(package)[:2] == [first[0], "2"]


def test_a_new_cache_takes_what_the_user_has(package: Path) -> None:
    first = run(package)
    shutil.rmtree(package / "memo")
    assert run(package)[:2] == [first[0], "0"]
    (package / "some" / "three.py").write_text("def h(): return 2\n")
    again = run(package)
    assert again[1] == "2" and again[0] != first[0]


def test_a_memo_is_written_while_other_threads_draw(tmp_path: Path) -> None:
    """Workers of a cluster in the same process may still answer what they are asked when a build ends."""
    kept, sources, ended = code.KeptClosures(), Sources(), Event()
    kept.open(tmp_path / "closures.json", sources)

    def draw() -> None:
        for number in range(20_000):
            if ended.is_set():
                return
            kept.closures[f"m{number}", "f", None, False] = code.Closure(f"d{number}")
            sources.finder.places[f"m{number}"] = Place(f"m{number}", "absent")

    with ThreadPoolExecutor(2) as pool:
        drawn = [pool.submit(draw) for _ in range(2)]
        try:
            for _ in range(5):
                kept.save(sources)
        finally:
            ended.set()
        for one in drawn:
            one.result()
    assert (tmp_path / "closures.json").exists()


def test_few_new_closures_are_written_as_the_process_ends_if_the_cache_is_there(tmp_path: Path) -> None:
    kept, sources, path = code.KeptClosures(), Sources(), tmp_path / "cache/memo/closures.json"
    kept.open(path, sources)
    for number in range(20):
        kept.closures[f"m{number}", "f", None, False] = code.Closure(f"d{number}")
    kept.save(sources)
    before = path.read_bytes()
    kept.closures["one more", "f", None, False] = code.Closure("more")
    kept.save(sources)
    assert path.read_bytes() == before
    kept.save_last(sources)
    assert b"one more" in path.read_bytes()
    shutil.rmtree(tmp_path / "cache")
    kept.closures["late", "f", None, False] = code.Closure("late")
    kept.save_last(sources)
    assert not (tmp_path / "cache").exists()
