"""The data of the timeline: when every queue of every core runs which layer's commands."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from npuflow.base.wording import counted
from npuflow.report.profile.measure import Profile

MOST = 8000                               # events; beyond that neighbours of one layer are joined


def data(found: Profile) -> dict[str, Any]:
    """What `figures.timeline` takes besides the layers' names, as JSON; `shortened` says what was joined."""
    program, order, clock = found.program, found.order, found.timeline
    cores = len(program.commands)
    queues = [q if cores == 1 else f"{core}.{q}" for core in range(cores) for q in order.queues]
    events: list[list[Any]] = []
    for i, (core, index) in enumerate(order.sequence):
        command = program.decoded[core][index]
        span = float(clock.start[i]), float(clock.end[i])
        events.append([int(order.queue[i]), *span, command.node, command.opcode])
    note = ""
    if len(events) > MOST:
        note = f"{counted(len(events), 'command')}; neighbours of one layer in a queue are drawn as one"
        events = joined(events)
    return {"queues": queues, "cycles": float(clock.cycles), "events": events, "shortened": note}


def joined(events: Iterable[list[Any]]) -> list[list[Any]]:
    """Runs of commands of one layer in one queue, as one event each."""
    last: dict[int, list[Any]] = {}
    shown: list[list[Any]] = []
    for queue, start, end, node, name in sorted(events, key=lambda e: (e[0], e[1])):
        run = last.get(queue)
        if run is not None and run[3] == node:
            run[2] = max(run[2], end)
            continue
        last[queue] = [queue, start, end, node, name]
        shown.append(last[queue])
    return shown
