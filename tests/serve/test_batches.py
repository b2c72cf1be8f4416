"""Samples of several requests in one batch: gathering, faults, deadlines, limits, and an orderly end."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Sequence
from typing import Any

import numpy as np
import pytest

from npuflow.apps.serve.served import Batches
from npuflow.base.errors import UsageError


class Doubling:
    """A runner that doubles "x"; it waits until it may, and refuses what is negative."""

    batch, workers, linger, limit = 4, 1, 0.0, 0

    def __init__(self, **settings: Any) -> None:
        self.free = threading.Event()
        self.free.set()
        self.sizes: list[int] = []
        for name, value in settings.items():
            setattr(self, name, value)

    def outcomes(self, samples: Sequence[dict[str, Any]]) -> list[Any]:
        assert self.free.wait(20)
        self.sizes.append(len(samples))
        return [{"y": 2 * s["x"]} if s["x"] >= 0 else ValueError("negative") for s in samples]


def ran(task: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(task, 30))


def sample(number: float) -> dict[str, Any]:
    return {"x": np.float64(number)}


def test_what_waits_while_a_batch_is_computed_is_the_next() -> None:
    async def task() -> None:
        runner = Doubling()
        batches = Batches(runner)  # type: ignore[arg-type]
        runner.free.clear()
        first = batches.submit(sample(1), 20)
        await asyncio.sleep(0.05)
        rest = [batches.submit(sample(n), 20) for n in (2, -3, 4, 5, 6)]
        assert batches.waiting == 5
        runner.free.set()
        assert (await first)["y"] == 2
        found = await asyncio.gather(*rest, return_exceptions=True)
        assert [f["y"] for f in (found[0], *found[2:])] == [4, 8, 10, 12]
        assert isinstance(found[1], ValueError)
        assert runner.sizes == [1, 4, 1] and batches.sizes == {1: 2, 4: 1}
        await batches.close()

    ran(task())


def test_clients_that_come_back_together_stay_together() -> None:
    """Without a pause the first to return would be computed alone every time."""

    async def client(batches: Batches) -> None:
        for n in range(5):
            assert (await batches.submit(sample(n), 20))["y"] == 2 * n
            await asyncio.sleep(0)

    async def task() -> None:
        runner = Doubling()
        batches = Batches(runner)  # type: ignore[arg-type]
        await asyncio.gather(*(client(batches) for _ in range(4)))
        assert runner.sizes == [4] * 5
        await batches.close()

    ran(task())


def test_a_deadline_a_full_queue_and_the_end() -> None:
    async def task() -> None:
        runner = Doubling(limit=2)
        batches = Batches(runner)  # type: ignore[arg-type]
        runner.free.clear()
        first = batches.submit(sample(1), 20)
        await asyncio.sleep(0.05)
        late, kept = batches.submit(sample(2), 0.05), batches.submit(sample(3), 20)
        with pytest.raises(UsageError) as full:
            batches.submit(sample(4), 20)
        assert full.value.code == "NF-RUN-008"
        with pytest.raises(TimeoutError, match=r"no result within 0\.05 s"):
            await late
        threading.Timer(0.1, runner.free.set).start()
        await batches.close()
        assert (await first)["y"] == 2 and (await kept)["y"] == 6
        assert runner.sizes == [1, 1], "what was too late is not computed"
        with pytest.raises(UsageError) as closed:
            batches.submit(sample(5), 20)
        assert closed.value.code == "NF-RUN-007"

    ran(task())
