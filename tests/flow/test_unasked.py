"""What dask leaves behind where workers die is no traceback on the screen; other faults of a loop are."""

from __future__ import annotations

import asyncio
import gc
import logging

import pytest
from distributed.client import AllExit

from npuflow.flow.executor_tasks import unasked


@pytest.mark.parametrize(("fault", "said"), [(AllExit, False), (ValueError, True)], ids=["dask's", "other"])
def test_exceptions_that_nobody_asks_for(
    fault: type[Exception], said: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async def left() -> None:
        asyncio.get_running_loop().set_exception_handler(unasked)

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
