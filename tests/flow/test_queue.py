"""Which tasks are handed out first: what the longest chain of steps waits for, with a worker kept for it."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import toys

from npuflow.flow.events import Event
from npuflow.flow.run_queue import Queue, _Waiting

URGENCY = {"chain": 8, "next": 6, "long": 2, "items": 2, "other": 3}


class Workers:
    """Two of them, which can hold six tasks."""

    slots, window, memory = 2, 6, 1 << 30

    def __init__(self) -> None:
        self.handed: list[str] = []

    def submit(self, tasks: Any) -> None:
        self.handed += [task.name for task in tasks]


def tasks(step: str, count: int = 1) -> Iterator[Any]:
    stage = SimpleNamespace(memory=0, quick=False)
    for n in range(count):
        work = [SimpleNamespace(key=f"{step}{n}", item=f"i{n}" if count > 1 else None)]
        yield SimpleNamespace(step=step, name=f"{step}{n}", stage=stage, work=work, attempt=0)


def queue() -> tuple[Queue, Workers, dict[str, Any]]:
    workers, events = Workers(), list[Event]()
    store: Any = None
    made = Queue(workers, store, URGENCY, frozenset(), events.append)  # type: ignore[arg-type]
    return made, workers, {name: SimpleNamespace(pace=SimpleNamespace(begin=int)) for name in URGENCY}


def put(one: Queue, step: str, count: int = 1) -> None:
    one._waiting.append(_Waiting(tasks(step, count), URGENCY[step]))


def ended(one: Queue, name: str) -> None:
    one.ended(next(task for task in one.running.values() if task.name == name))


def test_a_worker_is_kept_for_the_longest_chain() -> None:
    one, workers, states = queue()
    put(one, "long"), put(one, "other"), put(one, "chain")
    one.feed(states, hold=False)
    assert workers.handed == ["chain0", "other0"]         # the third would have the place of what follows
    ended(one, "chain0")
    put(one, "next")
    one.feed(states, hold=False)
    assert workers.handed == ["chain0", "other0", "next0"]
    ended(one, "next0"), one.feed(states, hold=False)
    assert workers.handed[3:] == ["long0"]


def test_items_are_handed_out_ahead_and_take_turns() -> None:
    one, workers, states = queue()
    put(one, "items", 9), put(one, "chain")
    one.feed(states, hold=False)
    assert workers.handed == ["chain0", *(f"items{n}" for n in range(5))]
    one, workers, states = queue()
    put(one, "items", 3), put(one, "long", 3)
    one.feed(states, hold=False)
    assert workers.handed == ["items0", "long0", "items1", "long1", "items2", "long2"]


def test_what_is_more_urgent_than_all_at_hand_is_handed_out_at_once() -> None:
    one, workers, states = queue()
    put(one, "items", 9)
    one.feed(states, hold=False)
    ended(one, "items0"), put(one, "long", 2)
    one.feed(states, hold=False)
    assert len(workers.handed) == 6                       # five at hand: a wave of one is not worth it
    put(one, "chain")
    one.feed(states, hold=False)
    assert workers.handed[6:] == ["chain0"]


def test_urgency_grows_with_the_chain_that_waits() -> None:
    plan = toys.plan()
    found = plan.urgency
    assert set(found) == {step.name for step in plan}
    for step in plan:
        for place in step.inputs.values():
            assert place.step is None or found[place.step] > found[step.name]
