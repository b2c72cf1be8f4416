"""A build that has nothing to do: light, quick, and never wrong."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

from commandline import Npuflow, environment, fresh

HEAVY = {
    "numpy",
    "dask",
    "distributed",
    "zarr",
    "onnx",
    "onnxruntime",
    "numba",
    "scipy",
    "typer",
    "rich",
    "click",
}
SCRIPT = """
import sys
from npuflow.cli import main
code = main(sys.argv[1:])
print(" ".join(sorted({name.split(".")[0] for name in sys.modules})), file=sys.stderr)
sys.exit(code)
"""


def modules(*args: str) -> tuple[set[str], str]:
    """The top-level modules that a command imported in a fresh process, and its output."""
    command = [sys.executable, "-c", SCRIPT, *args]
    done = subprocess.run(command, capture_output=True, text=True, env=environment(), timeout=120, check=True)
    return set(done.stderr.splitlines()[-1].split()), done.stdout


def test_a_noop_imports_nothing_heavy(npuflow: Npuflow, project: Path) -> None:
    first, _ = modules("build", "words.toml")
    assert "typer" in first  # the probe sees imports
    loaded, out = modules("build", "words.toml")
    assert out.startswith("words: nothing to do (0 ran, 6 hit, ")
    assert "  page  out/words/page.txt\n" in out
    assert not loaded & HEAVY, loaded & HEAVY


def test_a_noop_says_the_same_in_json(npuflow: Npuflow, project: Path) -> None:
    lines = [json.loads(line) for line in modules("build", "words.toml", "--json")[1].splitlines()]
    first = [line for line in lines if line["event"] != "progress"]
    loaded, out = modules("build", "words.toml", "--json")
    assert not loaded & HEAVY
    # another command, so without the memo
    full = npuflow("build", "words.toml", "--json", "--jobs", "1").lines
    quick = [json.loads(line) for line in out.splitlines()]
    for line in (*quick, *full, *first):
        line.pop("seconds")
    assert sorted(quick, key=str) == sorted(full, key=str)
    assert {line["status"] for line in quick[:-1]} == {"hit"}
    assert quick[-1]["outputs"] == first[-1]["outputs"]


def test_every_change_is_seen(npuflow: Npuflow, project: Path, tmp_path: Path) -> None:
    """The memo may cost time, never the answer: each of these must be noticed, and built."""
    page = project / "out/words/page.txt"

    def rebuilt() -> int:
        ran = npuflow("build", "words.toml", "--json")
        assert ran.code == 0, ran.err
        return int(ran.lines[-1]["ran"])

    assert rebuilt() == 6
    assert rebuilt() == 0
    (project / "texts/one.txt").write_text("a b A x\n")  # the same size, within the clock's doubt
    assert rebuilt() == 4 and "1 x" in page.read_text()
    (project / "texts/three.txt").write_text("new\n")
    assert rebuilt() == 4 and "1 new" in page.read_text()
    (project / "texts/three.txt").unlink()
    assert rebuilt() == 0 and "1 new" not in page.read_text()  # all of it is still in the cache
    (project / "words.toml").write_text(
        (project / "words.toml").read_text().replace("least = 1", "least = 2")
    )
    assert rebuilt() == 4
    page.unlink()
    assert rebuilt() == 0 and page.is_file()
    stale = page.read_text()
    page.write_text("x" * len(stale))
    assert rebuilt() == 0 and page.read_text() == stale
    next((tmp_path / "home").rglob("page.txt")).unlink()
    assert rebuilt() <= 1 and page.read_text() == stale


def test_a_memo_that_is_damaged_costs_only_time(npuflow: Npuflow, tmp_path: Path) -> None:
    npuflow("build", "words.toml")
    (memo,) = (tmp_path / "home").rglob("noop-*.json")
    whole = memo.read_bytes()
    for damaged in (b"", whole[: len(whole) // 2], whole.replace(b"6 hit", b"9 hit"), b"{}\n" + whole):
        memo.write_bytes(damaged)
        ran = npuflow("build", "words.toml")
        assert ran.code == 0 and "nothing to do (0 ran, 6 hit" in ran.out


def test_failures_are_not_remembered(npuflow: Npuflow) -> None:
    for _ in range(2):
        ran = npuflow("build", "words.toml", "--set", "page.fail=no")
        assert ran.code == 1 and "error: no" in ran.err
    for _ in range(2):
        assert npuflow("build", "words.toml", "--force", "page", "--json").lines[-1]["ran"] == 1


def test_the_memo_is_of_the_command_and_the_place(npuflow: Npuflow, project: Path) -> None:
    npuflow("build", "words.toml")
    assert "3 ran" not in npuflow("build", "words.toml").out
    assert npuflow("build", "words.toml", "--set", "page.title=Hi", "--json").lines[-1]["ran"] == 1
    other = project.parent / "other"
    other.mkdir()
    (other / "words.toml").write_text('[texts]\nsource = "none/*.txt"\n')
    os.chdir(other)
    assert npuflow("build", "words.toml", "--json").lines[-1]["ran"] == 2


def test_a_noop_is_quick(npuflow: Npuflow) -> None:
    """The bar of a no-op build is 0.25 s, or the time of `import typer` in the same run on a busy machine."""

    def best(*command: str) -> float:
        times = []
        for _ in range(5):
            begun = time.perf_counter()
            subprocess.run(
                [sys.executable, *command], env=environment(), check=True, capture_output=True, timeout=60
            )
            times.append(time.perf_counter() - begun)
        return min(times)

    fresh("build", "words.toml")
    assert best("-m", "npuflow", "build", "words.toml") <= max(0.25, 1.3 * best("-c", "import typer"))


def test_what_was_read_is_remembered_between_processes(project: Path) -> None:
    """Digests of source files by what `stat` says, and what sources of stages are, by
    content: for `build` and `plan`."""
    time.sleep(2.1)  # files younger than this are read again
    assert fresh("plan", "words.toml", "--cache", "kept").code == 0
    kept = project / "kept" / "memo"
    files = json.loads((kept / "files.json").read_bytes().partition(b"\n")[2])
    assert {Path(name).name for name in files} == {"one.txt", "two.txt"}
    assert b"wordcount" in (kept / "code.json").read_bytes()
    before = (kept / "code.json").stat().st_mtime_ns
    assert fresh("build", "words.toml", "--cache", "kept").code == 0
    assert (kept / "code.json").stat().st_mtime_ns == before, "nothing was parsed that was not known"
    (kept / "files.json").write_bytes((kept / "files.json").read_bytes()[:-3])
    (kept / "code.json").write_bytes(b"")
    again = fresh("build", "words.toml", "--cache", "kept", "--set", "count.least=1")
    assert again.code == 0 and "8 ran" not in again.out
