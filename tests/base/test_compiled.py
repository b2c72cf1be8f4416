"""Machine code of compiled functions: kept by the content of their sources, shared by copies of them."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from pathlib import Path

import pytest

from npuflow.base.compiled import compiled

INNER = "from npuflow.base.compiled import compiled\n\n@compiled\ndef inner(x):\n    return x + {add}\n"
OUTER = (
    "from npuflow.base.compiled import compiled\nfrom {package}.inner import inner\n\n"
    "@compiled\ndef outer(x):\n    return 10 * inner(x)\n"
)
ASK = (
    "import sys; from {package}.outer import outer; print(outer(1), "
    "outer.code.stats.cache_hits[outer.code.signatures[0]] if outer.code.stats.cache_hits else 0)"
)


def made(folder: Path, add: int, package: str = "npuflow_kernels_of_a_test") -> Path:
    """A package with a function that calls another one of another file."""
    place = folder / package
    place.mkdir(parents=True, exist_ok=True)
    (place / "__init__.py").write_text("")
    (place / "inner.py").write_text(INNER.format(add=add))
    (place / "outer.py").write_text(OUTER.format(package=package))
    return folder


def asked(
    folder: Path, cache: Path, package: str = "npuflow_kernels_of_a_test", before: str = "", **more: str
) -> list[int]:
    """What the outer function gives of 1, and whether its code was there, in a new process. `before`: what
    it does first."""
    environment = {**os.environ, "XDG_CACHE_HOME": str(cache), "PYTHONPATH": str(folder), **more}
    environment.pop("NUMBA_CACHE_DIR", None)
    # Python takes a file that was changed within a second and kept its size for the one that it compiled
    environment["PYTHONDONTWRITEBYTECODE"] = "1"
    environment.update(more)
    command = [sys.executable, "-c", before + ASK.format(package=package)]
    said = subprocess.check_output(command, env=environment, text=True, cwd=folder, timeout=60)
    return [int(word) for word in said.split()]


def test_another_checkout_of_the_same_sources_finds_the_code(tmp_path: Path) -> None:
    assert asked(made(tmp_path / "one", 1), tmp_path / "cache") == [20, 0]
    assert asked(made(tmp_path / "two", 1), tmp_path / "cache") == [20, 1]
    assert not list((tmp_path / "one").rglob("*.nbc"))


def test_a_changed_function_of_another_file_is_seen_by_what_calls_it(tmp_path: Path) -> None:
    place = made(tmp_path / "one", 1)
    assert asked(place, tmp_path / "cache") == [20, 0]
    made(place, 2)
    assert asked(place, tmp_path / "cache") == [30, 0]
    made(place, 1)
    assert asked(place, tmp_path / "cache") == [20, 1]


@pytest.mark.slow
def test_a_folder_that_the_user_names_is_taken(tmp_path: Path) -> None:
    named = tmp_path / "named"
    assert asked(made(tmp_path / "one", 1), tmp_path / "cache", NUMBA_CACHE_DIR=str(named)) == [20, 0]
    assert list(named.rglob("*.nbc")) and not (tmp_path / "cache").exists()


RACE = """
import sys, time
from pathlib import Path
from numba.core.caching import IndexDataCacheFile
from npuflow_kernels_of_a_test.outer import outer

plain, mine, other = IndexDataCacheFile._load_index, *map(Path, sys.argv[2:])
calls = []
def meeting(self):
    found = plain(self)
    calls.append(self)
    if calls.count(self) == 2 and "outer" in self._index_name:      # the index is read to be written
        mine.touch()
        until = time.monotonic() + 3
        while not other.exists() and time.monotonic() < until:
            time.sleep(0.02)
    return found
IndexDataCacheFile._load_index = meeting
outer(eval(sys.argv[1]))
"""
BOTH = (
    "from npuflow_kernels_of_a_test.outer import outer; "
    "print(outer(1), outer(1.5), outer.code.stats.cache_misses)"
)


@pytest.mark.slow
def test_code_for_two_types_is_saved_one_after_the_other(tmp_path: Path) -> None:
    """Two processes that compile a function for other types at once: without a lock both take one file."""
    place = made(tmp_path / "one", 1)
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path / "cache"), "PYTHONPATH": str(place)}
    environment.pop("NUMBA_CACHE_DIR", None)
    marks = [tmp_path / "a", tmp_path / "b"]
    runs = [
        subprocess.Popen([sys.executable, "-c", RACE, x, *map(str, own)], env=environment, cwd=place)
        for x, own in (("1", marks), ("1.5", marks[::-1]))
    ]
    assert [run.wait(60) for run in runs] == [0, 0]
    said = subprocess.check_output([sys.executable, "-c", BOTH], env=environment, text=True, cwd=place)
    assert said.split()[:2] == ["20", "25.0"] and said.endswith("Counter()\n"), said


@pytest.mark.slow
def test_a_process_that_stands_still_holds_up_no_other(tmp_path: Path) -> None:
    """A build that was stopped while it saved code kept every later one waiting for ever."""
    kept = tmp_path / "cache" / "npuflow-kernels"
    kept.mkdir(parents=True)
    with (kept / "lock").open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        impatient = "from npuflow.base import compiled_code; compiled_code.WAITED = 0.5; "
        assert asked(made(tmp_path / "one", 1), tmp_path / "cache", before=impatient) == [20, 0]
        assert not list(kept.rglob("*.nbc"))
    assert asked(made(tmp_path / "one", 1), tmp_path / "cache") == [20, 0]
    assert asked(made(tmp_path / "one", 1), tmp_path / "cache") == [20, 1]


def test_a_cache_that_is_a_file_is_no_fault(tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("")
    assert asked(made(tmp_path / "one", 1), tmp_path / "cache") == [20, 0]


def test_files_are_those_of_all_that_is_compiled_in() -> None:
    from npuflow.isa.requant import requant_rows
    from npuflow.kernels import compiled as shared

    assert Path(shared.__file__) in requant_rows.files()
    own = Path(compiled(made).function.__code__.co_filename)
    assert compiled(made).files() == {own}
    from npuflow.whole.execute import dense, dot

    assert Path(dot.__file__) in dense._run.files(), "vector code that is imported, over several lines"
