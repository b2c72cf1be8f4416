"""Rounds of loops that are not alike in a schedule."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from npuflow.schedule.jobs import Barrier, Job, Phase, Schedule
from npuflow.schedule.rolled import alike

LOOP: Any = SimpleNamespace(first=(0,), second=(1,))


def loads(group: int) -> list[Job]:
    """One of each of two cores."""
    return [Job(core, 0, group, 0, 0, (), (), 4, None, 16, key="w") for core in (0, 1)]  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("shared", "same"), [((), True), (((0, 1), (2, 3)), True), (((0, 1),), False), (((0, 1), (3,)), False)]
)
def test_rounds_in_which_other_cores_share_loads_are_not_alike(
    shared: tuple[tuple[int, ...], ...], same: bool
) -> None:
    schedule = Schedule([Phase(0, None, [*loads(0), *loads(1)], shared)], 2)
    assert alike(schedule, (LOOP,)) is same


@pytest.mark.parametrize(("before", "same"), [((0, 1), True), ((1,), False)])
def test_rounds_before_one_of_which_cores_meet_are_not_alike(before: tuple[int, ...], same: bool) -> None:
    phases = [Phase(0, Barrier(g, 0, {}) if g in before else None, loads(g)) for g in (0, 1)]
    assert alike(Schedule(phases, 2), (LOOP,)) is same
