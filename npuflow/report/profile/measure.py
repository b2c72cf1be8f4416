"""A program with its clock: per layer and per command cycles, bytes, terms, what each
engine waited for, and totals."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from npuflow.base.html_table import titled
from npuflow.hw.energy import Energy
from npuflow.hw.region import LOCAL
from npuflow.place.host import HostWork
from npuflow.program.access import regions
from npuflow.program.container import Program, instances_of
from npuflow.program.loop_steps import LoopSteps
from npuflow.program.order import Order, order_of
from npuflow.report.profile.energy import CountedWork, columns, work_of
from npuflow.report.profile.path import critical_path
from npuflow.sim.clock import Timeline, timeline_of

Row = dict[str, Any]
CAUSES = {"LOAD": "bandwidth", "STORE": "store", "TENSOR": "compute", "VECTOR": "vector", "": "none"}
LIMITS = {"LOAD": "bandwidth", "STORE": "bandwidth", "TENSOR": "array", "VECTOR": "vector"}
STALLS = ("bandwidth", "dependency", "set-up", "edge", "banks")
TERMS = ("array", "vector", "set-up", "bus")


@dataclass(frozen=True)
class Profile:
    """A program with its clock. `cycles` are the NPU's own; `energy`: what work costs, if known."""

    program: Program
    order: Order
    timeline: Timeline
    energy: Energy | None = None

    @property
    def cycles(self) -> float:
        return float(self.timeline.cycles)

    def _repr_html_(self) -> str:
        """For notebooks: totals, and the figures of every layer."""
        kept = ("name", "op", "cycles", "utilisation", "load_bytes", "store_bytes", "limit", "stall")
        totals = {key: value for key, value in self.totals().items() if isinstance(value, int | float)}
        rows = [{key: row.get(key) for key in kept} for row in (*self.operators(), *self.host_rows)]
        return titled(str(self.program.meta.get("name") or "program"), totals, rows)

    @cached_property
    def host_rows(self) -> list[Row]:
        """One row per node that costs the host time: what it does, and its cycles by
        the target's `[host]` table."""
        rows, target = [], self.program.target
        for index, node in enumerate(self.program.meta["nodes"]):
            if node.get("host"):
                work = HostWork(**node["host"])
                rows.append({
                    "nodes": [index], "name": self.name(index), "op": node["op"],
                    "cycles": work.cycles(target), "limit": "host", "host_terms": work.terms(target),
                    "host_macs": work.macs, "host_elements": work.elements, "host_bytes": work.bytes,
                    **self._energy((), work.cycles(target)),
                })
        return rows

    @cached_property
    def host(self) -> HostWork:
        """What the host does in all. Commands do not see it; `totals` adds its cycles to
        those of clock and schedule."""
        return sum((HostWork(**n["host"]) for n in self.program.meta["nodes"] if n.get("host")), HostWork())

    @property
    def host_cycles(self) -> float:
        return self.host.cycles(self.program.target)

    @property
    def whole_cycles(self) -> float:
        """The NPU's and the host's, one after the other."""
        return self.cycles + self.host_cycles

    @property
    def peak(self) -> int:
        """Multiply-accumulates a cycle of all arrays."""
        c = self.program.target.compute
        return c.macs * c.cores

    @cached_property
    def nodes(self) -> npt.NDArray[np.int64]:
        """Per command the node that it works for."""
        return np.array(
            [self.program.decoded[core][index].node for core, index in self.order.sequence], np.int64
        )

    @cached_property
    def kinds(self) -> list[str]:
        """Per command its engine: LOAD, STORE, TENSOR or VECTOR."""
        names = [name.rstrip("0123456789") for name in self.order.queues]
        return [names[int(q) % len(names)] for q in self.order.queue]

    @cached_property
    def blockers(self) -> list[int]:
        """Per command the awaited command whose end let it start, or -1 where it started as
        soon as its queue was free."""
        lists: dict[int, list[int]] = {}
        for i, q in enumerate(self.order.queue):
            lists.setdefault(int(q), []).append(i)
        end, found = self.timeline.end, []
        for i, waits in enumerate(self.order.waits):
            late = [lists[q][count - 1] for q, count in waits if count]
            last = max(late, key=lambda j: end[j], default=-1)
            found.append(last if last >= 0 and self.timeline.start[i] > self.timeline.ready[i] else -1)
        return found

    @cached_property
    def path(self) -> list[Row]:
        """The chain of commands that fixes the program's cycles, in order: every cycle
        once, with its cause and node."""
        return critical_path(
            self.timeline, self.order, self.kinds, self.blockers, self.nodes.tolist(), self.program.target
        )

    @cached_property
    def groups(self) -> list[tuple[tuple[int, ...], Mapping[str, Any] | None]]:
        """Node indices that run together, with the plan's figures."""
        scheduled = {tuple(g["nodes"]): g for g in self.program.meta.get("plan", {}).get("groups", [])}
        present = set(self.nodes.tolist())
        groups = list(scheduled) or [(n,) for n in dict.fromkeys(self.nodes.tolist())]
        return [(g, scheduled.get(g)) for g in groups if present & set(g)]

    def queue(self, i: int) -> str:
        names = self.order.queues
        return names[int(self.order.queue[i]) % len(names)]

    def commands(self) -> Iterator[Row]:
        """One row per command, in the order's sequence."""
        t = self.timeline
        for i, (core, index) in enumerate(self.order.sequence):
            command, terms, blocker = self.program.decoded[core][index], t.terms[i], self.blockers[i]
            yield {
                "command": index,
                "core": core,
                "queue": self.queue(i),
                "opcode": command.opcode,
                "node": command.node,
                "layer": self.name(command.node),
                "start": float(t.start[i]),
                "end": float(t.end[i]),
                "stall": float(t.start[i] - t.ready[i]),
                "cause": CAUSES[self.kinds[blocker] if blocker >= 0 else ""],
                "bytes": float(t.moved[i]),
                "shared_bytes": float(t.shared[i]),
                "set-up": float(terms.issue + terms.setup + terms.rows + terms.fill + terms.reload),
                "array": float(terms.array),
                "edge": float(terms.edge),
                "vector": float(terms.vector),
                "banks": float(t.banks[i]),
            }

    def name(self, node: int) -> str:
        """The source model's name of a node."""
        entry = self.program.meta["nodes"][node]
        return str(entry["name"] or "+".join(entry.get("origin", ())) or entry["op"])

    def layers(self) -> list[Row]:
        """One row per group of the plan: its share of the clock, busy cycles by engine,
        bytes, and what held it up."""
        return list(self._layers)

    @cached_property
    def _layers(self) -> list[Row]:
        spans = self._spans
        return [
            self._layer(members, np.flatnonzero(np.isin(self.nodes, members)), spans[number], scheduled)
            for number, (members, scheduled) in enumerate(self.groups)
        ]

    @property
    def _spans(self) -> list[float]:
        """Per group the cycles from the end of what came before to its own end; of groups of a loop in all
        rounds together, each behind the one before it."""
        place = {node: number for number, (members, _) in enumerate(self.groups) for node in members}
        own = np.flatnonzero(np.isin(self.nodes, list(place))).tolist()
        turns = LoopSteps(self.program).turns([self.order.sequence[i] for i in own], place)
        ends: dict[tuple[int, ...], float] = {}
        for i, turn in zip(own, turns, strict=True):
            ends[turn] = max(ends.get(turn, 0.0), float(self.timeline.end[i]))
        spans, before = [0.0] * len(self.groups), 0.0
        for turn, end in sorted(ends.items()):
            spans[turn[-1]] += max(0.0, end - before)
            before = max(before, end)
        return spans

    def operators(self) -> list[Row]:
        """One row per node of the source model, also inside groups; its cycles are
        its part of the critical path."""
        present = set(self.nodes.tolist())
        return [
            {"group": number, **self.layer((member,))} for number, (members, _) in enumerate(self.groups)
            for member in members if member in present
        ]

    def layer(self, members: Sequence[int]) -> Row:
        """The same of some nodes together."""
        index = np.flatnonzero(np.isin(self.nodes, members))
        return self._layer(tuple(members), index, sum(self._path_of(tuple(members)).values()), None)

    @cached_property
    def _paths(self) -> dict[int, dict[str, float]]:
        """Node -> cycles of the critical path by cause."""
        paths: dict[int, dict[str, float]] = {}
        for step in self.path:
            mine = paths.setdefault(step["node"], {})
            mine[step["cause"]] = mine.get(step["cause"], 0.0) + step["cycles"]
        return paths

    def _path_of(self, members: tuple[int, ...]) -> dict[str, float]:
        found: dict[str, float] = {}
        for member in members:
            for cause, amount in self._paths.get(member, {}).items():
                found[cause] = found.get(cause, 0.0) + amount
        return found

    def _layer(
        self, members: tuple[int, ...], index: Any, cycles: float, scheduled: Mapping[str, Any] | None
    ) -> Row:
        t, chosen = self.timeline, index.tolist()
        busy = dict.fromkeys(("LOAD", "STORE", "TENSOR", "VECTOR"), 0.0)
        queues: dict[int, float] = {}
        moved = {
            "load_bytes": 0.0,
            "store_bytes": 0.0,
            "const_bytes": 0.0,
            "shared_bytes": 0.0,
            "local_bytes": 0.0,
        }
        stalls = dict.fromkeys(STALLS, 0.0)
        for i in chosen:
            kind, amount = self.kinds[i], float(t.moved[i])
            busy[kind] += float(t.end[i] - t.start[i])
            queues[int(self.order.queue[i])] = queues.get(int(self.order.queue[i]), 0.0) + float(
                t.end[i] - t.start[i]
            )
            moved["shared_bytes"] += float(t.shared[i])
            moved["local_bytes"] += self._local[i]
            moved["load_bytes"] += amount if kind == "LOAD" else 0.0
            moved["store_bytes"] += amount if kind == "STORE" else 0.0
            moved["const_bytes"] += amount if kind == "LOAD" and self._from_const(i) else 0.0
            stalls["edge"] += t.terms[i].edge
            stalls["banks"] += float(t.banks[i])
        # the one that the others must keep busy
        engine = "TENSOR" if busy["TENSOR"] >= busy["VECTOR"] else "VECTOR"
        for i in (i for i in chosen if self.kinds[i] == engine):
            stalls["set-up"] += t.terms[i].issue + t.terms[i].fill + t.terms[i].reload
            for cause, wait in self._waited(i).items():
                stalls[cause] += wait
        nodes = [self.program.meta["nodes"][n] for n in members]
        path = self._path_of(members)
        macs, total = sum(n["macs"] for n in nodes), moved["load_bytes"] + moved["store_bytes"]
        return {
            "nodes": list(members),
            "name": _together([self.name(n) for n in members]),
            "op": _together([n["op"] for n in nodes]),
            "macs": macs,
            "cycles": cycles,
            "utilisation": macs / (cycles * self.peak) if cycles else 0.0,
            **moved,
            "intensity": macs / total if total else 0.0,
            **{k.lower(): v for k, v in busy.items()},
            "busiest": max(queues.values(), default=0.0),
            "limit": LIMITS[max(busy, key=lambda k: busy[k])],
            "stall": max(stalls, key=lambda k: stalls[k]) if any(stalls.values()) else "",
            "stalls": stalls,
            "schedule": scheduled["cycles"] if scheduled else None,
            "bound": scheduled["bound"] if scheduled else None,
            "terms": self._terms(chosen),
            "schedule_terms": dict(scheduled.get("terms", {})) if scheduled else {},
            "path": path,
            "path_cycles": sum(path.values()),
            **self._energy(chosen, cycles),
        }

    def work(self, chosen: Iterable[int] | None = None) -> CountedWork:
        """What commands do, by their places in the order; of all where none are chosen."""
        some = range(len(self.order.sequence)) if chosen is None else chosen
        return work_of(self.program, self.order, self.timeline, some)

    def _energy(self, chosen: Iterable[int] | None, cycles: float) -> Row:
        """Columns of the energy of some commands and cycles; none without a table."""
        if self.energy is None:
            return {}
        milliseconds = cycles / self.program.target.compute.clock_mhz / 1000
        return columns(self.work(chosen).microjoules(self.energy, milliseconds, instances_of(self.program)))

    def _from_const(self, i: int) -> bool:
        core, index = self.order.sequence[i]
        return self.program.decoded[core][index].fields["space"] == "CONST"

    @cached_property
    def _local(self) -> list[float]:
        """Per command the bytes of local memory that it reads and writes, every operand once."""
        found = (regions(self.program.decoded[core][index]) for core, index in self.order.sequence)
        return [float(sum(prod(r.dims) * r.size for r in command if r.space == LOCAL)) for command in found]

    def _waited(self, i: int) -> dict[str, float]:
        """A compute command's stall, split by what the awaited command did meanwhile."""
        t, blocker = self.timeline, self.blockers[i]
        if blocker < 0:
            return {}
        stall = float(t.start[i] - t.ready[i])
        if self.kinds[blocker] in ("TENSOR", "VECTOR"):
            return {"dependency": stall}
        front = t.terms[blocker].total + float(t.banks[blocker])
        bus = min(stall, float(t.end[blocker] - t.start[blocker]) - front)      # the bytes moved last
        return {"bandwidth": bus, "set-up": stall - bus}

    def _terms(self, chosen: list[int]) -> dict[str, float]:
        """The clock's own sums of what the schedule adds up: of the core that spends
        most; the bus is one for all."""
        t, memory = self.timeline, self.program.target.memory
        cores = [dict.fromkeys(TERMS, 0.0) for _ in self.program.commands]
        for i in chosen:
            terms, kind, found = t.terms[i], self.kinds[i], cores[self.order.sequence[i][0]]
            if kind in ("LOAD", "STORE"):
                found["set-up"] += terms.total
                found["bus"] += (
                    float(t.moved[i]) / memory.external_bandwidth
                    + float(t.shared[i]) / memory.shared_bandwidth
                )
            else:
                found["array" if kind == "TENSOR" else "vector"] += terms.total
        return {name: (sum if name == "bus" else max)(core[name] for core in cores) for name in TERMS}

    def totals(self) -> Row:
        """The whole program, beside its schedule time and the lower bounds, term by term."""
        plan = self.program.meta.get("plan", {})
        macs = sum(n["macs"] for n in self.program.meta["nodes"])
        clock = self.program.target.compute.clock_mhz
        causes: dict[str, float] = {}
        for step in self.path:
            causes[step["cause"]] = causes.get(step["cause"], 0.0) + step["cycles"]
        rows = self.layers()
        scheduled, searched = (
            [g[key] for _, g in self.groups if g and key in g] for key in ("terms", "searched")
        )
        host = self.host_cycles
        if host:
            causes["host"] = host
        return {
            "cycles": self.whole_cycles,
            "milliseconds": self.whole_cycles / clock / 1000,
            "npu_cycles": self.cycles,
            "host_cycles": host,
            "host_terms": self.host.terms(self.program.target),
            "bytes": float(self.timeline.moved.sum()),
            "shared_bytes": float(self.timeline.shared.sum()),
            "macs": macs,
            "host_macs": self.host.macs,
            "host_bytes": self.host.bytes,
            "utilisation": macs / (self.cycles * self.peak) if self.cycles else 0.0,
            "commands": len(self.order.sequence),
            "data_bytes": self.program.meta["data_bytes"],
            "const_bytes": self.program.meta["const_bytes"],
            "schedule_cycles": _with(plan.get("cycles"), host),
            "schedule_bytes": plan.get("bytes"),
            "bound_cycles": plan.get("bound_cycles"),
            "bound_bytes": plan.get("bound_bytes"),
            "roofline": plan.get("roofline"),
            "path": causes,
            "terms": {name: sum(row["terms"][name] for row in rows) for name in TERMS},
            "schedule_terms": {name: sum(g[name] for g in scheduled) for name in TERMS} if scheduled else {},
            "searched_cycles": _with(plan.get("searched"), host),
            "searched_terms": {name: sum(g[name] for g in searched) for name in TERMS} if searched else {},
            **self._energy(None, self.whole_cycles),
        }


def _with(cycles: float | None, host: float) -> float | None:
    """A figure of the plan with the host's cycles, which are the same for all forms."""
    return None if cycles is None else cycles + host


def _together(names: list[str], most: int = 3) -> str:
    """Names of a group's members; of many, the ends."""
    names = list(dict.fromkeys(names))
    return "+".join(names) if len(names) <= most else f"{names[0]} .. {names[-1]} ({len(names)})"


def profile(program: Program, energy: Energy | None = None) -> Profile:
    """Run the clock over a program. `energy`: the target's table, which no program holds."""
    order = order_of(program)
    return Profile(program, order, timeline_of(program, order), energy)
