"""Places that take nothing, places that another build has, and Ctrl-C: each is one clear message."""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from commandline import Npuflow, Ran, environment

FULL = ["sh", "-c", 'ulimit -f 0; exec "$@"', "sh"]
"""Before a command: no file can be written, as on a full disk."""
BUILD = ("build", "words.toml", "--cache", "kept")


def run(before: Sequence[str], *args: str) -> Ran:
    done = subprocess.run(
        [*before, sys.executable, "-m", "npuflow", *args], capture_output=True, text=True, check=False,
        env=environment(NPUFLOW_STAGES="wordcount"), timeout=120,
    )
    assert "Traceback" not in done.stderr and "NF-INTERNAL" not in done.stderr, done.stderr
    return Ran(done.returncode, done.stdout, done.stderr)


@pytest.fixture
def only_read(project: Path, npuflow: Npuflow) -> list[str]:
    """A cache that may only be read, and what to put before a command so that this holds for root too."""
    assert npuflow(*BUILD).code == 0
    before: list[str] = []
    if os.geteuid() == 0:
        setpriv = shutil.which("setpriv")
        if setpriv is None:
            pytest.skip("root may write everywhere, and there is no setpriv to give that up")
        before = [setpriv, "--bounding-set=-dac_override,-dac_read_search,-fowner"]
    for path in [project / "kept", *(project / "kept").rglob("*")]:
        path.chmod(path.stat().st_mode & ~0o222)
    return before


def test_a_cache_that_is_only_read_serves_what_it_has(only_read: list[str], project: Path) -> None:
    for out in ("once", "twice"):
        done = run(only_read, *BUILD, "--out", out)
        assert done.code == 0 and "nothing to do" in done.out
        assert "warning: the cache" in done.err and done.err.count("warning:") == 1
        assert (project / out / "words" / "page.txt").read_text()
    assert run(only_read, "plan", "words.toml", "--cache", "kept").code == 0


def test_a_cache_that_is_only_read_and_lacks_a_step_is_one_error(only_read: list[str], project: Path) -> None:
    done = run(only_read, *BUILD, "--set", "count.least=2")
    assert done.code == 1 and done.err.count("error:") == 1 and "warning" not in done.err
    for words in ("NF-STORE-019", str(project / "kept"), "permission denied", "--cache DIR", "cp -r"):
        assert words in done.err, done.err
    forced = run(only_read, *BUILD, "--force", "tally", "--scheduler", "processes:2")
    assert forced.code == 1 and "NF-STORE-019" in forced.err
    behind = run(only_read, *BUILD, "--set", "count.least=2", "--remote", str(project / "share"))
    assert behind.code == 1 and behind.err.count("error:") == 1 and "NF-STORE-019" in behind.err


def test_a_damaged_object_in_a_cache_that_is_only_read(only_read: list[str], project: Path) -> None:
    for path in (project / "kept" / "objects").rglob("page.txt"):
        path.chmod(0o644)
        path.write_text("x" * path.stat().st_size)
        path.chmod(0o444)
    done = run(only_read, *BUILD, "--out", "elsewhere")
    assert done.code == 1 and done.err.count("error:") == 1 and "NF-STORE-019" in done.err, done.err
    assert "damage in 1 object: not used" in done.err


@pytest.mark.slow
def test_looking_after_a_cache_that_is_only_read(only_read: list[str]) -> None:
    assert "records" in run(only_read, "cache", "stats", "--cache", "kept").out
    assert "nothing is damaged" in run(only_read, "cache", "verify", "--cache", "kept").out
    for args in (("--grace", "0"), ("--max-size", "1MB")):
        done = run(only_read, "cache", "gc", "--cache", "kept", *args)
        assert done.code in (0, 1) and done.err.count("error:") == done.code


def test_a_full_disk_serves_what_the_cache_has(npuflow: Npuflow, project: Path) -> None:
    npuflow(*BUILD)
    memo = project / "kept" / "memo"
    shutil.rmtree(memo)
    done = run(FULL, *BUILD)
    assert done.code == 0 and "nothing to do" in done.out and done.err.count("warning: the cache") == 1
    lacking = run(FULL, *BUILD, "--set", "count.least=2")
    assert lacking.code == 1 and lacking.err.count("error:") == 1 and "warning" not in lacking.err
    assert "NF-STORE-019" in lacking.err and "--max-size" in lacking.err and "make room" in lacking.err
    assert not list((project / "kept" / "tmp").iterdir())


def test_a_disk_that_fills_up_is_one_error(project: Path) -> None:
    done = run(["sh", "-c", 'ulimit -f 1; exec "$@"', "sh"], *BUILD)
    assert done.code == 1 and done.err.count("error:") == 1 and "--cache DIR" in done.err, done.err
    assert run([], *BUILD).code == 0


def test_an_output_folder_that_is_only_read_is_one_error(only_read: list[str], project: Path) -> None:
    (project / "out").mkdir(exist_ok=True)
    shutil.rmtree(project / "out")
    (project / "out").mkdir(mode=0o555)
    done = run(only_read, *BUILD)
    assert done.code == 2 and done.err.count("error:") == 1 and "--out DIR" in done.err, done.err


def test_ctrl_c_before_anything_runs_says_so(project: Path, tmp_path: Path) -> None:
    """The parser of options ends it silently with the right exit code."""
    (tmp_path / "stopping").mkdir()
    (tmp_path / "stopping/__init__.py").touch()
    (tmp_path / "stopping/one.py").write_text("import signal\nsignal.raise_signal(signal.SIGINT)\n")
    start = (
        "import signal, sys\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)  # background jobs inherit it as ignored\n"
        "from npuflow.cli import main\n"
        "sys.exit(main())\n"
    )
    paths = os.pathsep.join([environment()["PYTHONPATH"], str(tmp_path)])
    done = subprocess.run(
        [sys.executable, "-c", start, *BUILD], capture_output=True, text=True, check=False, timeout=120,
        env=environment(NPUFLOW_STAGES="stopping", PYTHONPATH=paths) | {"PYTHONPATH": paths},
    )
    assert done.returncode == 130 and not done.stdout
    assert done.stderr == "interrupted; every finished step is kept; run the same command again to resume\n"


def test_ctrl_c_in_a_build_of_two_recipes_starts_no_other(
    project: Path, npuflow: Npuflow, monkeypatch: pytest.MonkeyPatch
) -> None:
    from npuflow.flow.run import _Driver

    monkeypatch.setattr(_Driver, "_advance", lambda self: signal.raise_signal(signal.SIGINT))
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    shutil.copy("words.toml", "more.toml")
    try:
        done = npuflow("build", "words.toml", "more.toml", "--keep-going", "--cache", "kept")
    finally:
        signal.signal(signal.SIGINT, before)
    assert done.code == 130 and done.err.count("interrupted; 0 finished steps are kept") == 1
    assert "resume" in done.err and not done.out


def test_a_build_waits_for_another_that_writes_to_the_same_place(project: Path) -> None:
    folder = project / "out" / "words"
    folder.mkdir(parents=True)
    with (folder / ".npuflow-build").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.write('{"pid": 7, "host": "there", "began": "today"}')
        file.flush()
        waiting = subprocess.Popen(
            [sys.executable, "-m", "npuflow", *BUILD], stderr=subprocess.PIPE, stdout=subprocess.PIPE,
            text=True, env=environment(NPUFLOW_STAGES="wordcount"),
        )
        assert waiting.stderr is not None
        said = waiting.stderr.readline()
        assert "another build is writing to" in said and "process 7 on there, began today" in said
        assert "--out DIR" in waiting.stderr.readline() and not (folder / "page.txt").exists()
    out, err = waiting.communicate(timeout=120)
    assert waiting.returncode == 0 and "done" in out and "another" not in err
    assert not (folder / ".npuflow-build").exists() and (folder / "page.txt").exists()


@pytest.mark.slow
def test_builds_with_different_settings_into_one_place_leave_the_products_of_one(project: Path) -> None:
    own = environment(NPUFLOW_STAGES="wordcount")
    started = [
        subprocess.Popen(
            [sys.executable, "-m", "npuflow", *BUILD, "--set", f"count.least={least}"],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=own,
        )
        for least in (1, 2, 3)
    ]
    ends = [one.communicate(timeout=120) for one in started]
    assert [one.returncode for one in started] == [0, 0, 0], ends
    for least in (1, 2, 3):
        assert run([], *BUILD, "--set", f"count.least={least}", "--out", f"own{least}").code == 0
    products = {
        least: [(project / f"own{least}" / "words" / name).read_text() for name in ("page.txt", "words.lock")]
        for least in (1, 2, 3)
    }
    found = [(project / "out" / "words" / name).read_text() for name in ("page.txt", "words.lock")]
    assert found in products.values() and products[1] != products[2]


def test_a_build_that_fails_leaves_no_output_folder(project: Path, npuflow: Npuflow) -> None:
    (project / "texts" / "one.txt").write_bytes(b"\xff\xfe\xfa")
    done = npuflow(*BUILD, "--out", "new/place")
    assert done.code and not (project / "new").exists()


def test_a_cache_is_made_as_small_as_asked(project: Path, npuflow: Npuflow) -> None:
    for least in (1, 2, 3):
        npuflow(*BUILD, "--set", f"count.least={least}")
    assert "left:" in npuflow("cache", "gc", "--cache", "kept", "--max-size", "1GB").out
    dry = npuflow("cache", "gc", "--cache", "kept", "--max-size", "1kB", "--dry-run")
    done = npuflow("cache", "gc", "--cache", "kept", "--max-size", "1kB")
    assert done.code == 0 and dry.out.replace("would go", "removed") == done.out
    assert "removed: 0 records" not in done.out
    assert npuflow("cache", "gc", "--cache", "kept", "--max-size", "0MB").out.endswith("left: 0 B\n")
    assert "1 ran" not in npuflow(*BUILD).out
    for wrong in (("--max-size", "much"), ("--remote", "share")):
        assert npuflow("cache", "gc", "--cache", "kept", *wrong).code == 2


def test_a_shared_cache_is_made_as_small_as_asked(project: Path, npuflow: Npuflow) -> None:
    npuflow(*BUILD, "--remote", str(project / "share"))
    place = ("cache", "gc", "--remote", str(project / "share"))
    young = npuflow(*place, "--max-size", "0MB")
    assert young.code == 1 and "more than that is in use" in young.out and "0 records, 0 objects" in young.out
    old = 1e9
    for path in (project / "share").rglob("*.*"):
        os.utime(path, (old, old))
    done = npuflow(*place, "--max-size", "0MB")
    assert done.code == 0 and done.out.startswith("removed: 6 records, 6 objects") and "left: 0 B" in done.out
    assert "5 ran" not in npuflow(*BUILD, "--remote", str(project / "share")).out


def test_a_recipe_and_the_environment_limit_the_cache(
    project: Path, npuflow: Npuflow, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrong = npuflow(*BUILD, "--set", "build.cache_size=much")
    assert wrong.code == 2 and "NF-RECIPE-024" in wrong.err and "cache_size" in wrong.err
    over = npuflow(*BUILD, "--set", "build.cache_size=1kB")
    assert over.code == 0 and "more than its limit of 0.001 MB" in over.err and "cache_size" in over.err
    monkeypatch.setenv("NPUFLOW_CACHE_SIZE", "1GB")
    assert not npuflow(*BUILD, "--set", "build.cache_size=1kB", "--set", "count.least=2", "-q").err
    monkeypatch.setenv("NPUFLOW_CACHE_SIZE", "much")
    assert "NF-USAGE-180" in npuflow(*BUILD, "--set", "count.least=3").err
