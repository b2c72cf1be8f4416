"""Builds on worker processes and on a real cluster, made of `dask scheduler` and `dask worker`."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from tests.acceptance.conftest import Start, Started
from tests.acceptance.environments import Environment
from tests.acceptance.shop import EDITS, Shop, finished


class Network:
    """A scheduler and workers, all of them programs of their own."""

    def __init__(self, start: Start, environment: Environment, place: Path) -> None:
        self._start, self._place = start, place
        self.scheduler = self._begin(environment)

    def _begin(self, environment: Environment, port: int = 0) -> Started:
        own = ["--no-dashboard", "--host", "127.0.0.1", "--port", port]
        made = self._start(environment, "python", "-m", "dask", "scheduler", *own, cwd=self._place)
        self.address = made.until("Scheduler at:").split()[-1]
        return made

    def worker(
        self, environment: Environment, env: Mapping[str, str] | None = None, *more: object, wait: bool = True
    ) -> Started:
        own = [self.address, "--nthreads", "1", "--no-dashboard", "--no-nanny", *more]
        made = self._start(environment, "python", "-m", "dask", "worker", *own, cwd=self._place, env=env)
        if wait:
            made.until("Registered to:")
        return made

    def again(self, environment: Environment) -> None:
        """Start the scheduler anew at its address."""
        self.scheduler = self._begin(environment, int(self.address.rpartition(":")[2]))


@pytest.fixture
def network(start: Start, installed: Environment, tmp_path: Path) -> Network:
    place = tmp_path / "network"
    place.mkdir()
    return Network(start, installed, place)


@pytest.fixture
def shop(installed: Environment, tmp_path: Path) -> Shop:
    return Shop(installed, tmp_path / "shop")


def thresholds(environment: Environment, place: Path, name: str, *more: str) -> tuple[dict[str, str], str]:
    """The products of the example up to its thresholds, and what was printed besides."""
    sets = ["--set", "data.count=6", "--until", "thresholds"]
    own = ["--cache", str(place / name), "--out", str(place / f"{name}-out"), "--json"]
    done = environment.npuflow("build", "recipes/fashion.toml", *sets, *own, *more, cwd=place)
    return finished(done.stdout), done.stdout + done.stderr


@pytest.mark.promise("cluster-same-bytes")
@pytest.mark.promise("cluster-differing-worker-refused")
def test_processes_and_a_cluster_give_the_products_of_a_plain_build(
    installed: Environment,
    second_environment: Environment,
    other_version: Environment,
    network: Network,
    place: Path,
) -> None:
    """Every build was refused: workers hashed whole plug-ins, and the driver the methods in use. Here one
    worker comes from the driver's environment, one from another with the same wheel, and one has another
    version."""
    workers = [network.worker(one, wait=False) for one in (installed, second_environment, other_version)]
    plain, _ = thresholds(installed, place, "plain")
    for one in workers:
        one.until("Registered to:")
    far, printed = thresholds(installed, place, "far", "--scheduler", network.address)
    assert far == plain
    (refused,) = [line for line in printed.splitlines() if line.startswith("{") and "is refused" in line]
    assert "it runs npuflow 0.0.1 in " in refused and "there" in refused
    near, printed = thresholds(installed, place, "near", "--scheduler", "processes:2")
    assert near == plain and "refused" not in printed


def test_a_cluster_of_another_version_alone_ends_the_build(
    other_version: Environment, network: Network, shop: Shop
) -> None:
    network.worker(other_version, shop.variables)
    done = shop.environment.npuflow(*shop.command(network.address), env=shop.variables, check=False)
    assert done.returncode == 1
    error = next(line for line in map(json.loads, done.stdout.splitlines()) if line["event"] == "error")
    assert error["code"] == "NF-CLUSTER-002" and "it runs npuflow 0.0.1" in error["because"]
    version = shop.environment.python("import npuflow; print(npuflow.__version__)").stdout.strip()
    assert f"install npuflow {version} there" in error["because"]


Build = Callable[[str], Started]


@pytest.fixture
def build(start: Start, shop: Shop) -> Build:
    def begin(scheduler: str) -> Started:
        command = shop.command(scheduler)
        return start(shop.environment, "npuflow", *command, env=shop.variables, cwd=shop.place)

    return begin


QUICK = {("cluster", "late"), ("processes:2", "selected"), ("threads", "stage")}
CASES = [
    pytest.param(where, what, marks=[] if (where, what) in QUICK else [pytest.mark.slow])
    for where in ("threads", "processes:2", "cluster")
    for what in EDITS
]


@pytest.mark.promise("cluster-edit-never-mixes")
@pytest.mark.parametrize(("where", "what"), CASES)
def test_an_edit_while_a_build_runs_never_mixes(
    where: str, what: str, shop: Shop, build: Build, network: Network
) -> None:
    """The build finishes with the code that it began with, or ends with the reason; and what it stored is
    right: the next build with this cache gives what a build from nothing gives."""
    old = shop.outputs(cache=shop.place / "old")
    shop.close()
    if where == "cluster":
        network.worker(shop.environment, shop.variables)
    running = build(network.address if where == "cluster" else where)
    shop.began(running)
    shop.edit(what)
    shop.open()
    code = running.wait(120)
    new = shop.outputs(cache=shop.place / "new")
    assert old["last"] != new["last"]
    if code == 0:
        assert finished(running.text) in (old, new)
    else:
        assert "edited" in running.text and "run the " in running.text, running.text
        assert "Traceback" not in running.text
    assert shop.outputs() == new


def test_a_worker_from_before_an_edit_is_refused_until_it_starts_anew(shop: Shop, network: Network) -> None:
    """It kept the modules of its last build, and gave their results under keys of the edited ones."""
    worker = network.worker(shop.environment, shop.variables)
    old = shop.outputs(network.address)
    shop.edit("named")
    done = shop.environment.npuflow(*shop.command(network.address), env=shop.variables, check=False)
    assert done.returncode == 1 and "restart the worker" in done.stdout
    assert "entries/beta.py was edited after this worker had loaded it" in done.stdout
    worker.kill()
    network.worker(shop.environment, shop.variables)
    new = shop.outputs(network.address)
    assert new["last"] != old["last"]
    assert new == shop.outputs(cache=shop.place / "new")


def test_a_worker_that_starts_after_an_edit_gets_no_work_of_the_build_before(
    shop: Shop, network: Network, build: Build
) -> None:
    old = shop.outputs(cache=shop.place / "old")
    shop.close()
    first = network.worker(shop.environment, shop.variables)
    running = build(network.address)
    shop.began(running)
    shop.edit("middle")
    network.worker(shop.environment, shop.variables)
    refused = running.until("is refused")
    assert "shop.stages.middle:middle" in refused and "run the build again" in refused
    shop.open()
    if running.wait(60) == 0:
        assert finished(running.text) == old
    else:
        assert "edited" in running.text
    first.kill()
    assert shop.outputs(network.address) == shop.outputs(cache=shop.place / "new")


@pytest.mark.promise("cluster-lost-worker-rescheduled")
def test_a_worker_that_is_lost_and_one_that_comes(shop: Shop, network: Network, build: Build) -> None:
    worker = network.worker(shop.environment, shop.variables)
    running = build(network.address)
    shop.began(running)
    worker.kill()
    shop.open()
    network.worker(shop.environment, shop.variables)
    assert running.wait(90) == 0, running.text
    assert "its unfinished work is rescheduled" in running.text and "Traceback" not in running.text
    assert finished(running.text) == shop.outputs(cache=shop.place / "plain")


@pytest.mark.promise("cluster-lost-scheduler-resumes")
@pytest.mark.parametrize("back", ["later", pytest.param("at once", marks=pytest.mark.slow)])
def test_a_scheduler_that_is_lost_and_back(back: str, shop: Shop, network: Network, build: Build) -> None:
    """The build ends with one error that says why, also where the scheduler is back, with workers, before the
    build has ended. Run again, it finds what was finished, and its products are those of a plain build."""
    worker = network.worker(shop.environment, shop.variables)
    running = build(network.address)
    shop.open("first")
    shop.began(running, "middle")
    network.scheduler.kill()
    network.scheduler.wait()
    if back == "later":
        assert running.wait(90) == 1
    network.again(shop.environment)
    worker.kill()
    network.worker(shop.environment, shop.variables)
    assert running.wait(90) == 1
    events = [json.loads(line) for line in running.lines if line.startswith("{")]
    (error,) = [event for event in events if event["event"] == "error"]
    (told, remedy) = [line for line in running.lines if not line.startswith("{")]
    assert told.endswith(error["message"]) and remedy.endswith(error["hint"])
    assert error["code"] == "NF-CLUSTER-001" and "what is finished is kept" in error["hint"]
    shop.open()
    done = shop.environment.npuflow(*shop.command(network.address), env=shop.variables, cwd=shop.place)
    assert finished(done.stdout) == shop.outputs(cache=shop.place / "plain")
    assert json.loads(done.stdout.splitlines()[-1])["hit"] == 1
