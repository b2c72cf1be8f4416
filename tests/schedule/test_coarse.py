"""Coarse jobs: the same recurrence as the timetable of a whole schedule."""

from __future__ import annotations

import random

import pytest

from npuflow.hw.target import Memory
from npuflow.schedule.banks import Banks
from npuflow.schedule.time import Timetable
from npuflow.search.coarse import LOADS, OTHERS, CoarseJob, ends_of

QUEUES = OTHERS + 1


@pytest.mark.parametrize("seed", range(20))
def test_coarse_jobs_end_when_the_timetable_says(seed: int) -> None:
    """Loads move their bytes behind a front; no other queue uses the bus, and memory has no banks."""
    rng, width = random.Random(seed), 4.0
    memory = Memory(local_bandwidth=1024, external_bandwidth=width)
    table = Timetable(QUEUES, 1, (width, width), Banks(memory))
    jobs: list[CoarseJob] = []
    for number in range(rng.randint(1, 60)):
        queue, cycles = rng.randrange(QUEUES), float(rng.randint(0, 40))
        after = rng.sample(range(number), min(number, rng.randint(0, 3)))
        moved = rng.randint(1, 200) if queue == LOADS else 0
        table.add(queue, cycles, after, moved)
        jobs.append((queue, cycles + moved / width, after))
    ends = ends_of(jobs, QUEUES)
    assert table.run() == pytest.approx(max(ends))
    assert table.end == pytest.approx(ends)


def test_no_jobs_end_at_once() -> None:
    assert ends_of([], 1) == []
