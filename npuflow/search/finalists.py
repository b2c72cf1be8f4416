"""Finished plans with the time of their schedules: the search's estimate ranks groups, the
schedule time picks the plan."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from math import prod

from npuflow.base.errors import TargetError
from npuflow.schedule import tuned
from npuflow.schedule.apart import cycles_of_rounds
from npuflow.schedule.arrange import Method
from npuflow.schedule.borders import spreads
from npuflow.schedule.build import schedule_of
from npuflow.schedule.frame import Frame, Topology
from npuflow.schedule.groups import FusionGroup
from npuflow.schedule.jobs import Places
from npuflow.schedule.local import Local
from npuflow.schedule.machine import Machine
from npuflow.schedule.nested import runs_of
from npuflow.schedule.rolled import RolledLoop, alike, place_local, read_whole
from npuflow.schedule.time import ScheduleTime, time_of
from npuflow.search.coarse import end_of
from npuflow.search.overlap import Overlap


@dataclass(frozen=True)
class Finalist:
    """A plan that could be taken: its groups, the values that stay in local memory between
    them, and how it was found."""

    groups: tuple[FusionGroup, ...]
    kept: tuple[str, ...] = ()
    origin: str = ""
    cycles: float = 0.0                   # by the replay
    moved: float = 0.0                    # bytes of external traffic, by the replay
    starved: frozenset[int] = frozenset()   # groups that wait for the bus in it
    replayed: bool = True                 # otherwise its cycles are the search's sums
    mended: bool = False                  # whether it is not what its costs promise, but what fits of that
    cut: bool = False                     # whether it reads all of a cache at any index: see whole_rows.py
    early: bool = False                   # whether a loop's rounds load constants of what follows it
    ahead: int = 0                        # above 0: jobs are reordered, buffers of so many parts lie apart
    in_turn: float = 0.0                  # cycles in which array and vector unit wait for each other, at most


def worth(finalist: Finalist, machine: Machine) -> float:
    """What the search has least of, of a plan whose cycles are known."""
    return machine.worth(finalist.cycles, finalist.moved or sum(g.costs.bytes for g in finalist.groups))


def scheduled(
    finalist: Finalist, topology: Topology, machine: Machine, allocation: Method, replay: bool = True
) -> Finalist | None:
    """The plan with its cycles; None where local memory cannot hold it. Without a replay
    they are the search's sums."""
    machine = _as_generated(machine)
    try:
        frames, local, loops = _placed(finalist, topology, machine, allocation)
    except TargetError:
        return None
    if not replay:
        cycles = sum(g.costs.cycles for g in finalist.groups)
        cycles += sum((n - 1) * finalist.groups[g].costs.cycles for g, n in runs_of(loops).items())
        return replace(finalist, cycles=cycles, moved=0.0, replayed=False)
    schedule = schedule_of(frames, local, machine, places(topology, frames))
    if not alike(schedule, loops):
        return None
    found = time_of(schedule, machine, loops)
    works = [max(t.array, t.vector) for t in found.terms]
    starved = frozenset(
        g for g, (span, work) in enumerate(zip(found.spans, works, strict=True))
        if span > tuned.STARVED * work + tuned.STARVED_CYCLES
    )
    moved = sum(t.bytes for t in found.terms)
    moved += sum((n - 1) * found.terms[g].bytes for g, n in runs_of(loops).items())
    cycles = found.cycles + cycles_of_rounds(found, loops, frames)
    in_turn = sum(
        max(0.0, min(t.array + t.vector, span) - max(t.array, t.vector, t.bus))
        for span, t in zip(found.spans, found.terms, strict=True)
    )
    return replace(finalist, cycles=cycles, moved=moved, starved=starved, in_turn=in_turn)


def time_by_group(
    finalist: Finalist, topology: Topology, machine: Machine, allocation: Method
) -> ScheduleTime:
    """The schedule time of a plan, group by group. A TargetError where local memory cannot hold it."""
    machine = _as_generated(machine)
    frames, local, loops = _placed(finalist, topology, machine, allocation)
    return time_of(schedule_of(frames, local, machine, places(topology, frames)), machine, loops)


def _as_generated(machine: Machine) -> Machine:
    """As the code generator sees it: places say where values lie."""
    return replace(machine, inside=False)


def _placed(
    finalist: Finalist, topology: Topology, machine: Machine, allocation: Method
) -> tuple[list[Frame], Local, tuple[RolledLoop, ...]]:
    frames = [Frame(topology, g, frozenset(finalist.kept)) for g in finalist.groups]
    local, loops = place_local(
        frames, finalist.kept, machine, allocation, finalist.early, finalist.ahead
    )
    return frames, local, loops


def overlapping(
    finalist: Finalist, topology: Topology, machine: Machine, fixed: Collection[tuple[int, ...]] = ()
) -> Finalist:
    """The plan with tiles that overlap better from part to part. `fixed`: nodes of parts
    whose tiles stay as they are."""
    frames = [Frame(topology, g, frozenset(finalist.kept)) for g in finalist.groups]
    spread, overlap = spreads(frames, finalist.kept, machine.compute.cores), Overlap(machine)
    pinned = {g for g, frame in enumerate(frames) if any(p.nodes in fixed for p in frame.group.parts)}
    groups = tuple(
        overlap.better(frame, [b for s in spread.values() if s.reader == g for b in s.borders])
        if g not in finalist.starved and g not in pinned else frame.group for g, frame in enumerate(frames)
    )
    return replace(finalist, groups=groups, origin=f"{finalist.origin}, overlapping")


def places(topology: Topology, frames: Sequence[Frame]) -> Places:
    """Values in external memory, each where it lies in the bytes that it shares with others."""
    gone = {
        o
        for frame in frames
        if not frame.moves
        for n in frame.group.nodes
        for o in topology.graph.nodes[n].outputs
        if o and (o not in frame.results or not topology.wanted_in_data(o, frame.kept))
    }
    views = topology.views
    cuts = {v: (0, views.bytes(root)) for v, root in read_whole(topology.graph, views).items()}
    return Places({v: views.root(v) for v in topology.graph.values if v not in gone}, views.saved, cuts)


def least(finalist: Finalist, machine: Machine) -> float:
    """Cycles that the plan cannot beat, by what each of its engines has to do."""
    costs = [g.costs for g in finalist.groups]
    bus = sum(c.bytes for c in costs) / machine.memory.external_bandwidth
    return max(bus, sum(c.tensor for c in costs), sum(c.vector for c in costs))


def hopeless(finalist: Finalist, machine: Machine, best: Finalist) -> bool:
    """Whether the plan cannot be the faster one, or is so much slower by the search's sums
    that a replay would not change the choice. Never where bytes count, too."""
    if machine.byte_cost:
        return False
    pieces = [c for g in finalist.groups for c in g.pieces]
    behind = end_of(pieces, tuned.CONSTANT_ROOM * machine.memory.local_bytes)
    return max(least(finalist, machine), behind / tuned.HARDLY_BELOW) >= best.cycles


def rounds(finalist: Finalist, topology: Topology) -> int:
    """Tiles of all parts in all strips, about: what a replay has to go through."""
    total = 0
    for group in finalist.groups:
        turns = prod(n for _, n in group.strips) * group.cores[1]
        for part in group.parts:
            sizes = dict(part.choice.sizes) if part.choice is not None else {}
            axes = topology.space(part.nodes[0]).axes if part.choice is not None else ()
            total += max(turns, prod(-(-a.size // sizes[a.name]) for a in axes if a.name in sizes))
    return total
