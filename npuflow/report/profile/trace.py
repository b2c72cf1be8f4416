"""A program's clock in Chrome's and Perfetto's trace format; a cycle is a microsecond there."""

from __future__ import annotations

from typing import Any

from npuflow.report.profile.measure import Profile, Row


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
