"""The data of the timeline."""

from __future__ import annotations

import pytest

from npuflow.report.profile import timeline
from npuflow.report.profile.measure import profile
from tests.profile.test_profile import programs  # noqa: F401


def test_every_command_is_an_event_until_there_are_too_many(
    programs,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = profile(programs[0])
    whole = timeline.data(found)
    assert len(whole["events"]) == found.totals()["commands"] and not whole["shortened"]
    assert all(0 <= s <= e <= whole["cycles"] for _, s, e, _, _ in whole["events"])
    assert {q for q, *_ in whole["events"]} <= set(range(len(whole["queues"])))
    monkeypatch.setattr(timeline, "MOST", 3)
    short = timeline.data(found)
    assert len(short["events"]) < len(whole["events"]) and str(len(whole["events"])) in short["shortened"]


def test_only_neighbours_of_one_layer_in_one_queue_are_joined() -> None:
    events = [[0, 0, 1, 5, "LOAD"], [0, 2, 3, 5, "LOAD"], [1, 1, 2, 5, "CONV"], [0, 4, 5, 6, "LOAD"]]
    found = timeline.joined([*events, [0, 6, 7, 5, "LOAD"]])
    spans = [(q, s, e, n) for q, s, e, n, _ in found]
    assert spans == [(0, 0, 3, 5), (0, 4, 5, 6), (0, 6, 7, 5), (1, 1, 2, 5)]
