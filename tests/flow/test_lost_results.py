"""Results that die with their worker: a task is reported as finished, and its result is not fetched yet."""

from __future__ import annotations

import os
import queue
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import toys
from clusters import lone_worker

from npuflow.base.errors import BuildError
from npuflow.flow import executor_cluster, executor_workers
from npuflow.flow.events import Event, StepEvent, Warned
from npuflow.flow.executor_tasks import Results
from tests.tiers import often

pytestmark = pytest.mark.timeout(120)  # what they are about waited for ever


def before_fetch(monkeypatch: pytest.MonkeyPatch, strike: Callable[[Any], None], number: int = 0) -> None:
    """Do something to a client's cluster when a build asks for results, before it gets any. `number`: of
    the request."""
    import distributed

    gather, asked = distributed.Client.gather, list[int]()

    def struck(self: Any, futures: Any, *args: Any, **more: Any) -> Any:
        asked.append(len(futures))
        if len(asked) == number + 1:
            assert all(future.status == "finished" for future in futures)
            strike(self)
        return gather(self, futures, *args, **more)

    monkeypatch.setattr(distributed.Client, "gather", struck)


def there(client: Any) -> dict[str, Any]:
    """The workers of a client's cluster."""
    found: dict[str, Any] = client.scheduler_info(n_workers=-1)["workers"]
    return found


def killed(client: Any, *some: str) -> None:
    """Kill workers, or all that there are; the scheduler knows it afterwards."""
    pids = client.run(os.getpid, workers=list(some) or None)
    for pid in pids.values():
        os.kill(pid, signal.SIGKILL)
    until = time.monotonic() + 60
    while pids.keys() & there(client).keys():
        assert time.monotonic() < until
        time.sleep(0.05)


@contextmanager
def workers(number: int) -> Iterator[str]:
    """The address of a scheduler with worker processes that their nannies start anew."""
    from distributed import LocalCluster

    own = {"n_workers": number, "threads_per_worker": 1, "dashboard_address": ":0", "silence_logs": 50}
    with LocalCluster(**own) as cluster:
        yield cluster.scheduler_address


@pytest.mark.slow
@pytest.mark.parametrize(("count", "number"), [(2, 0), (1, 3)], ids=["first-step", "last-step"])
def test_a_result_that_dies_with_its_workers_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int, number: int
) -> None:
    """dask kept it for the workers that were there when it was sent, and the build waited for ever."""
    tables, events = {"source": {"count": 1}}, list[Event]()
    near = toys.run(tmp_path / "near", tables, jobs=1)
    before_fetch(monkeypatch, killed, number)
    with workers(count) as address:
        far = toys.run(tmp_path / "far", tables, scheduler=address, on_event=events.append)
    assert far.ok and far.outputs == near.outputs and far.keys == near.keys
    warned = [event.message for event in events if isinstance(event, Warned)]
    assert len(warned) == count and all("its unfinished work is rescheduled" in text for text in warned)


@pytest.mark.slow
def test_a_result_that_dies_with_a_process_of_the_build_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables = {"source": {"count": 1}}
    near = toys.run(tmp_path / "near", tables, jobs=1)
    before_fetch(monkeypatch, killed)
    far = toys.run(tmp_path / "far", tables, scheduler="processes:1")
    assert far.ok and far.outputs == near.outputs


@pytest.mark.parametrize("who", often(["worker", "scheduler", "silent scheduler"], 3))
def test_results_that_nobody_can_give_any_more_end_the_build(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, who: str
) -> None:
    monkeypatch.setattr(executor_cluster, "PATIENCE", 1.0)
    monkeypatch.setattr(executor_workers, "ANSWERED", 1.0)
    tables = {"source": {"count": 1}}
    with lone_worker() as (address, scheduler):

        def strike(client: Any) -> None:
            if who == "worker":
                killed(client)
            elif who == "scheduler":
                scheduler.kill()
                scheduler.wait()
            else:
                scheduler.send_signal(signal.SIGSTOP)

        before_fetch(monkeypatch, strike)
        with pytest.raises(BuildError) as caught:
            toys.run(tmp_path / "cache", tables, scheduler=address)
    assert caught.value.code == ("NF-CLUSTER-003" if who == "worker" else "NF-CLUSTER-001")


@pytest.mark.slow
def test_a_scheduler_that_fell_silent_while_nothing_ran_ends_the_build(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The watch gave up when there was nothing to give back, and nobody watched what was sent later."""
    monkeypatch.setattr(executor_cluster, "PATIENCE", 0.5)
    monkeypatch.setattr(executor_workers, "ANSWERED", 0.5)
    with lone_worker() as (address, scheduler):

        def stop(event: Event) -> None:
            if isinstance(event, StepEvent) and event.stage == "table":
                scheduler.send_signal(signal.SIGSTOP)
                time.sleep(3)  # the driver may have to compute for long between two steps

        with pytest.raises(BuildError) as caught:
            toys.run(tmp_path / "cache", {"source": {"count": 1}}, scheduler=address, on_event=stop)
    assert caught.value.code == "NF-CLUSTER-001"


@pytest.mark.slow
def test_a_lost_result_holds_up_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is made again behind a step that may take hours."""
    from distributed import Client

    came, gate = queue.SimpleQueue[tuple[str, Any]](), tmp_path / "gate"
    with workers(2) as address, Client(address, set_as_default=False) as client:
        dies, stays = there(client)
        kept = client.submit(int, 2, workers=[stays], key="kept")
        kept.result(timeout=60)
        long = client.submit(toys.waits, str(gate), workers=[stays])
        lost = client.submit(int, 1, workers=[dies, stays], key="lost")
        lost.result(timeout=60)
        before_fetch(monkeypatch, lambda client: killed(client, dies))
        results = Results(client, lambda future, outcome: came.put((future.key, outcome)), came.put)
        for future in (lost, kept):
            results.put(future)
        threading.Thread(target=results.run, daemon=True).start()
        assert came.get(timeout=60) == ("kept", 2)
        assert not long.done()
        gate.touch()
        assert came.get(timeout=60) == ("lost", 1)
        results.close()
