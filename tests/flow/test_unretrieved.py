"""Exceptions that no caller retrieves: those of dask when workers die are not reported, others are."""

from __future__ import annotations

import asyncio
import gc
import logging

import pytest
from distributed.client import AllExit

from npuflow.flow.executor_tasks import report_unretrieved


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
