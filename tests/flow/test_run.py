"""Builds of the toy compiler: hits, waves, failures, force, overrides, products, logs."""

from __future__ import annotations

import errno
import os
import queue
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import pytest
import toys
from hypothesis import given
from hypothesis import strategies as st

from npuflow.base.errors import StoreError
from npuflow.flow import executor, executor_cluster
from npuflow.flow.dry import dry
from npuflow.flow.events import Event, Opened, Progress, StepEvent, Summary, Warned
from npuflow.flow.run_state import shares
from npuflow.flow.run_step import Task
from npuflow.flow.store import Store

HERE = Path(__file__).parent


def ran(result: Any) -> dict[str, list[str | None]]:
    return {
        stage: sorted((item for item, status in items.items() if status == "ran"), key=str)
        for stage, items in result.status.items()
        if "ran" in items.values()
    }


def test_the_second_build_is_all_hits_and_the_first_tells_all(tmp_path: Path) -> None:
    events: list[Event] = []
    first = toys.run(tmp_path / "cache", on_event=events.append)
    assert (first.hit, first.ran, first.failed) == (0, 10, 0)
    assert isinstance(events[-1], Summary)
    assert sum(isinstance(event, StepEvent) for event in events) == 10
    second = toys.run(tmp_path / "cache")
    assert (second.hit, second.ran) == (10, 0)
    assert first.outputs == second.outputs


def test_one_item_more_runs_one_item_and_the_merge(tmp_path: Path) -> None:
    toys.run(tmp_path / "cache")
    result = toys.run(tmp_path / "cache", {"source": {"count": 5}})
    assert ran(result) == {"numbers": ["n4"], "scaled": ["n4"], "table": [None], "total": [None]}
    fewer = toys.run(tmp_path / "cache", {"source": {"count": 3}})
    assert ran(fewer) == {"table": [None], "total": [None]}


def test_another_order_runs_only_the_merge_and_stops_where_the_product_is_equal(tmp_path: Path) -> None:
    toys.run(tmp_path / "cache")
    result = toys.run(tmp_path / "cache", {"source": {"order": -1}})
    assert ran(result) == {"table": [None], "total": [None]}
    assert Store(tmp_path / "cache").load(result.outputs["total"], toys.kind("Total")).value == 12


def test_early_cutoff(tmp_path: Path) -> None:
    """A rerun that gives equal bytes stops the rebuild there."""
    toys.run(tmp_path / "cache", {"scale": {"by": 0}})
    result = toys.run(tmp_path / "cache", {"scale": {"by": 0}, "reading": {"sleep": 0.001}})
    assert ran(result) == {"numbers": ["n0", "n1", "n2", "n3"]}


def test_dry_run_bounds_what_runs(tmp_path: Path) -> None:
    toys.run(tmp_path / "cache")
    plan = toys.plan({"source": {"count": 5}})
    reported = {(one.stage, one.item): one.status for one in dry(plan, Store(tmp_path / "cache")).steps}
    assert reported[("numbers", "n4")] == "run" and reported[("scaled", "n1")] == "hit"
    assert reported[("table", None)] == "maybe"
    result = toys.run(tmp_path / "cache", {"source": {"count": 5}})
    for stage, items in ran(result).items():
        for item in items:
            assert reported.get((stage, item), reported.get((stage, None))) in ("run", "maybe")


def test_a_failing_item_is_named_alone_and_the_rest_is_kept(tmp_path: Path) -> None:
    tables = {"source": {"count": 6}, "reading": {"fail": "n1"}}
    seen: list[Any] = []
    result = toys.run(tmp_path / "cache", tables, keep_going=True, on_event=seen.append)
    (error,) = result.errors
    assert error.where.stage == "numbers" and error.where.item == "n1"
    # what was skipped names what failed, not what was skipped before it
    skipped = {one.reason for one in seen if getattr(one, "status", "") == "skipped"}
    assert skipped == {"numbers failed"}
    assert "ValueError: n1 is not a number" in error.message and "numbers.py" in error.because
    assert result.status["numbers"] == {"n1": "failed"} | {f"n{i}": "ran" for i in (0, 2, 3, 4, 5)}
    assert result.failed == 1 and result.skipped == 3
    halted = toys.run(tmp_path / "other", tables)
    assert halted.failed == 1 and halted.errors[0].where.item == "n1"



@pytest.mark.parametrize("scheduler", ["inline", "threads", "processes:1"])
@pytest.mark.timeout(60)
def test_a_stage_that_exits_fails_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, scheduler: str
) -> None:
    """The thread that ran it ended without a word, and the build waited for ever."""
    monkeypatch.setattr(executor, "BRIEF", 1000.0 if scheduler == "inline" else 0.0)
    tables = {"source": {"count": 6}, "reading": {"leave": "n3", "sleep": 0.1}}
    where = {"jobs": 2} if scheduler in ("inline", "threads") else {"scheduler": scheduler}
    result = toys.run(tmp_path / "cache", tables, keep_going=True, **where)
    (error,) = result.errors
    assert (error.code, error.where.item) == ("NF-STEP-001", "n3")
    assert "SystemExit: no such file" in str(error)
    assert "numbers.py" in error.because
    assert result.status["numbers"] == {"n3": "failed"} | {f"n{i}": "ran" for i in (0, 1, 2, 4, 5)}


@pytest.mark.timeout(60)
def test_a_fault_beside_the_stages_ends_the_build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as a disk that fails while damage is looked at: it ended the thread that ran the task."""

    def fails(task: Task) -> Any:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(executor, "execute", fails)
    result = toys.run(tmp_path / "cache", {"source": {"count": 1}}, jobs=1)
    (error,) = result.errors
    assert error.where.stage == "numbers" and "Input/output error" in error.message



def test_force_runs_again_and_agrees(tmp_path: Path) -> None:
    toys.run(tmp_path / "cache")
    result = toys.run(tmp_path / "cache", force=["scaled"])
    assert ran(result) == {"scaled": ["n0", "n1", "n2", "n3"]}


def test_until_and_override(tmp_path: Path) -> None:
    first = toys.run(tmp_path / "cache", until="table")
    assert set(first.refs) == {"numbers", "scaled", "table"}
    store = Store(tmp_path / "cache")
    edited = tmp_path / "edited"
    shutil.copytree(store.object_path(first.outputs["table"]), edited)
    (edited / "rows.json").write_text("[1, 2, 300, 4]")
    result = toys.run(tmp_path / "cache", override={"table": edited})
    assert result.ok and ran(result) == {"total": [None]}
    assert store.load(result.outputs["total"], toys.kind("Total")).value == 307
    again = toys.run(tmp_path / "cache", override={"table": edited})
    assert again.ran == 0 and again.outputs == result.outputs
    assert store.open(first.outputs["table"]).json("rows") == [0, 2, 4, 6]
    wrong = toys.run(tmp_path / "cache", override={"table": tmp_path / "nowhere"})
    assert "is not an artifact folder" in wrong.errors[0].message
    assert (
        wrong.errors[0].exit_code == 2
        and "manifest" in wrong.errors[0].because
        and "Errno" not in wrong.errors[0].because
    )


def test_a_collection_is_overridden_by_a_folder_of_items(tmp_path: Path) -> None:
    first = toys.run(tmp_path / "cache")
    store = Store(tmp_path / "cache")
    for item, ref in first.refs["scaled"].items.items():
        shutil.copytree(store.object_path(ref.digest), tmp_path / "edited" / item)
    (tmp_path / "edited" / "n1" / "number.json").write_text("1000")
    result = toys.run(tmp_path / "cache", override={"scaled": tmp_path / "edited"})
    assert store.load(result.outputs["total"], toys.kind("Total")).value == 1010


def test_a_deleted_product_is_written_again_and_logs_stay(tmp_path: Path) -> None:
    first = toys.run(tmp_path / "cache", out_dir=tmp_path / "out")
    data = first.products["table"].read_bytes()
    first.products["table"].unlink()
    second = toys.run(tmp_path / "cache", out_dir=tmp_path / "out")
    assert second.ran == 0 and second.products["table"].read_bytes() == data
    second.products["table"].write_bytes(b"edited")
    assert toys.run(tmp_path / "cache", out_dir=tmp_path / "out").products["table"].read_bytes() == data
    record = Store(tmp_path / "cache").record(second.keys["total"][None])
    assert record is not None and record.log == "sum of 4" and record.summary == {"total": 12}
    one = Store(tmp_path / "cache").record(second.keys["numbers"]["n2"])
    assert one is not None and one.log == "read n2"


def test_a_product_lost_while_it_is_needed_is_built_again(tmp_path: Path) -> None:
    """Found when read, not when looked up: the file keeps its size."""
    first = toys.run(tmp_path / "cache")
    store = Store(tmp_path / "cache")
    record = store.record(first.keys["scaled"]["n1"])
    assert record is not None
    path = store.object_path(record.output) / "number.json"
    path.write_bytes(b"9\n")
    warned: list[Warned] = []
    events: list[Event] = []
    result = toys.run(tmp_path / "cache", {"source": {"order": -1}}, on_event=events.append)
    warned = [event for event in events if isinstance(event, Warned)]
    assert ran(result) == {"scaled": ["n1"], "table": [None], "total": [None]}
    assert any("is built again" in one.message for one in warned)
    assert store.load(result.outputs["total"], toys.kind("Total")).value == 12


def test_nondeterminism_is_reported_and_the_first_record_wins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = toys.run(tmp_path / "cache", jobs=1)
    stage = toys.STAGES["total"]
    plain = stage.function
    events: list[Event] = []
    monkeypatch.setattr(stage, "function", lambda table: toys.kind("Total")(plain(table).value + 1))
    plan = toys.plan()
    monkeypatch.setattr(type(plan["total"]), "code", property(lambda self: _code(self, plain)))
    result = toys.build(plan, Store(tmp_path / "cache"), force=["total"], on_event=events.append, jobs=1)
    assert result.outputs == first.outputs
    (reported,) = [event for event in events if isinstance(event, Warned)]
    assert "not deterministic" in reported.message and reported.hint == "npuflow cache verify --rerun total"


def _code(step: Any, total: Any) -> Any:
    from npuflow.base.code import closure

    return closure(total if step.name == "total" else step.stage.function)


@pytest.mark.skipif(os.geteuid() == 0 and not shutil.which("setpriv"), reason="root may write anywhere")
def test_an_unwritable_cache_is_one_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="cannot write to the cache"):
        Store(tmp_path / "file")


def test_a_full_disk_is_one_clear_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import errno

    from npuflow.flow import store_writer

    store = Store(tmp_path / "cache")

    def full(self: Any, name: str, value: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(store_writer.Writer, "json", full)
    with pytest.raises(StoreError, match="the disk is full") as caught:
        toys.run(tmp_path / "cache", store=store, keep_going=True)
    assert "gc" in caught.value.hint
    assert not list((tmp_path / "cache" / "tmp").iterdir())


def test_nothing_runs_inline_after_a_clean_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """A task that was begun when a cache failed ends first, and with it what it was writing."""
    began, done = threading.Event(), threading.Event()

    def slow(task: Any) -> Any:
        began.set()
        time.sleep(0.2)
        done.set()

    monkeypatch.setattr(executor, "execute", slow)
    inline = executor.Inline(queue.SimpleQueue(), lambda: None)
    inline.submit([cast(Task, object()), cast(Task, object())])
    assert began.wait(5)
    inline.close(wait=True)
    assert done.is_set() and inline.ended.is_set()


def test_a_cache_that_may_only_be_read_serves_what_it_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = toys.run(tmp_path / "cache")
    mkdir = Path.mkdir

    def refused(path: Path, *args: Any, **more: Any) -> None:
        if (tmp_path / "cache") in path.parents:
            raise OSError(errno.EROFS, "Read-only file system", str(path))
        mkdir(path, *args, **more)

    monkeypatch.setattr(Path, "mkdir", refused)
    events: list[Event] = []
    again = toys.run(tmp_path / "cache", on_event=events.append)
    assert (again.hit, again.ran, again.outputs) == (10, 0, first.outputs)
    (reported,) = [event for event in events if isinstance(event, Warned)]
    assert "could only be read: the file system is read-only" in reported.message
    assert "gc" not in reported.hint
    with pytest.raises(StoreError, match="the file system is read-only") as caught:
        toys.run(tmp_path / "cache/none")                # an empty place that takes nothing is no cache
    assert caught.value.exit_code == 2 and "gc" not in caught.value.hint


def test_inline_threads_and_processes_give_the_same_digests(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A build that proves long begins inline, goes on in threads, and ends in processes."""
    monkeypatch.setattr(executor, "BRIEF", 0.0)
    monkeypatch.setattr(executor, "LONG", 0.0)
    monkeypatch.setattr(executor, "WORTH", 0.0)
    monkeypatch.setattr(executor_cluster, "MANY", 3)  # short as they are, they are not sent ahead
    opened: list[str] = []
    pace: list[Progress] = []

    def listen(event: Event) -> None:
        if isinstance(event, Opened):
            (tmp_path / ("processes" if opened else "threads")).touch()
            opened.append(event.workers)
        elif isinstance(event, Progress) and event.stage == "numbers":
            pace.append(event)

    tables = {"source": {"count": 200}, "reading": {"gates": str(tmp_path)}}
    two = toys.run(tmp_path / "two", tables, jobs=2, on_event=listen)
    assert len(opened) == 2 and opened[0] == "2 threads" and opened[1].startswith("2 workers at tcp://127.")
    assert pace[-1].done == 200 and pace[-1].workers > 1
    one = toys.run(tmp_path / "one", {"source": {"count": 200}}, jobs=1)
    assert one.outputs == two.outputs


SHORT = """
import sys, pathlib, toys
from npuflow.flow import executor
executor.BRIEF = 20.0  # however busy the machine is
for _ in range(2):
    result = toys.run(pathlib.Path(sys.argv[1]), jobs=4)
    print(result.ran, "distributed" in sys.modules or "dask" in sys.modules)
"""


def test_neither_a_short_build_nor_one_with_nothing_to_do_imports_dask(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", SHORT, str(tmp_path / "cache")],
        env=toys.environment(), capture_output=True, text=True, check=True,
    )
    assert done.stdout.split() == ["10", "False", "0", "False"]


def test_one_job_needs_no_cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(executor, "BRIEF", 0.0)
    events: list[Event] = []
    toys.run(tmp_path / "cache", {"reading": {"sleep": 0.1}}, jobs=1, on_event=events.append)
    assert not [event for event in events if isinstance(event, Opened)]


def test_a_fault_is_placed_in_the_stages_own_code(tmp_path: Path) -> None:
    """Also when it is raised by a library that the stage calls."""
    (tmp_path / "texts").mkdir()
    (tmp_path / "texts/one.txt").write_bytes(b"\xff")
    (error,) = toys.run(tmp_path / "cache", {"source": {"folder": str(tmp_path / "texts")}}).errors
    assert "UnicodeDecodeError" in error.message
    assert error.because.startswith(str(HERE / "toybox/stages/numbers.py")) and error.because.endswith(
        "in numbers"
    )


def test_every_worker_has_work_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What bounds a wave is its tasks, not their items: of batches of three there would
    otherwise be three for eight places."""
    waves: list[tuple[str, list[int]]] = []
    plain = executor.TaskExecutor.submit

    def submit(self: executor.TaskExecutor, tasks: Sequence[Task]) -> None:
        waves.append((tasks[0].step, [len(task.work) for task in tasks]))
        plain(self, tasks)

    monkeypatch.setattr(executor.TaskExecutor, "submit", submit)
    monkeypatch.setattr(executor, "HELD", 2)
    result = toys.run(tmp_path / "cache", {"source": {"count": 120}}, jobs=4)
    first = dict(reversed(waves))
    assert first["numbers"] == [3] * 8
    last = [sizes for step, sizes in waves if step == "numbers"][-1]
    assert last[-1] == 1                                               # and all of them end together
    alone = toys.run(tmp_path / "alone", {"source": {"count": 120}}, jobs=1)
    assert result.outputs == alone.outputs and result.keys == alone.keys


@given(st.integers(1, 64), st.integers(1, 5000), st.integers(1, 300))
def test_shares_cover_everything_and_shrink(most: int, number: int, workers: int) -> None:
    size, left, found = shares(most, number, workers), number, []
    while left:
        found.append(min(left, size(left)))
        left -= found[-1]
    assert sorted(found, reverse=True) == found and found[0] <= most
    if workers == 1:
        assert len(found) == -(-number // most)
    else:
        assert found[0] <= max(1, -(-number // workers)) and len(found) >= min(number, workers) / 2
        assert found[-1] <= max(-(-most // 8), workers // 16)
