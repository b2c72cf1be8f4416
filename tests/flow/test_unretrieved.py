"""Exceptions that no caller retrieves: those of dask when workers die are not reported, others are."""

from __future__ import annotations

import asyncio
import gc
import logging
import time
from typing import Any

import pytest
from distributed.batched import BatchedSend
from distributed.client import AllExit

from npuflow.flow.executor_tasks import report_unretrieved
from tests.tiers import often


@pytest.mark.parametrize(("fault", "said"), [(AllExit, False), (ValueError, True)], ids=["dask's", "other"])
def test_only_exceptions_of_dask_are_not_reported(
    fault: type[Exception], said: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async def left() -> None:
        asyncio.get_running_loop().set_exception_handler(report_unretrieved)

        async def wait() -> None:
            raise fault

        task = asyncio.ensure_future(wait())
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert task.done()

    with caplog.at_level(logging.ERROR, "asyncio"):
        asyncio.run(left())
        gc.collect()
    assert ("never retrieved" in caplog.text) == said


class Written:
    """A connection that takes every message."""

    def closed(self) -> bool:
        return False

    async def write(self, *message: Any, **more: Any) -> int:
        return 1


@pytest.mark.parametrize(("slow", "fault"), often([(True, None), (False, None), (False, ValueError)], 2))
def test_a_wait_of_dasks_that_ends_with_its_loop_is_not_reported(
    slow: bool, fault: type[Exception] | None, caplog: pytest.LogCaptureFixture
) -> None:
    """A send of dask's waits for more. On a busy machine its time is up when the loop stops, and the loop
    takes no note of that any more. Other faults of a loop that has stopped are reported."""

    async def last() -> None:
        sends = BatchedSend(interval="20ms")
        sends.start(Written())
        sends.send("close-client")
        while not sends.batch_count:
            await asyncio.sleep(0)
        for _ in range(5):
            await asyncio.sleep(0)
        if slow:
            time.sleep(0.05)
        if fault is not None:
            loop.create_future().set_exception(fault())

    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    loop.set_exception_handler(report_unretrieved)
    with caplog.at_level(logging.ERROR, "asyncio"):
        loop.create_task(last()).add_done_callback(lambda task: loop.stop())
        loop.run_forever()
        loop.close()
        asyncio.set_event_loop(None)
        gc.collect()
    assert ("never retrieved" in caplog.text) == (fault is not None)
