"""Declared memory bounds what runs at once, and whoever takes too much fails by name."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from forge import Forge

from npuflow.base.returned import MUCH, Returned, present
from npuflow.base.tables import Locator
from npuflow.flow.executor_deaths import Deaths
from npuflow.flow.executor_workers import Workers
from npuflow.flow.memory import MemoryBudget, machine, size
from npuflow.flow.recipe import Recipe
from npuflow.flow.run import Result, build
from npuflow.flow.store import Store
from npuflow.flow.wire import wire

KINDS = """
from dataclasses import dataclass
from npuflow.base.tables import Config
from npuflow.flow.artifact import Artifact

@dataclass(frozen=True)
class Work(Config):
    meet: str = ""
    want: int = 1
    grow: int = 0

@dataclass(frozen=True)
class Value(Artifact):
    value: int
    def save(self, folder): folder.json("value", self.value)
    @classmethod
    def load(cls, folder): return cls(folder.json("value"))
"""
LARGE = """
import time
from collections.abc import Iterator
from pathlib import Path
from memtoys.kinds import Value, Work
from npuflow.flow.refs import Files
from npuflow.flow.stage import Item, Listing, stage

def listing() -> Listing:
    return {f"i{n}": Item((), n) for n in range(6)}

@stage(over="files", files=listing, batch=1, cpu="native", memory="MEMORY")
def large(files: Files, work: Work) -> Iterator[tuple[str, Value]]:
    for name, item in files.items():
        kept = []
        for _ in range(work.grow // 10_000_000):
            kept.append(b"x" * 10_000_000)
            time.sleep(0.02)
        if work.meet:
            met(Path(work.meet), name, work.want)
        yield name, Value(int(item.detail) + len(kept) * 0)

def met(place: Path, name: str, want: int) -> None:
    # stay until so many steps have once been here at the same time, and note the most that were
    mark, until, most = place / f"here-{name}", time.monotonic() + 30, 0
    mark.touch()
    while most < want and time.monotonic() < until and not any(
        int(path.read_text() or 0) >= want for path in place.glob("most-*")
    ):
        time.sleep(0.01)
        most = max(most, len(list(place.glob("here-*"))))
    time.sleep(0.05)
    most = max(most, len(list(place.glob("here-*"))))
    (place / f"most-{name}").write_text(str(most))
    mark.unlink()
"""


@pytest.fixture
def forge(tmp_path: Path) -> Iterator[Forge]:
    made = Forge(tmp_path, "memtoys")
    made.put("kinds", KINDS)
    yield made
    made.close()


def run(
    forge: Forge, tmp_path: Path, need: str, want: int = 1, grow: int = 0, **more: Any
) -> tuple[Result, int]:
    """A build of the stage that needs so much, and how many of its steps ran at once, of which `want` wait
    for each other."""
    meet = tmp_path / f"meet-{need}"
    meet.mkdir()
    forge.put("stages/large", LARGE.replace("MEMORY", need))
    work = {"meet": str(meet), "want": want, "grow": grow}
    plan = wire(forge.registry(), Recipe(None, "toy", {"work": work}, Locator()))
    result = build(plan, Store(tmp_path / f"cache-{need}"), **more)
    return result, max((int(path.read_text()) for path in meet.glob("most-*")), default=0)


@pytest.mark.parametrize(
    ("text", "number"),
    [("4GB", 4 * 10**9), ("512MiB", 512 << 20), ("2.5g", 25 * 10**8), (" 100 kb ", 100_000), ("7", 7)],
)
def test_sizes(text: str, number: int) -> None:
    assert size(text) == number


@pytest.mark.parametrize("text", ["", "GB", "4 elephants", "-1GB", "4iB"])
def test_other_texts_are_no_sizes(text: str) -> None:
    with pytest.raises(ValueError, match="is no amount of memory"):
        size(text)


def test_this_machine_has_memory() -> None:
    assert 1 << 26 < machine() < 1 << 50


def test_a_budget_never_starves() -> None:
    budget = MemoryBudget(100)
    assert budget.fits(1000), "with nothing else running, a task may need more than there is"
    budget.take("a", 60)
    assert budget.fits(40) and not budget.fits(41) and budget.fits(0)
    budget.give("a")
    assert budget.fits(1000)


def test_no_more_steps_run_at_once_than_fit(forge: Forge, tmp_path: Path) -> None:
    result, most = run(forge, tmp_path, "100MB", 2, jobs=4, memory="250MB")
    assert result.check().ran == 6
    assert most == 2
    assert run(forge, tmp_path, "10MB", 4, jobs=4, memory="250MB")[1] == 4


def test_a_step_that_needs_more_than_there_is_runs_alone(forge: Forge, tmp_path: Path) -> None:
    result, most = run(forge, tmp_path, "900MB", jobs=4, memory="250MB")
    assert (result.check().ran, most) == (6, 1)


def test_on_a_cluster_too(forge: Forge, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=":")
    result, most = run(forge, tmp_path, "500MB", scheduler="processes:2", memory="600MB")
    assert (result.check().ran, most) == (6, 1)


@pytest.mark.slow
def test_a_worker_that_runs_out_of_memory_fails_the_step_by_name(
    forge: Forge, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker process of dask's, ended by its watchman at the limit, again and again."""
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=":")
    result, _ = run(forge, tmp_path, "50MB", scheduler="processes:1", memory="400MB", grow=1_500_000_000)
    assert not result.ok
    assert result.errors[0].message.startswith("large: ") and "out of memory" in result.errors[0].message
    assert result.errors[0].where.stage == "large" and "[build] jobs" in result.errors[0].hint


def test_a_worker_that_dies_while_limits_are_read_leaves_its_step_to_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its nanny starts another: that is not a cluster without workers."""
    workers: Any = Workers(None, cast(Any, ()), cast(Any, None), Deaths(), own=True)
    workers.good = {"tcp://one"}

    def limits() -> dict[str, int]:
        workers.good.clear()  # as the watch does
        return {"tcp://one": 400}

    monkeypatch.setattr(workers, "limits", limits)
    assert workers.able("large", 50) == {}


def test_a_cluster_whose_workers_are_too_small_says_so(
    forge: Forge, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from distributed import LocalCluster

    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=":")
    limits = {"n_workers": 1, "threads_per_worker": 1, "memory_limit": "400MB", "silence_logs": 50}
    with LocalCluster(dashboard_address=":0", **limits) as cluster:
        result, _ = run(forge, tmp_path, "900MB", scheduler=cluster.scheduler_address)
    assert result.errors[0].message == "large needs 900 MB of memory, which no worker of the cluster has"


def test_memory_that_is_refused_fails_the_step_by_name(forge: Forge, tmp_path: Path) -> None:
    """The same in process: Python says MemoryError."""
    source = LARGE.replace("kept = []", "kept = [bytearray(1 << 60)]").replace("MEMORY", "1MB")
    forge.put("stages/large", source)
    plan = wire(forge.registry(), Recipe(None, "toy", {}, Locator()))
    error = build(plan, Store(tmp_path / "cache")).errors[0]
    assert error.message == "large ran out of memory" and error.where.stage == "large"


def test_sums_of_running_claims_stay_below_the_budget() -> None:
    budget, running = MemoryBudget(10), []
    for number, need in itertools.product(range(5), (3, 4, 6)):
        while not budget.fits(need):
            budget.give(running.pop(0))
        budget.take(f"{number}-{need}", need)
        running.append(f"{number}-{need}")
        assert sum(int(name.partition("-")[2]) for name in running) <= 10


def test_a_library_that_is_given_no_memory_is_out_of_memory_too(forge: Forge, tmp_path: Path) -> None:
    """onnxruntime says so in an exception of its own, which a stage may have wrapped;
    the stage's key is the hint."""
    raised = (
        'raise RuntimeError("[ONNXRuntimeError] : 6 : Failed to allocate memory for requested buffer of '
        'size 99")'
    )
    source = LARGE.replace("kept = []", raised).replace('memory="MEMORY"', 'lighter="[work] grow = 1"')
    forge.put("stages/large", source)
    plan = wire(forge.registry(), Recipe(None, "toy", {}, Locator()))
    error = build(plan, Store(tmp_path / "cache")).errors[0]
    assert error.message == "large ran out of memory" and "size 99" in error.because
    assert error.hint.startswith("[work] grow = 1; or [build] jobs = 1")


def test_what_a_step_left_in_a_cycle_goes_before_the_next_one() -> None:
    """Arrays that only a cycle holds, which the collector would not look at for a million objects."""
    import gc
    import weakref

    import numpy as np

    class Network:
        def __init__(self) -> None:
            self.weights = np.ones(MUCH // 8 + 1)
            self.own = self

    gc.disable()
    try:
        returned, network = Returned(), Network()
        returned.held = present() - MUCH
        left = weakref.ref(network)
        del network
        assert left() is not None
        returned.give_back()
        assert left() is None and returned.held < present() + MUCH
        few = Network()
        few.weights, left = np.ones(1), weakref.ref(few)
        del few
        returned.give_back()
        assert left() is not None          # too little for the time that it takes
    finally:
        gc.enable()
