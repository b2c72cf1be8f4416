"""A plan's cycles in closed form: what every tile waits for on which queue, from group and tile parameters alone.

The search ranks thousands of candidates by the sums of tiling.cost; the plan that it chooses comes through here once.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from npuflow.engine.closed.core import Core, Places, Stage, Terms
from npuflow.engine.closed.round import Round
from npuflow.engine.tiling.borders import loaded, spreads
from npuflow.engine.tiling.cost import Machine
from npuflow.engine.tiling.frame import Frame
from npuflow.engine.tiling.local import Local


@dataclass(frozen=True)
class Rehearsal:
    """Cycles of the whole plan; per group its terms (of the core that spends most; the bus is one for all) and its end."""

    cycles: float
    terms: tuple[Terms, ...]
    ends: tuple[float, ...]

    @property
    def spans(self) -> list[float]:
        """Cycles from the end of what came before to a group's own end, by the groups' order in the plan."""
        found, before = [], 0.0
        for end in self.ends:
            found.append(max(0.0, end - before))
            before = max(before, end)
        return found


def rehearse(frames: Sequence[Frame], local: Local, machine: Machine, places: Places) -> Rehearsal:
    """Group after group as the segments run them. `frames`: those of a plan, by which `local` numbers its slots."""
    stage = Stage(machine, local, places, len(frames))
    kept = frames[0].kept if frames else ()
    stage.spread = spreads(frames, kept, machine.compute.cores)
    cores = [Core(stage, core) for core in range(machine.compute.cores)]
    busy: set[int] = set()
    fresh: set[str] = set()
    segment, jobs = -1, [range(0)] * len(frames)
    for number, frame in _in_turn(frames):
        if frame.topology.segment[frame.group.nodes[0]] != segment:
            stage.share()
            stage.table.run()                               # the host comes between
            segment, busy, fresh = frame.topology.segment[frame.group.nodes[0]], set(), set()
        first, used = len(stage.table.cycles), set(range(frame.group.cores[1]))
        used |= {c.index for c in cores if loaded(stage.spread, number, c.index)}
        stage.number = number
        if busy and len(busy | used) > 1:
            _meet(stage, cores, fresh)
            busy, fresh = set(), set()
        for core in (cores[c] for c in sorted(used)):
            before, turn = len(stage.table.cycles), Round(core, frame, number)
            turn.fetch()
            if core.index < frame.group.cores[1]:
                turn.run()
            busy |= {core.index} if len(stage.table.cycles) > before else set()
        made = [o for n in frame.group.nodes for o in frame.topology.graph.nodes[n].outputs]
        fresh.update(o for o in made if o in places.of)
        fresh.update(b.name for o in made if o in stage.spread for b in stage.spread[o].borders)
        jobs[number] = range(first, len(stage.table.cycles))
    stage.share()
    cycles = stage.table.run()
    ends = tuple(max((stage.table.end[j] for j in mine), default=0.0) for mine in jobs)
    return Rehearsal(cycles, tuple(map(_together, stage.terms)), ends)


def _in_turn(frames: Sequence[Frame]) -> list[tuple[int, Frame]]:
    place = {node: at for at, node in enumerate(frames[0].topology.order)} if frames else {}
    return sorted(enumerate(frames), key=lambda f: place[f[1].group.nodes[0]])


def _meet(stage: Stage, cores: Sequence[Core], fresh: Collection[str]) -> None:
    """A barrier of all cores, in their queues of stores; what they stored before is seen behind it."""
    stage.share()
    come = [stage.table.add(c.stores, 0.0, [c.loaded] if c.loaded >= 0 else ()) for c in cores]
    for core in cores:
        core.spend(set_up=stage.machine.compute.command_cycles)
        job = stage.table.add(core.stores, stage.machine.compute.command_cycles, come)
        core.shared.update((stage.owner(v), job) for v in fresh)


def _together(cores: Sequence[Terms]) -> Terms:
    array, vector, set_up = (max(getattr(c, name) for c in cores) for name in ("array", "vector", "set_up"))
    return Terms(array, vector, set_up, sum(c.bus for c in cores), sum(c.bytes for c in cores))
