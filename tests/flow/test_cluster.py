"""Builds on a cluster: equal keys once, lost workers, refused workers, the probe."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import toys
from clusters import lone_worker

from npuflow.base import code
from npuflow.base.errors import BuildError
from npuflow.flow import executor, executor_cluster
from npuflow.flow.events import Event, Opened, Warned
from npuflow.flow.executor_code import installed, stated
from npuflow.flow.executor_deaths import died, ended
from npuflow.flow.executor_workers import Question, ask, told
from npuflow.flow.processor import processor
from npuflow.flow.store import Store

HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    from distributed import LocalCluster

    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0", silence_logs=50) as cluster:
        yield cluster.scheduler_address


def test_a_cluster_gives_what_threads_give(tmp_path: Path, address: str) -> None:
    events: list[Event] = []
    far = toys.run(tmp_path / "far", {"source": {"count": 9}}, scheduler=address, on_event=events.append)
    near = toys.run(tmp_path / "near", {"source": {"count": 9}}, jobs=1)
    assert far.ok and far.outputs == near.outputs and far.keys == near.keys
    (opened,) = [event for event in events if isinstance(event, Opened)]
    assert opened.workers == f"2 workers at {address}"
    assert (opened.dashboard or "").startswith("http") == bool(find_spec("bokeh"))


@pytest.mark.parametrize("asked", [None, True, False])
def test_threads_of_the_build_itself_have_a_dashboard_only_when_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asked: bool | None
) -> None:
    """A dashboard takes half a second to start, which a short build would feel."""
    monkeypatch.setattr(executor, "BRIEF", 0.0)
    events: list[Event] = []
    tables = {"source": {"count": 8}, "reading": {"sleep": 0.1}}
    toys.run(tmp_path / "cache", tables, jobs=2, dashboard=asked, on_event=events.append)
    (opened,) = [event for event in events if isinstance(event, Opened)]
    assert opened.workers == "2 threads"
    assert (opened.dashboard is not None) == (asked is True and bool(find_spec("bokeh")))


def test_two_clients_compute_equal_keys_once(tmp_path: Path, address: str) -> None:
    trace = tmp_path / "trace"
    tables = {"source": {"count": 9}, "reading": {"sleep": 0.2, "trace": str(trace)}}
    results: list[Any] = []
    Store(tmp_path / "cache")

    def client() -> None:
        results.append(toys.run(tmp_path / "cache", tables, scheduler=address))

    clients = [threading.Thread(target=client) for _ in range(2)]
    for one in clients:
        one.start()
    for one in clients:
        one.join()
    assert results[0].outputs == results[1].outputs
    assert sorted(trace.read_text().split()) == [f"n{i}" for i in range(9)]


def test_a_lost_workers_steps_are_run_again(tmp_path: Path, address: str) -> None:
    (tmp_path / "once").mkdir()
    tables = {"source": {"count": 2}, "reading": {"die": str(tmp_path / "once")}}
    result = toys.run(tmp_path / "cache", tables, scheduler=address)
    assert result.ok and result.ran + result.hit == 6


@pytest.mark.slow
def test_a_step_that_kills_its_workers_fails_by_name(tmp_path: Path, address: str) -> None:
    (tmp_path / "always").mkdir()
    tables = {"source": {"count": 1}, "reading": {"die": str(tmp_path / "always")}}
    result = toys.run(tmp_path / "cache", tables, scheduler=address)
    (error,) = result.errors
    assert error.where.stage == "numbers" and "out of memory" in error.message and "--jobs" in error.hint


@pytest.mark.slow
def test_a_worker_out_of_memory_fails_the_step_by_name(tmp_path: Path) -> None:
    from distributed import LocalCluster

    limits = {"n_workers": 1, "threads_per_worker": 1, "memory_limit": "400MB", "silence_logs": 50}
    with LocalCluster(dashboard_address=":0", **limits) as cluster:
        tables = {"source": {"count": 1}, "reading": {"hog": 3_000_000_000, "sleep": 2.0}}
        result = toys.run(tmp_path / "cache", tables, scheduler=cluster.scheduler_address)
    assert result.errors[0].where.stage == "numbers" and "out of memory" in result.errors[0].message


@pytest.mark.slow
def test_processes_of_a_build_survive_a_dying_worker(tmp_path: Path) -> None:
    (tmp_path / "once").mkdir()
    tables = {"source": {"count": 3}, "reading": {"die": str(tmp_path / "once")}}
    events: list[Event] = []
    result = toys.run(tmp_path / "cache", tables, scheduler="processes:2", on_event=events.append)
    assert result.ok and result.ran + result.hit == 8
    (reported, *_) = [event.message for event in events if isinstance(event, Warned)]
    assert reported.startswith("a worker died under numbers (its process was ended by SIGKILL"), reported


def test_only_the_item_that_kills_is_blamed(tmp_path: Path) -> None:
    """Three items are a batch, and workers have more than one batch at hand: each of them is a suspect."""
    (tmp_path / "only-n4").mkdir()
    tables = {"source": {"count": 7}, "reading": {"die": str(tmp_path / "only-n4")}}
    result = toys.run(tmp_path / "cache", tables, scheduler="processes:1", keep_going=True)
    (error,) = result.errors
    assert (error.code, error.where.item) == ("NF-STEP-002", "n4")
    assert error.message.startswith("numbers: 3 workers died") and "SIGKILL" in error.because
    assert {item for item, status in result.status["numbers"].items() if status != "failed"} == {
        f"n{i}" for i in range(7) if i != 4
    }


@pytest.fixture
def nothing_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the user's memos hold would count as memory of workers."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "user"))


@pytest.mark.slow
@pytest.mark.usefixtures("nothing_known")
@pytest.mark.timeout(60)
def test_a_process_that_keeps_much_memory_goes_on(tmp_path: Path) -> None:
    """dask gave no more tasks to a worker above 80 % of its limit, and the build waited for ever."""
    tables = {"source": {"count": 12}, "reading": {"keep": 270_000_000, "sleep": 0.1}}
    result = toys.run(tmp_path / "cache", tables, scheduler="processes:1", memory="400MB")
    assert result.ok and result.ran == 26


@pytest.mark.slow
@pytest.mark.usefixtures("nothing_known")
@pytest.mark.timeout(60)
def test_workers_of_a_cluster_that_are_paused_for_ever_end_the_build(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from distributed import LocalCluster

    from npuflow.flow import executor_cluster

    monkeypatch.setattr(executor_cluster, "PATIENCE", 2.0)
    tables = {"source": {"count": 24}, "reading": {"keep": 270_000_000, "sleep": 0.1}}
    limits = {"n_workers": 1, "threads_per_worker": 1, "memory_limit": "400MB", "silence_logs": 50}
    with LocalCluster(dashboard_address=":0", **limits) as cluster, pytest.raises(BuildError) as caught:
        toys.run(tmp_path / "cache", tables, scheduler=cluster.scheduler_address)
    assert caught.value.code == "NF-CLUSTER-006" and "--memory-limit" in caught.value.hint
    again = toys.run(tmp_path / "cache", tables, jobs=1)
    assert again.ok and again.hit > 0


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (-9, "SIGKILL (as the system does"),
        (-11, "SIGSEGV (a crash in native code)"),
        (3, "exit code 3"),
        (-77, "signal 77"),
    ],
)
def test_how_a_process_ended_in_words(code: int, words: str) -> None:
    assert words in ended(code)


def test_a_crash_is_not_called_a_lack_of_memory() -> None:
    crash = died("numbers", "3 workers", ended(-11), "[reading] rows")
    assert (
        "memory" not in crash.message and "SIGSEGV" in crash.because and "--scheduler threads" in crash.hint
    )
    killed = died("numbers", "3 workers", ended(-9), "[reading] rows")
    assert "most likely out of memory" in killed.message and killed.hint.startswith(
        "[reading] rows; or [build] jobs = 1"
    )


@pytest.mark.slow
def test_workers_that_die_when_they_are_asked_are_not_called_a_wrong_installation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from npuflow.flow import executor_workers

    monkeypatch.setattr(executor_workers, "ask", toys.dies)
    monkeypatch.setattr(executor_workers, "RETURN", 0.0)
    events: list[Event] = []
    with pytest.raises(BuildError) as caught:
        toys.run(tmp_path / "cache", scheduler="processes:1", on_event=events.append)
    assert (
        caught.value.message == "every worker of the cluster died" and caught.value.code == "NF-CLUSTER-003"
    )
    assert "SIGKILL" in caught.value.because and "[build] memory" in caught.value.hint
    assert "install" not in str(caught.value)


@pytest.mark.slow
def test_a_cluster_whose_last_worker_is_gone_ends_the_build(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The build waited for ever: dask keeps a step until some worker comes."""
    from npuflow.flow import executor_cluster

    monkeypatch.setattr(executor_cluster, "PATIENCE", 1.0)
    (tmp_path / "once").mkdir()
    tables = {"source": {"count": 1}, "reading": {"die": str(tmp_path / "once")}}
    with lone_worker() as (address, _), pytest.raises(BuildError) as caught:
        toys.run(tmp_path / "cache", tables, scheduler=address)
    assert (
        caught.value.message == "every worker of the cluster died" and "its own log" in caught.value.because
    )


def test_a_scheduler_that_goes_away_is_named(tmp_path: Path) -> None:
    tables = {"source": {"count": 60}, "reading": {"sleep": 0.2}}
    with lone_worker() as (address, scheduler), pytest.raises(BuildError) as caught:
        threading.Timer(2.0, scheduler.kill).start()
        toys.run(tmp_path / "cache", tables, scheduler=address)
    assert caught.value.message == "the connection to the scheduler of the cluster was lost"


def test_an_address_without_a_scheduler_is_a_clear_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(executor_cluster, "JOIN", 0.5)
    with pytest.raises(BuildError, match="no scheduler at"):
        toys.run(tmp_path / "cache", scheduler="tcp://127.0.0.1:1")
    assert not list((tmp_path / "cache" / "leases").iterdir()), "the lease of a build that did not begin"


def question(root: Path, **more: Any) -> Question:
    (root / "tmp").mkdir(parents=True, exist_ok=True)
    (root / "tmp" / "token").write_text("token")
    return Question(str(root), "token", **{"steps": {}, "libraries": {}, **more})


def faults(*args: Any, **more: Any) -> list[str]:
    return ask(question(*args, **more)).faults


def test_what_a_worker_answers(tmp_path: Path) -> None:
    assert ask(question(tmp_path, libraries={"numpy": metadata.version("numpy")})).fine
    assert "pip install numpy==0.1" in faults(tmp_path, libraries={"numpy": "0.1"})[0]
    assert "pip install nosuch==1" in faults(tmp_path, libraries={"nosuch": "1"})[0]
    assert not faults(tmp_path, libraries={"cpu": processor()})
    assert "unlike the driver's (other)" in faults(tmp_path, libraries={"cpu": "other"})[0]
    ours = stated(toys.plan()["total"])
    assert ask(question(tmp_path, steps={"total": ours}, installed=installed())).fine
    other = ask(question(tmp_path, steps={"total": ours._replace(code="x3:0")}))
    assert not other.faults and list(other.differ) == ["stage total"]
    lost = faults(tmp_path, steps={"total": ours._replace(module="no.such")})
    assert "the code of total cannot be imported" in lost[0] and "install" in lost[0]
    older = installed()._replace(version="0.0.9")
    (told,) = faults(tmp_path, steps={"total": ours._replace(code="x3:0")}, installed=older)
    assert "the driver npuflow 0.0.9: install npuflow 0.0.9 there" in told
    (told,) = faults(tmp_path, installed=installed()._replace(system="x3:0"))
    assert told.startswith("the build system differs")
    elsewhere = question(tmp_path)._replace(root=str(tmp_path / "elsewhere"))
    assert "mount the cache" in ask(elsewhere).faults[0]


@pytest.mark.slow
def test_a_worker_computes_the_code_that_keys_state(tmp_path: Path) -> None:
    """The driver sent digests of the methods in use, and workers hashed whole plug-ins: all were refused."""
    from npuflow.cli._engine import stages
    from npuflow.flow.recipe import load
    from npuflow.flow.wire import wire

    recipe = load(HERE.parents[1] / "recipes" / "fashion.toml")
    steps = {step.name: stated(step) for step in wire(stages(), recipe)}
    assert any("calibrators/kl" in one.plugins for one in steps.values())
    code.forget()
    assert ask(question(tmp_path, steps=steps, installed=installed())).fine
    kl = steps["thresholds"]
    other = kl._replace(plugins={**kl.plugins, "calibrators/kl": "x3:0"})
    answer = ask(question(tmp_path, steps={"thresholds": other}))
    assert list(answer.differ) == ["plug-in calibrators/kl"]


def test_the_words_for_a_worker_that_differs(tmp_path: Path) -> None:
    ours = stated(toys.plan()["total"])
    answer = ask(question(tmp_path, steps={"total": ours._replace(code="x3:0")}))
    there = answer._replace(installed=installed()._replace(folder="/opt/npuflow"))
    label, parts = next(iter(answer.differ.items()))
    changed = next(iter(parts))
    there = there._replace(differ={label: {**parts, changed: "x3:1"}})
    (text,) = told(there, {"total": ours}, installed(), [])
    assert text.startswith(f"the code of stage total differs ({changed}): install the same npuflow and")
    assert "in /opt/npuflow, the driver npuflow" in text
    (text,) = told(there, {"total": ours}, installed(), ["/lib/total.py"])
    assert text.endswith(": /lib/total.py was edited after this build had read it: run the build again")
    listed = there._replace(differ={label: {"toys/": "x3:1"}})
    assert "toys" not in told(listed, {"total": ours}, installed(), [])[0]


@pytest.mark.slow
def test_a_worker_with_other_code_is_refused_with_the_remedy(tmp_path: Path) -> None:
    """A real worker of another installation: its copy of the toy compiler has one stage changed."""
    from distributed import LocalCluster

    shutil.copytree(HERE / "toybox", tmp_path / "lib" / "toybox")
    edited = tmp_path / "lib" / "toybox" / "stages" / "total.py"
    edited.write_text(edited.read_text().replace("sum(table.rows)", "sum(table.rows) + 1"))
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path / "lib"), str(HERE.parents[1])])}
    with LocalCluster(n_workers=0, dashboard_address=":0", silence_logs=50) as cluster:
        worker = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "distributed.cli.dask_worker",
                cluster.scheduler_address,
                "--no-nanny",
                "--no-dashboard",
            ],
            env=env,
            cwd=tmp_path,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            cluster.scheduler.n_workers = None  # type: ignore[attr-defined]
            deadline = time.monotonic() + 30
            while not cluster.scheduler.workers and time.monotonic() < deadline:
                time.sleep(0.1)
            with pytest.raises(BuildError) as caught:
                toys.run(tmp_path / "cache", scheduler=cluster.scheduler_address)
        finally:
            worker.terminate()
            worker.wait()
    assert re.search(
        r"code of stage total differs \(toybox.stages.total:total\): .*install the same plug-in packages",
        caught.value.because,
    )
