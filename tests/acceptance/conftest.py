"""Fixtures of the acceptance tests: installed wheels, a folder of examples, real clusters and servers."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.acceptance.environments import ROOT, Environment, build_wheel, install, made_once

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents:
            item.add_marker("acceptance")


def shared(factory: pytest.TempPathFactory) -> Path:
    """The folder that all processes of one test run share."""
    base = factory.getbasetemp()
    return base.parent if os.environ.get("PYTEST_XDIST_WORKER") else base


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of this checkout."""
    folder = made_once(shared(tmp_path_factory) / "wheel", lambda into: void(build_wheel(into)))
    (found,) = folder.glob("*.whl")
    return found


def void(value: object) -> None:
    """Nothing, of anything."""


def environment(factory: pytest.TempPathFactory, name: str, wheel: Path) -> Environment:
    folder = made_once(shared(factory) / name, lambda into: void(install(into / "env", wheel)))
    return Environment(folder / "env")


@pytest.fixture(scope="session")
def installed(tmp_path_factory: pytest.TempPathFactory, wheel: Path) -> Environment:
    """The product as a user has it: the wheel in an environment of its own."""
    return environment(tmp_path_factory, "installed", wheel)


@pytest.fixture(scope="session")
def second_environment(tmp_path_factory: pytest.TempPathFactory, wheel: Path) -> Environment:
    """Another environment with the same wheel."""
    return environment(tmp_path_factory, "second", wheel)


@pytest.fixture(scope="session")
def other_version(tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """An environment with the same sources under another version number."""
    base = shared(tmp_path_factory)
    folder = made_once(base / "other-wheel", lambda into: void(build_wheel(into, "0.0.1")))
    (found,) = folder.glob("*.whl")
    return environment(tmp_path_factory, "other", found)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A folder with the recipes and examples, as a reader of the documentation has it. The cache is the
    user's by default, and may hold builds of earlier runs."""
    for name in ("recipes", "examples"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("out", "__pycache__"))
    return tmp_path


class Started:
    """A running program, with the lines that it has printed so far."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.lines: list[str] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line.rstrip("\n"))

    @property
    def text(self) -> str:
        return "\n".join(self.lines)

    def until(self, words: str, seconds: float = 60) -> str:
        """The first line with these words, waited for. A program that ends before fails the test."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            for line in list(self.lines):
                if words in line:
                    return line
            if self.process.poll() is not None:
                self._reader.join(5)
                if words not in self.text:
                    break
            time.sleep(0.02)
        raise AssertionError(f"no line has {words!r} (exit code {self.process.poll()}):\n{self.text}")

    def kill(self, number: int = signal.SIGKILL) -> None:
        """Sends a signal to the program and all that it has started."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, number)

    def wait(self, seconds: float = 60) -> int:
        """The exit code, when all that it printed has been read."""
        code = self.process.wait(seconds)
        self._reader.join(5)
        return code


Start = Callable[..., Started]


@pytest.fixture
def start() -> Iterator[Start]:
    """`start(environment, program, arguments..., cwd=, env=)` starts a program; all of them are killed
    at the end of the test, with what they have started."""
    running: list[Started] = []

    def begin(environment: Environment, program: str, *arguments: object, **options: object) -> Started:
        running.append(Started(environment.popen(program, *map(str, arguments), **options)))  # type: ignore[arg-type]
        return running[-1]

    yield begin
    for one in running:
        one.kill()
        one.wait()
