"""Constants of what follows a loop, which its rounds load: a share in each.

Loads of a queue run in order: one in front of a loop's loads would hold these up, and one behind them comes
when the loop ends. Each round has time for a share, so that the room that a loop leaves in local memory is
full when it ends.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import lcm

from npuflow.ir.graph import ROUND, Roll
from npuflow.schedule.allocate import Lifetime, aligned, peak
from npuflow.schedule.arrange import Method
from npuflow.schedule.cores import Core
from npuflow.schedule.frame import Frame
from npuflow.schedule.jobs import Constants, ConstantShare
from npuflow.schedule.local import LOOK, Local, RoundLoads, laid
from npuflow.schedule.machine import Machine
from npuflow.schedule.parts import UnitSlots, tiles_of
from npuflow.schedule.staying import Name, holds_all

TRIED = (1.0, 0.75, 0.5)                  # of the constants that there are bytes for, where they lie badly
TIME = 0.5                                # of a round's computation that its share may take on the bus


@dataclass(frozen=True)
class LoopTurns:
    """The groups behind which a loop's loads of constants come: the last of each of the two rounds that a
    plan has, and of the last step. `begin`, `end`: when the rounds begin, and when the last step is over,
    behind which the last loads come; `until`: constants that are used from then on are another loop's;
    `most`: bytes of a round."""

    groups: tuple[int, int, int]
    rounds: int
    begin: int
    end: int
    until: int
    most: int


@dataclass(frozen=True)
class Loadable:
    """Slots of constants, by their name. `units`: the unit that each is loaded for; `shared`: slots of
    several units."""

    units: Mapping[str, Name]
    shared: Collection[str]

    def of(self, life: Lifetime) -> str:
        return life.name.rpartition("/")[0]


def loadable(frames: Sequence[Frame], shared: Mapping[str, str], machine: Machine) -> Loadable:
    """Slots that are loaded once. `shared`: slots that units share, by unit."""
    found = dict[str, Name]()
    for g, frame in enumerate(frames if machine.compute.cores == 1 else ()):
        if frame.moves or len(frame.strips[0]) > 1:
            continue
        for p, (units, member) in enumerate(zip(frame.units, frame.members, strict=True)):
            for u, unit in enumerate(units):
                if holds_all(frame.group, p, member, unit):
                    name = f"{g}.{p}.{u}"
                    found.setdefault(shared.get(name, name), (g, p, u))
    return Loadable(found, frozenset(shared.values()))


def turns_of(
    frames: Sequence[Frame], steps: Sequence[tuple[Roll, Sequence[Sequence[int]]]],
    moments: Sequence[Sequence[int]], machine: Machine,
) -> Iterator[LoopTurns]:
    """Of loops of a constant number of steps. `steps`: each with the groups of its steps."""
    segment = [frame.topology.segment[frame.group.nodes[0]] for frame in frames]
    begins = [min(moments[g][0] for g in own[roll.lead]) for roll, own in steps if own[roll.lead]]
    for roll, own in steps:
        rounds = [[g for one in own[at : at + ROUND] for g in one] for at in (roll.lead, roll.lead + ROUND)]
        if roll.counted or not all((*rounds, own[-1])):
            continue
        groups = max(rounds[0]), max(rounds[1]), max(own[-1])
        end = max(moments[g][-1] for g in own[-1]) + 1
        other = (moments[g][0] for g in range(groups[2], len(frames)) if segment[g] != segment[groups[2]])
        until = min([*(at for at in begins if at >= end), *other], default=moments[-1][-1] + 1)
        costs = [frames[g].group.costs for g in rounds[0]]
        free = TIME * sum(max(c.tensor, c.vector) for c in costs) * machine.memory.external_bandwidth
        yield LoopTurns(groups, roll.rounds, min(moments[g][0] for g in rounds[0]), end, until, int(free))


def round_loads(
    lives: Sequence[Lifetime], known: Loadable, turns: LoopTurns, room: tuple[int, int], burst: int
) -> Iterator[tuple[RoundLoads, str]]:
    """Constants behind a loop that there are bytes for in all of its rounds, the first ones first; then fewer
    of them. With the largest of those that come behind them: laid as activations are, in front of all other
    constants, it comes to lie where they do, and is loaded part by part as each has been used. `room`: bytes
    of local memory, and how slots are aligned."""
    late = [v for v in lives if turns.end <= v.first < turns.until and known.of(v) in known.units]
    late.sort(key=lambda v: (v.first, known.units[known.of(v)], int(v.name.rpartition("/")[2])))
    limit, align = room

    def made(count: int) -> RoundLoads:
        return _loads(_whole(late, count, known), known, turns, lcm(align, burst), burst)

    def over(count: int) -> bool:
        one = made(count)
        return one.share > turns.most or peak(with_loads(lives, [one]), align) > limit

    most = bisect_right(range(len(late) + 1), False, key=over) - 1
    for part in TRIED:
        one = made(int(part * most))
        if one.share:
            behind = [v for v in late if v.first > one.last]
            if behind:
                yield one, max(behind, key=lambda v: v.size).name
            yield one, ""


def _whole(late: Sequence[Lifetime], count: int, known: Loadable) -> Sequence[Lifetime]:
    """The first ones, but of slots that units share all or none."""
    if count and count < len(late) and (name := known.of(late[count])) in known.shared:
        while count and known.of(late[count - 1]) == name:
            count -= 1
    return late[:count]


def _loads(
    late: Sequence[Lifetime], known: Loadable, turns: LoopTurns, align: int, burst: int
) -> RoundLoads:
    slots = {v.name: aligned(v.size, align) for v in late}
    units = {known.of(v): known.units[known.of(v)] for v in late}
    share = sum(slots.values()) // turns.rounds // burst * burst
    last = max((v.last for v in late), default=turns.begin)
    return RoundLoads(slots, units, share, turns.rounds, turns.groups, turns.begin, last)


def with_loads(lives: Sequence[Lifetime], found: Sequence[RoundLoads]) -> list[Lifetime]:
    """Lives where slots that a loop's rounds load lie one behind the other, from its first round on."""
    gone = {name for one in found for name in one.slots}
    return [
        *(v for v in lives if v.name not in gone),
        *(Lifetime(one.name, sum(one.slots.values()), one.first, one.last) for one in found),
    ]


def with_round_loads(
    local: Local, lives: tuple[Sequence[Lifetime], Mapping[str, int]], frames: Sequence[Frame],
    turns: LoopTurns, machine: Machine, method: Method,
) -> tuple[Local, Sequence[Lifetime]]:
    """Addresses and lives where a loop's rounds load constants of what follows it, as far as there is room.
    `lives`: of all, and from when on constants may come."""
    (own, free), memory, known = lives, machine.memory, loadable(frames, local.shared, machine)
    room = memory.local_bytes, memory.slot_align
    for one, then in round_loads(own, known, turns, room, memory.burst):
        longer = with_loads(own, [one])
        rest = {v.name: free[v.name] for v in longer if v.name in free and v.name != then}
        found = laid(longer, rest, *room, LOOK, method)
        if found is not None:
            every = (*local.round_loads, one)
            places = {n: a for k in every for n, a in k.parts_at(found.layout.addresses[k.name]).items()}
            layout = replace(found.layout, addresses={**found.layout.addresses, **places})
            return replace(found, layout=layout, shared=local.shared, round_loads=every), longer
    return local, own


def load_shares(core: Core, frames: Sequence[Frame], group: int) -> None:
    """The loads that come behind a group."""
    for one in core.local.round_loads:
        if group not in one.groups:
            continue
        turn, whole = one.groups.index(group), sum(one.slots.values())
        if not turn:
            _open(core, frames, one)
        first = one.share * (turn if turn < ROUND else one.rounds)
        size = one.share if turn < ROUND else whole - first
        held = [core.early.get(name) or core.staying[name] for name in one.units]
        content = tuple(
            Constants(frames[g].members[p], frames[g].units[p][u].refs, boxes)
            for (g, p, u), (_, own) in zip(one.units.values(), held, strict=True)
            for boxes in own if boxes is not None
        )
        member, refs, _ = content[0]
        what = ConstantShare(content, tuple(one.slots.values()), first)
        places = [(slot.now, None) for slots, _ in held for slot in slots]
        core.load_share(size, places, what, member.nodes[refs[0].member])


def _open(core: Core, frames: Sequence[Frame], one: RoundLoads) -> None:
    """The slots that are loaded, and what they will hold."""
    for name, (g, p, u) in one.units.items():
        count = sum(slot.rpartition("/")[0] == name for slot in one.slots)
        unit, choice = UnitSlots(frames[g].units[p][u]), frames[g].group.parts[p].choice
        window = frames[g].strips[0][0].windows[p]
        assert choice is not None and window is not None
        found = list(dict.fromkeys(unit.found(tile) for tile in tiles_of(window, choice)))[:count]
        slots = [core.open(at, max(1, unit.unit.size)) for at in core.local.slots(name, count)]
        for slot, (_, size) in zip(slots, found, strict=True):
            slot.renew(size, ((0, size),), 1)
        held = core.staying if name in core.local.shared.values() else core.early
        held[name] = slots, [boxes for boxes, _ in found]
