"""SIGKILL in every stage, of the driver and of workers: the build that ends at last gives the same bytes."""

from __future__ import annotations

import hashlib
import json
import os
import random
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from tests.acceptance.conftest import Start, Started
from tests.acceptance.environments import Environment

KILLS = 20
TRIES = 40                                # some hit nobody: two stages end at once, a worker is starting
pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]


def command(place: Path, name: str, scheduler: str) -> list[str]:
    own = ["--cache", str(place / name), "--out", str(place / f"{name}-out"), "--json"]
    return ["build", "recipes/fashion.toml", "--set", "data.count=24", *own, "--scheduler", scheduler]


def bytes_of(build: Started, place: Path, name: str) -> dict[str, str]:
    """Every product of a build that ended and the lock, by digest. (The graph beside them shows which steps
    ran, and is none.)"""
    last = json.loads([line for line in build.lines if line.startswith("{")][-1])
    lock = place / f"{name}-out" / "fashion" / "fashion.lock"
    paths = {"lock": lock, **last["products"]}
    assert {"program", "qdq", "report"} <= paths.keys()
    return {label: hashlib.sha256((place / path).read_bytes()).hexdigest() for label, path in paths.items()}


def ran(build: Started) -> Iterator[str]:
    """The stage of every step that a running build reports to have run, as it is reported."""
    seen = 0
    while True:
        ended = build.process.poll() is not None
        while seen < len(build.lines):
            line, seen = build.lines[seen], seen + 1
            event = json.loads(line) if line.startswith("{") else {}
            if event.get("event") == "step" and event["status"] == "ran":
                yield event["stage"]
        if ended:
            return
        time.sleep(0.005)


def stages_of(build: Started) -> list[str]:
    """The stages of a build that ended, in the order in which they did."""
    return list(dict.fromkeys(ran(build)))


@pytest.fixture
def plain(installed: Environment, place: Path, start: Start) -> tuple[list[str], dict[str, str]]:
    """The stages and the bytes of a build that nobody disturbs."""
    build = start(installed, "npuflow", *command(place, "plain", "threads"), cwd=place)
    assert build.wait(900) == 0, build.text
    return stages_of(build), bytes_of(build, place, "plain")


def chosen(stages: list[str]) -> set[str]:
    """Stages after whose end somebody is killed, all over the build."""
    return {stages[round(i * (len(stages) - 2) / (TRIES - 1))] for i in range(TRIES)}


@pytest.mark.promise("build-killed-resumes")
def test_a_driver_killed_in_every_stage(
    installed: Environment, place: Path, start: Start, plain: tuple[list[str], dict[str, str]]
) -> None:
    """One cache, and a build that is killed with its workers after one stage more each time."""
    stages, wanted = plain
    left, rnd = chosen(stages), random.Random(30)
    kills = 0
    while True:
        scheduler = ("threads", "processes:2")[kills % 2]
        build = start(installed, "npuflow", *command(place, "killed", scheduler), cwd=place)
        for stage in ran(build):
            if stage in left:
                left.discard(stage)
                time.sleep(rnd.uniform(0, 0.2))
                build.kill()
                break
        code = build.wait(900)
        if code != -signal.SIGKILL:
            break
        kills += 1
    assert code == 0, build.text
    assert kills >= KILLS, f"{kills} kills"
    assert bytes_of(build, place, "killed") == wanted
    assert "damaged" not in build.text and "Traceback" not in build.text


@pytest.mark.promise("cluster-killed-workers-same-bytes")
def test_workers_killed_in_every_stage(
    installed: Environment, place: Path, start: Start, plain: tuple[list[str], dict[str, str]]
) -> None:
    """Two workers that their nannies start anew; one is killed after one stage more each time."""
    stages, wanted = plain
    left = chosen(stages)
    scheduler = start(
        installed, "python", "-m", "dask", "scheduler", "--no-dashboard", "--host", "127.0.0.1", "--port", 0
    )
    address = scheduler.until("Scheduler at:").split()[-1]
    own = ["-m", "dask", "worker", address, "--nthreads", "1", "--no-dashboard", "--death-timeout", "600"]
    nannies = [start(installed, "python", *own, cwd=place) for _ in range(2)]
    for nanny in nannies:
        nanny.until("Registered to:")
    build = start(installed, "npuflow", *command(place, "far", address), cwd=place)
    kills = 0
    for stage in ran(build):
        if stage in left:
            left.discard(stage)
            kills += worker_killed(nannies[kills % 2])
    assert build.wait(900) == 0, build.text
    assert kills >= KILLS, f"{kills} kills"
    assert bytes_of(build, place, "far") == wanted
    assert "Traceback" not in build.text


def worker_killed(nanny: Started) -> int:
    """Kill the worker of a nanny; how many there were."""
    found = 0
    for child in psutil.Process(nanny.process.pid).children(recursive=True):
        with suppress(psutil.Error, ProcessLookupError):
            if "spawn_main" in " ".join(child.cmdline()):
                os.kill(child.pid, signal.SIGKILL)
                found = 1
    return found
