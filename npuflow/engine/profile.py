"""Where a program's cycles go: per layer and per command, with what each engine waited for; a trace and a memory map."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from npuflow.engine.program.container import Program
from npuflow.engine.sim.clock import Timeline, timeline_of
from npuflow.engine.sim.order import Order, order_of

Row = dict[str, Any]
CAUSES = {"LOAD": "bandwidth", "STORE": "store", "TENSOR": "compute", "VECTOR": "vector", "": "none"}


@dataclass(frozen=True)
class Profile:
    """A program with its clock."""

    program: Program
    order: Order
    timeline: Timeline
    nodes: np.ndarray[Any, np.dtype[np.int64]] = field(repr=False)

    @property
    def cycles(self) -> float:
        return float(self.timeline.cycles)

    @property
    def peak(self) -> int:
        """Multiply-accumulates a cycle of all arrays."""
        c = self.program.target.compute
        return c.macs * c.cores

    def queue(self, i: int) -> str:
        names = self.order.queues
        return names[int(self.order.queue[i]) % len(names)]

    def waits(self, i: int) -> str:
        """The kind of queue whose command let this one start, or "" when it started as soon as its queue was free."""
        start, ready = self.timeline.start[i], self.timeline.ready[i]
        if start <= ready:
            return ""
        best, when = "", -1.0
        for queue, count in self.order.waits[i]:
            end = self._ends[queue][count - 1]
            if end > when:
                best, when = self.order.queues[queue % len(self.order.queues)], end
        return best.rstrip("0123456789")

    @property
    def _ends(self) -> Mapping[int, list[float]]:
        cached = self.__dict__.get("ends")
        if cached is None:
            cached = {}
            for i, q in enumerate(self.order.queue):
                cached.setdefault(int(q), []).append(float(self.timeline.end[i]))
            self.__dict__["ends"] = cached
        return cached

    def commands(self) -> Iterator[Row]:
        """One row per command, in the order's sequence."""
        t = self.timeline
        for i, (core, index) in enumerate(self.order.sequence):
            command = self.program.decoded[core][index]
            yield {
                "command": index, "core": core, "queue": self.queue(i), "opcode": command.opcode, "node": command.node,
                "start": float(t.start[i]), "end": float(t.end[i]), "stall": float(t.start[i] - t.ready[i]),
                "cause": CAUSES[self.waits(i)], "bytes": float(t.moved[i]),
            }  # fmt: skip

    def layers(self) -> list[Row]:
        """One row per group of the plan: its share of the clock, busy cycles by engine, bytes, and what held it up."""
        closed = {tuple(g["nodes"]): g for g in self.program.meta.get("plan", {}).get("groups", [])}
        groups = list(closed) or [(int(n),) for n in dict.fromkeys(self.nodes.tolist())]
        rows, before = [], 0.0
        for members in groups:
            index = np.flatnonzero(np.isin(self.nodes, members))
            if not len(index):
                continue
            end = float(self.timeline.end[index].max())
            cycles, before = max(0.0, end - before), max(before, end)
            rows.append(self._layer(members, index, cycles, closed.get(members)))
        return rows

    def _layer(self, members: tuple[int, ...], index: Any, cycles: float, closed: Mapping[str, Any] | None) -> Row:
        busy = dict.fromkeys(("LOAD", "STORE", "TENSOR", "VECTOR"), 0.0)
        held: dict[str, float] = {}
        loaded = stored = 0.0
        t = self.timeline
        for i in index.tolist():
            kind = self.queue(i).rstrip("0123456789")
            busy[kind] += float(t.end[i] - t.start[i])
            loaded += float(t.moved[i]) if kind == "LOAD" else 0.0
            stored += float(t.moved[i]) if kind == "STORE" else 0.0
            if kind in ("TENSOR", "VECTOR"):
                cause = CAUSES[self.waits(i)]
                held[cause] = held.get(cause, 0.0) + float(t.start[i] - t.ready[i])
        held.pop("none", None)
        nodes = [self.program.meta["nodes"][n] for n in members]
        macs = sum(n["macs"] for n in nodes)
        busiest = max(busy, key=lambda k: busy[k])
        return {
            "nodes": list(members), "name": nodes[0]["name"], "op": "+".join(n["op"] for n in nodes), "macs": macs,
            "cycles": cycles, "utilisation": macs / (cycles * self.peak) if cycles else 0.0,
            "load_bytes": loaded, "store_bytes": stored, **{k.lower(): v for k, v in busy.items()},
            "limit": {"LOAD": "bandwidth", "STORE": "bandwidth", "TENSOR": "array", "VECTOR": "vector"}[busiest],
            "stall": max(held, key=lambda k: held[k]) if any(held.values()) else "",
            "closed": closed["cycles"] if closed else None, "bound": closed["bound"] if closed else None,
        }  # fmt: skip

    def trace(self) -> dict[str, Any]:
        """Chrome and Perfetto's trace format; a cycle is a microsecond."""
        events: list[Row] = []
        for core in range(len(self.program.commands)):
            events.append({"ph": "M", "pid": core, "name": "process_name", "args": {"name": f"core {core}"}})
            for n, name in enumerate(self.order.queues):
                events.append({"ph": "M", "pid": core, "tid": n, "name": "thread_name", "args": {"name": name}})
        for row in self.commands():
            node = self.program.meta["nodes"][row["node"]]
            events.append({
                "ph": "X", "pid": row["core"], "tid": self.order.queues.index(row["queue"]), "ts": row["start"],
                "dur": row["end"] - row["start"], "name": f"{row['opcode']} {node['name']}", "cat": node["op"],
                "args": {"command": row["command"], "bytes": row["bytes"], "stall": row["stall"], "cause": row["cause"]},
            })  # fmt: skip
        return {"traceEvents": events, "displayTimeUnit": "ms"}

    def memory(self) -> list[Row]:
        """External memory: every value's bytes and the steps it lives."""
        lives = self.program.meta.get("memory", {}).get("lives", [])
        return [dict(zip(("value", "address", "size", "first", "last"), life, strict=True)) for life in lives]

    def totals(self) -> Row:
        """The whole program, beside the closed form and the lower bounds."""
        plan = self.program.meta.get("plan", {})
        macs = sum(n["macs"] for n in self.program.meta["nodes"])
        clock = self.program.target.compute.clock_mhz
        return {
            "cycles": self.cycles, "milliseconds": self.cycles / clock / 1000, "bytes": float(self.timeline.moved.sum()),
            "macs": macs, "utilisation": macs / (self.cycles * self.peak) if self.cycles else 0.0,
            "commands": len(self.order.sequence), "data_bytes": self.program.meta["data_bytes"],
            "const_bytes": self.program.meta["const_bytes"],
            "closed_cycles": plan.get("cycles"), "closed_bytes": plan.get("bytes"), "bound_cycles": plan.get("bound_cycles"),
            "bound_bytes": plan.get("bound_bytes"), "roofline": plan.get("roofline"),
        }  # fmt: skip


def profile(program: Program) -> Profile:
    """Run the clock over a program."""
    order = order_of(program)
    nodes = np.array([program.decoded[core][index].node for core, index in order.sequence], np.int64)
    return Profile(program, order, timeline_of(program, order), nodes)
