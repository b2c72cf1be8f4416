"""Metadata of a program: what its plan takes, where values lie, what nodes are."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, fields
from typing import Any

from npuflow.ir.graph import Graph
from npuflow.ir.op import Node
from npuflow.ir.queries import title
from npuflow.ir.types import UNRANKED, QuantType, fields_of
from npuflow.ir.views import Views
from npuflow.place.host import HostWork
from npuflow.program.codegen.data import DataStorage
from npuflow.schedule.apart import cycles_of_rounds
from npuflow.schedule.choice import Costs
from npuflow.schedule.frame import Frame
from npuflow.schedule.jobs import ConstantShare, Schedule
from npuflow.schedule.nested import RolledLoop, runs_of, twins_together
from npuflow.schedule.time import CycleBreakdown, ScheduleTime
from npuflow.search.plan import TilingPlan


def quant_meta(quant: QuantType) -> dict[str, Any]:
    found = fields_of(quant)
    return {**found, "scale": list(quant.scale), "zero_point": list(quant.zero_point)}


def plan_meta(
    plan: TilingPlan, time: ScheduleTime, loops: Sequence[RolledLoop], frames: Sequence[Frame],
    schedule: Schedule,
) -> dict[str, Any]:
    """What the schedule takes, for profiles and for the comparison with the clock;
    `searched`: by the search's estimate. Groups of a loop's rounds have what all rounds take."""
    runs, spans, terms = runs_of(loops), list(time.spans), list(time.terms)
    for g, twin in twins_together(loops).items():
        spans[twin] += runs[g] * time.spans[g]
        terms[twin] = _sum(terms[twin], time.terms[g], runs[g])
    for g, reader, spent in _early(schedule, frames) if loops else ():
        # the clock knows a load by the layer that it is for
        home, times = twins_together(loops).get(g, g), runs.get(g, 1)
        terms[home], terms[reader] = _sum(terms[home], spent, -times), _sum(terms[reader], spent, times)
    return {
        "groups": [
            {
                "nodes": list(g.nodes),
                "cycles": span,
                "bytes": t.bytes,
                "bound": g.costs.bound_cycles,
                "cores": g.cores[1],
                "strips": [list(c) for c in g.strips],
                "held": len(g.held),
                "sizes": dict(g.choice.sizes) if g.choice else {},
                "order": list(g.choice.order) if g.choice else [],
                "terms": _terms(t),
                "searched": _searched(g.costs),
            }
            for k, (g, t, span) in enumerate(zip(plan.groups, terms, spans, strict=True)) if k not in runs
        ],
        "cycles": time.cycles + cycles_of_rounds(time, loops, frames),
        "bytes": sum(t.bytes for k, t in enumerate(terms) if k not in runs),
        "searched": plan.cycles,
        "bound_cycles": plan.bounds.cycles,
        "bound_bytes": plan.bounds.bytes,
        "bound_compute": plan.bounds.compute,
        "bound_traffic": plan.bounds.traffic,
        "bound_chain": plan.bounds.chain,
        "bound_late": plan.bounds.late,
        "bound_alone": plan.bounds.alone,
        "roofline": plan.bounds.roofline,
    }


def _early(
    schedule: Schedule, frames: Sequence[Frame]
) -> Iterator[tuple[int, int, CycleBreakdown]]:
    """Loads of constants that the rounds of a loop make for layers behind it: the group in which each comes,
    the one that it is for, and what it takes."""
    groups = {n: g for g, frame in enumerate(frames) for n in frame.group.nodes}
    for job in (job for phase in schedule.phases for job in phase.jobs):
        if isinstance(job.what, ConstantShare) and (reader := groups[job.node]) != job.group:
            wide = frames[reader].topology.machine.memory.external_bandwidth
            yield job.group, reader, CycleBreakdown(
                set_up=job.cycles, bus=job.bytes / wide, bytes=job.bytes
            )


def _sum(one: CycleBreakdown, other: CycleBreakdown, times: int) -> CycleBreakdown:
    """One breakdown and so many times another."""
    added = {f.name: getattr(one, f.name) + times * getattr(other, f.name) for f in fields(CycleBreakdown)}
    return CycleBreakdown(**added)


def _searched(c: Costs) -> dict[str, float]:
    """The same by the sums that the search ranks candidates by."""
    return {
        "cycles": c.cycles,
        "array": c.tensor,
        "vector": c.vector,
        "set-up": c.load + c.store - c.bus,
        "bus": c.bus,
    }


def _terms(t: CycleBreakdown) -> dict[str, float]:
    """What jobs add up to, in cycles of the engine or bus that spends them; profiles
    set the clock's beside it."""
    return {"array": t.array, "vector": t.vector, "set-up": t.set_up, "bus": t.bus}


def port_meta(graph: Graph, value_id: str) -> dict[str, Any]:
    value = graph.values[value_id]
    return {
        "name": value_id,
        "shape": None if value.type.shape == UNRANKED else list(value.type.shape),
        "dtype": value.dtype,
        "quant": quant_meta(value.quant) if value.quant else None,
    }


def length_meta(
    graph: Graph, places: Mapping[str, tuple[int, int]], cleared: Collection[str]
) -> dict[str, Any]:
    """Inputs that say how many steps a run has: where DATA has their number, the axes of steps of ports, and
    values that are zeros before a run."""
    if not graph.lengths:
        return {}
    found = []
    for one in graph.lengths:
        axes, counts = dict(one.axes), dict(one.counts)
        named = {o: name for o in graph.outputs for name in (o, o.removesuffix(":f")) if name in axes}
        ports = {i: axes[i] for i in graph.inputs if i in axes} | {o: axes[n] for o, n in named.items()}
        strides = {o: [counts[n].stride, counts[n].more] for o, n in named.items() if n in counts}
        found.append({
            "input": one.name, "least": one.least, "most": one.most, "address": places[one.name][0],
            "axes": ports, **({"strides": strides} if strides else {}),
        })
    return {"lengths": found, "cleared": list(cleared)}


def values_meta(
    graph: Graph, data: DataStorage, views: Views, stored: Collection[str], written: Mapping[str, int]
) -> dict[str, Any]:
    """Where values lie. Of one that only local memory ever holds, others may have the bytes that it would."""
    return {
        value_id: {
            "address": data.address(value_id), "shape": list(value.type.shape), "dtype": value.dtype,
            "quant": quant_meta(value.quant), "node": written.get(value_id),
            "owner": views.root(value_id)[0],
        }
        for value_id, value in graph.values.items()
        if value.quant is not None and value.const is None and value_id in data and value_id in stored
    }


def node_meta(node: Node, macs: int, host: HostWork | None) -> dict[str, Any]:
    """`macs` are the NPU's; `host`: what the host does for the node, where it costs time."""
    names = {"name": node.name, "op": title(node), "origin": list(node.origin)}
    found: dict[str, Any] = {**names, "macs": macs, "outputs": list(node.outputs)}
    return found if host is None else {**found, "host": asdict(host)}
