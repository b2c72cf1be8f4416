"""The clock as events: data of the timeline figure, and the trace format of Chrome and Perfetto."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from npuflow.base.wording import counted
from npuflow.report.profile.measure import Profile, Row

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


def trace(found: Profile) -> dict[str, Any]:
    """A process per core, a thread per queue, an event per command; the bytes in flight as a counter."""
    events: list[Row] = []
    for core in range(len(found.program.commands)):
        events.append({"ph": "M", "pid": core, "name": "process_name", "args": {"name": f"core {core}"}})
        for n, name in enumerate(found.order.queues):
            events.append({"ph": "M", "pid": core, "tid": n, "name": "thread_name", "args": {"name": name}})
    changes: list[tuple[float, float]] = []
    for row in found.commands():
        entry = found.program.meta["nodes"][row["node"]]
        kept = (
            "command",
            "bytes",
            "shared_bytes",
            "stall",
            "cause",
            "set-up",
            "array",
            "edge",
            "vector",
            "banks",
        )
        events.append({
            "ph": "X", "pid": row["core"], "tid": found.order.queues.index(row["queue"]), "ts": row["start"],
            "dur": row["end"] - row["start"], "name": f"{row['opcode']} {row['layer']}", "cat": entry["op"],
            "args": {name: row[name] for name in kept if row[name] != 0 or name == "command"}
            | {"origin": list(entry.get("origin", ()))},
        })
        if row["bytes"]:
            changes += [(row["start"], row["bytes"]), (row["end"], -row["bytes"])]
    level = 0.0
    for moment, change in sorted(changes):
        level += change
        events.append(
            {"ph": "C", "pid": 0, "name": "bytes in flight", "ts": moment, "args": {"bytes": level}}
        )
    return {"traceEvents": events, "displayTimeUnit": "ms"}
