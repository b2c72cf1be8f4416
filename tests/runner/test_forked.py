"""A runner in a process that was forked from the one that opened it."""

from __future__ import annotations

import multiprocessing
import threading
from collections.abc import Callable
from concurrent.futures import Future
from multiprocessing.connection import Connection
from typing import Any

import numpy as np
import pytest

import npuflow
import npuflow.ort as ort
from npuflow.base.errors import UsageError
from tests.runner.programs import accumulating, feeds, split

pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
SAMPLE = feeds(1)[0]


def in_child(task: Callable[[], Any]) -> Any:
    """What a task gives in a forked process; an AssertionError where nothing comes of it."""

    def run(end: Connection) -> None:
        try:
            end.send(task())
        except BaseException as error:
            end.send(error)

    here, there = multiprocessing.Pipe()
    child = multiprocessing.get_context("fork").Process(target=run, args=(there,))
    child.start()
    try:
        assert here.poll(60), "the forked process does not answer"
        found = here.recv()
    finally:
        child.kill()
        child.join()
    if isinstance(found, BaseException):
        raise found
    return found


class Held:
    """A backend whose first run waits until it may go on."""

    def __init__(self, runner: npuflow.Runner) -> None:
        self.inner, self.begun, self.free = runner.backend.run, threading.Event(), threading.Event()
        runner.backend.run = self.run  # type: ignore[method-assign]

    def run(self, samples: Any, dump: Any) -> Any:
        if not self.begun.is_set():
            self.begun.set()
            assert self.free.wait(120)
        return self.inner(samples, dump)


@pytest.mark.parametrize("exact", ["executor", "simulator"])
def test_a_runner_that_was_used_asynchronously_answers_in_a_fork(exact: Any) -> None:
    with npuflow.Runner(split(), exact=exact, workers=2) as runner:
        want = runner.submit(SAMPLE, timeout=60).result(60)["y"]
        for task in (
            lambda: runner.submit(SAMPLE).result(60),
            lambda: runner.submit(SAMPLE, timeout=60).result(60),
            lambda: runner.run(SAMPLE),
            lambda: (runner.close(), want)[0] or {"y": want},
        ):
            np.testing.assert_array_equal(in_child(task)["y"], want)
        np.testing.assert_array_equal(runner.submit(SAMPLE).result(60)["y"], want)


def test_a_time_out_fires_in_a_fork() -> None:
    with npuflow.Runner(split()) as runner:
        runner.submit(SAMPLE, timeout=60).result(60)

        def task() -> str:
            held = Held(runner)
            first, late = runner.submit(SAMPLE), runner.submit(SAMPLE, timeout=0.01)
            with pytest.raises(TimeoutError, match=r"no result within 0\.01 s"):
                late.result(60)
            held.free.set()
            return str(first.result(60)["y"].shape)

        assert in_child(task) == "(4, 32)"


def test_what_the_parent_submitted_is_an_error_in_a_fork_and_answered_in_the_parent() -> None:
    called: list[Future[Any]] = []
    with npuflow.Runner(split()) as runner:
        done = runner.submit(SAMPLE)
        want = done.result(60)["y"]
        held = Held(runner)
        begun = runner.submit(SAMPLE)
        assert held.begun.wait(60)
        waiting = runner.submit(SAMPLE, timeout=60)
        waiting.add_done_callback(called.append)

        def task() -> Any:
            for future in (begun, waiting):
                with pytest.raises(UsageError, match="the process that this one was forked from") as raised:
                    future.result(10)
                assert raised.value.code == "NF-RUN-050"
            assert not called, "a callback is the parent's"
            np.testing.assert_array_equal(done.result(0)["y"], want)
            return runner.submit(SAMPLE).result(60)

        np.testing.assert_array_equal(in_child(task)["y"], want)
        held.free.set()
        for future in (begun, waiting):
            np.testing.assert_array_equal(future.result(60)["y"], want)
    assert called == [waiting]


def test_a_sequence_goes_on_in_a_fork_though_a_thread_was_in_a_step() -> None:
    runner = npuflow.Runner(accumulating(), state={"total": "carried"})
    one = {"x": np.ones((1, 3), np.float32)}
    runner.run(one)
    held = Held(runner)
    thread = threading.Thread(target=runner.run, args=(one,))
    thread.start()
    assert held.begun.wait(60)
    assert in_child(lambda: runner.run(one))["total"].tolist() == [[2.0] * 3]
    held.free.set()
    thread.join()
    assert runner.run(one)["total"].tolist() == [[3.0] * 3]


def test_a_session_runs_in_a_fork() -> None:
    session = ort.InferenceSession(split().to_bytes())
    there = threading.Event()
    session.run_async(None, SAMPLE, lambda results, data, error: there.set(), None)
    assert there.wait(60)

    def task() -> Any:
        seen, there = [], threading.Event()
        session.run_async(None, SAMPLE, lambda results, *_: (seen.extend(results), there.set()), None)
        assert there.wait(60)
        return seen[0]

    np.testing.assert_array_equal(in_child(task), session.run(None, SAMPLE)[0])
