"""Caches as users have them: shared through an object server, damaged, full, only read, limited; and builds
that meet in one place or are interrupted."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.conftest import Start
from tests.acceptance.environments import ROOT, Environment

RECIPE = '[texts]\nsource = "texts/*.txt"\n\n[count]\nleast = 1\n'
TEXTS = 9
FASHION = ("build", "recipes/fashion.toml", "--set", "data.count=24", "--until", "thresholds")


@pytest.fixture
def texts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a recipe over small stages of its own: builds of it take no time."""
    shutil.copytree(ROOT / "tests" / "cli" / "wordcount", tmp_path / "stages" / "wordcount")
    (tmp_path / "texts").mkdir()
    for number in range(TEXTS):
        words = " ".join(f"w{n}" for n in range(number + 1))
        (tmp_path / "texts" / f"{number:02}.txt").write_text(f"{words}\n")
    (tmp_path / "words.toml").write_text(RECIPE)
    return tmp_path


def settings(place: Path, **more: str) -> dict[str, str]:
    return {"NPUFLOW_STAGES": "wordcount", "PYTHONPATH": str(place / "stages"), **more}


class Bucket:
    """A folder of an S3 server that runs as a process of its own."""

    def __init__(self, endpoint: str) -> None:
        import s3fs

        self.url = f"s3://bucket/cache?endpoint_url={endpoint}&key=test&secret=test"
        own: dict[str, Any] = {"key": "test", "secret": "test", "use_listings_cache": False}
        self.files = s3fs.S3FileSystem(endpoint_url=endpoint, skip_instance_cache=True, **own)
        end = time.monotonic() + 60
        while True:
            try:
                self.files.mkdir("bucket")
                return
            except Exception:  # it does not answer yet
                if time.monotonic() > end:
                    raise
                time.sleep(0.2)

    def objects(self) -> list[str]:
        return sorted(path for path in self.files.find("bucket/cache") if path.endswith(".tar"))

    def spoil(self, seed: int, ways: tuple[str, ...] = ("flip",)) -> int:
        """A third of the objects, each with a bit flipped, cut short or empty."""
        rnd = random.Random(seed)
        found = self.objects()
        chosen = rnd.sample(found, len(found) // 3)
        for path in chosen:
            data = bytearray(self.files.cat_file(path))
            way = rnd.choice(ways)
            if way == "flip":
                data[rnd.randrange(len(data))] ^= 1 << rnd.randrange(8)
            left = {"flip": len(data), "cut": len(data) // 2, "empty": 0}[way]
            self.files.pipe_file(path, bytes(data[:left]))
        return len(chosen)


@pytest.fixture
def bucket(installed: Environment, start: Start) -> Iterator[Bucket]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    start(installed, "python", "-m", "moto.server", "-H", "127.0.0.1", "-p", port)
    yield Bucket(f"http://127.0.0.1:{port}")


def build(environment: Environment, place: Path, *more: str) -> subprocess.CompletedProcess[str]:
    return environment.npuflow("build", "words.toml", *more, cwd=place, env=settings(place))


def warnings(done: subprocess.CompletedProcess[str]) -> list[str]:
    return [line for line in done.stderr.splitlines() if line.startswith("warning:")]


def page(place: Path, out: str) -> bytes:
    return (place / out / "words" / "page.txt").read_bytes()


@pytest.mark.promise("cache-remote-damage")
def test_a_third_of_a_remote_cache_is_damaged(installed: Environment, texts: Path, bucket: Bucket) -> None:
    build(installed, texts, "--cache", "first", "--remote", bucket.url, "--out", "first-out")
    assert bucket.spoil(1, ("flip", "cut", "empty")) > 5
    for path in [path for path in bucket.files.find("bucket/cache") if path.endswith(".json")][::3]:
        bucket.files.pipe_file(path, b"{}")  # and records, so that much of it has to be read
    done = build(installed, texts, "--cache", "second", "--remote", bucket.url, "--out", "second-out")
    assert page(texts, "second-out") == page(texts, "first-out")
    (warning,) = warnings(done)
    assert "the remote cache s3://bucket/cache had damage in" in warning and "replaced there: all" in warning
    assert "secret" not in done.stderr
    again = build(installed, texts, "--cache", "third", "--remote", bucket.url, "--out", "third-out")
    assert not warnings(again) and "nothing to do" in again.stdout
    assert page(texts, "third-out") == page(texts, "first-out")


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(10))
def test_a_third_of_a_remote_cache_is_flipped(
    installed: Environment, place: Path, bucket: Bucket, seed: int
) -> None:
    """The same products of a real network, and one warning at most."""

    def summary(cache: str) -> tuple[dict[str, Any], list[str]]:
        done = installed.npuflow(*FASHION, "--cache", cache, "--remote", bucket.url, "--json", cwd=place)
        events = [json.loads(line) for line in done.stdout.splitlines()]
        return events[-1], [one["message"] for one in events if one["event"] == "warning"]

    first, _ = summary("first")
    bucket.spoil(seed)
    found, said = summary("second")
    assert found["outputs"] == first["outputs"] and len(said) <= 1, said
    again, said = summary("third")
    assert again["outputs"] == first["outputs"] and not said
    # what was never read may still be damaged; a method that reads everything must find the rest
    other = (*FASHION, "--set", "calibrate.method=mse", "--cache", "fourth", "--remote", bucket.url, "--json")
    assert json.loads(installed.npuflow(*other, cwd=place).stdout.splitlines()[-1])["failed"] == 0


@pytest.mark.promise("cache-read-only")
def test_a_cache_that_takes_nothing(installed: Environment, texts: Path) -> None:
    """Only read, and on a full disk: what it has is used, and what it lacks is one clear error."""
    build(installed, texts, "--cache", "kept", "--out", "out")
    shutil.rmtree(texts / "kept" / "memo")
    full = ["-c", 'ulimit -f 0; exec "$@"', "sh", str(installed.bin / "npuflow")]
    said = {}
    for name, before in (("full", full), ("read", read_only(texts / "kept", installed))):
        for least in ("1", "2"):
            words = ["build", "words.toml", "--cache=kept", "--out=out", "--set", f"count.least={least}"]
            done = subprocess.run(
                ["sh", *before, *words], cwd=texts, env=installed.variables(settings(texts)), text=True,
                capture_output=True, check=False, timeout=120,
            )
            assert "Traceback" not in done.stderr, done.stderr
            said[name, least] = done
    for name in ("full", "read"):
        assert said[name, "1"].returncode == 0 and "nothing to do" in said[name, "1"].stdout, said[name, "1"]
        lacks = said[name, "2"]
        assert lacks.returncode == 1 and lacks.stderr.count("error:") == 1 and not warnings(lacks), lacks
        told = ("NF-STORE-019", str(texts / "kept"), "--cache")
        assert all(words in lacks.stderr for words in told), lacks.stderr


def read_only(folder: Path, installed: Environment) -> list[str]:
    """Arguments of `sh` that run npuflow where a folder can only be read, also for root."""
    program = str(installed.bin / "npuflow")
    for path in [folder, *folder.rglob("*")]:
        path.chmod(path.stat().st_mode & ~0o222)
    drop = "setpriv --bounding-set=-dac_override,-dac_read_search,-fowner" if os.geteuid() == 0 else ""
    if drop and shutil.which("setpriv") is None:
        pytest.skip("root may write everywhere, and there is no setpriv to give that up")
    return ["-c", f'exec {drop} "$@"', "sh", program]


@pytest.mark.promise("build-one-at-a-time")
def test_two_builds_at_once_into_one_place(installed: Environment, texts: Path, start: Start) -> None:
    """One cache, one output folder, other settings: the products are of one of them, and it is told."""
    own = settings(texts)
    for least in ("1", "2"):
        build(installed, texts, "--cache", "apart", "--set", f"count.least={least}", "--out", f"alone{least}")
    words = ("build", "words.toml", "--cache", "kept", "--out", "both", "--set")
    first = start(installed, "npuflow", *words, "count.least=1", cwd=texts, env=own)
    lock = texts / "both" / "words" / ".npuflow-build"
    while not (lock.exists() and lock.read_text()) and first.process.poll() is None:
        time.sleep(0.002)  # its name is in the file once it has it
    first.kill(signal.SIGSTOP)  # it is in the middle of its build
    second = start(installed, "npuflow", *words, "count.least=2", cwd=texts, env=own)
    second.until("another build is writing to")
    first.kill(signal.SIGCONT)
    assert first.wait() == 0 and second.wait() == 0, (first.text, second.text)
    assert page(texts, "both") == page(texts, "alone2") != page(texts, "alone1")
    locks = [(texts / out / "words" / "words.lock").read_text() for out in ("both", "alone2")]
    assert locks[0] == locks[1] and not lock.exists()
    assert "nothing is damaged" in installed.npuflow("cache", "verify", "--cache", "kept", cwd=texts).stdout


@pytest.mark.promise("build-interrupted")
def test_an_interrupted_build_says_so(installed: Environment, texts: Path) -> None:
    """From its first moments on, before anything has run."""
    program = (
        "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler); "
        "from npuflow.cli import main; print('begun', flush=True); sys.exit(main())"
    )
    interrupted = 0
    for pause in (0.0, 0.15, 0.4):
        # a signal may meet the program between its last two calls: then it is sent to another one
        for _ in range(10):
            running = installed.popen(
                "python", "-c", program, "build", "words.toml", "--cache", "kept", "--force", "words",
                cwd=texts, env=settings(texts),
            )
            assert running.stdout is not None and running.stdout.readline() == "begun\n"
            time.sleep(pause)
            running.send_signal(signal.SIGINT)
            said, _ = running.communicate(timeout=60)
            if not said.count("File ") == said.count('File "<string>"') == 1:
                break
        assert "Traceback" not in said, said
        if "words: done" not in said:  # else the build had ended, and the signal met Python as it leaves
            assert running.returncode == 130 and "interrupted" in said and "resume" in said, said
            interrupted += 1
        else:
            assert running.returncode in (0, 130, -signal.SIGINT), said
    assert interrupted
    assert build(installed, texts, "--cache", "kept").returncode == 0


@pytest.mark.promise("cache-limit")
def test_builds_at_once_with_a_limited_cache(installed: Environment, texts: Path, start: Start) -> None:
    """Each removes what is old, none what another uses, and the cache is as small as asked afterwards."""
    old = build(installed, texts, "--cache", "kept", "--set", "count.least=9", "--out", "old").returncode
    assert old == 0
    for path in [*(texts / "kept").glob("objects/*/*"), *(texts / "kept").glob("records/*/*")]:
        os.utime(path, (1e9, 1e9))
    own = settings(texts, NPUFLOW_CACHE_SIZE="1kB")
    running = [
        start(
            installed, "npuflow", "build", "words.toml", "--cache", "kept", "--out", f"out{least}", "--set",
            f"count.least={least}", cwd=texts, env=own,
        )
        for least in (1, 2, 3)
    ]
    while any(one.process.poll() is None for one in running):
        installed.npuflow("cache", "gc", "--cache", "kept", "--max-size", "1kB", cwd=texts, check=False)
    assert [one.wait() for one in running] == [0, 0, 0], [one.text for one in running]
    said = "\n".join(one.text for one in running)
    assert "damage" not in said and "NF-" not in said, said
    for least in (1, 2, 3):
        build(installed, texts, "--cache", "apart", "--out", f"apart{least}", "--set", f"count.least={least}")
        assert page(texts, f"out{least}") == page(texts, f"apart{least}")
    done = installed.npuflow("cache", "gc", "--cache", "kept", "--max-size", "1kB", cwd=texts)
    assert int(sizes(texts / "kept")) <= 1000 and "left:" in done.stdout


def sizes(cache: Path) -> int:
    kept = [path for kind in ("objects", "records") for path in (cache / kind).rglob("*") if path.is_file()]
    return sum(path.stat().st_size for path in kept)
