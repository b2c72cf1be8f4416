"""Where each thing of a plan lies in local memory over time, and which constants may come early.

Constants come in as early as their bytes are free. Activations are placed first. Constants follow in the
order of their use, each where the bytes have been free the longest: over time they go round local memory
as in a ring, but for what activations take.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from math import prod
from typing import NamedTuple

import numpy as np

from npuflow.base.errors import FitError
from npuflow.schedule import tuned
from npuflow.schedule.allocate import Layout, Lifetime, aligned, check_layout, in_own_bytes, peak
from npuflow.schedule.arrange import Method, arrange
from npuflow.schedule.borders import kept_over
from npuflow.schedule.frame import Frame
from npuflow.schedule.groups import FusionGroup
from npuflow.schedule.kept import all_moments, lives_of_kept, moments_of
from npuflow.schedule.machine import Machine
from npuflow.schedule.staying import Name, Staying, candidates, chosen, with_staying
from npuflow.schedule.units import SlotUnit, units_of


def go_round(
    lives: Sequence[Lifetime], movable: Mapping[str, int], limit: int, align: int, method: Method = "greedy",
    longer: Sequence[Lifetime] | None = None,
) -> tuple[list[Lifetime], Layout] | None:
    """(lives, constants begun as early as they may; addresses), or None where constants
    find no room beside the rest. `longer`: lives by which the rest gets its addresses."""
    fixed = [v for v in lives if v.name not in movable]
    placed = arrange(fixed if longer is None else longer, align, method) if fixed else Layout({}, 0, 0)
    if placed.total > limit:
        return None
    addresses = dict(placed.addresses)
    ground = _Ground(
        _Lying(v.last, v.first, addresses[v.name], addresses[v.name] + aligned(v.size, align)) for v in fixed
    )
    found = {v.name: v for v in lives}
    for life in sorted((v for v in lives if v.name in movable), key=lambda v: v.first):
        own = ground.lay(life, aligned(life.size, align), movable[life.name], limit)
        if own is None:
            return None
        addresses[life.name], found[life.name] = own.low, replace(life, first=own.first)
    early = [found[v.name] for v in lives]
    return early, Layout(addresses, ground.high, peak(lives, align))


class _Lying(NamedTuple):
    """What lies between two addresses, from step `first` to step `last`."""

    last: int
    first: int
    low: int
    high: int


class _Ground:
    """Local memory in stretches, each free from some step on, for constants in the order of their use."""

    def __init__(self, fixed: Iterable[_Lying]) -> None:
        self.lying = list(fixed)                             # a heap of what is not through yet
        heapq.heapify(self.lying)
        self.high = max((v.high for v in self.lying), default=0)
        self.starts = np.array(sorted({0, *(v.high for v in self.lying)}), np.int64)
        self.cuts = np.array(sorted({0, *(a for v in self.lying for a in (v.low, v.high))}), np.int64)
        # by stretch, the step behind the last that is through
        self.through = np.zeros(len(self.cuts), np.int64)
        # the same, or the step behind `now` where something lies
        self.free, self.now = self.through, (-1, -1)

    def lay(self, life: Lifetime, size: int, least: int, limit: int) -> _Lying | None:
        """Where the bytes have been free the longest, since `least` or later; None
        where something lies everywhere."""
        self._come((life.first, life.last))
        starts = self.starts[: np.searchsorted(self.starts, limit - size, "right")]
        if not len(starts):
            return None
        ends = np.stack(
            [np.searchsorted(self.cuts, starts), np.searchsorted(self.cuts, starts + size)], axis=1
        )
        since = np.maximum(np.maximum.reduceat(np.append(self.free, 0), ends.ravel())[::2], least)
        at = int(since.argmin())                             # the first of equals is the lowest
        if since[at] > life.first:
            return None
        own = _Lying(life.last, int(since[at]), int(starts[at]), int(starts[at]) + size)
        heapq.heappush(self.lying, own)
        self._cut(own.low)
        self._cut(own.high)
        self.free[self._stretches(own)] = life.first + 1
        self.high = max(self.high, own.high)
        place = int(np.searchsorted(self.starts, own.high))
        if place == len(self.starts) or self.starts[place] != own.high:
            self.starts = np.insert(self.starts, place, own.high)
        return own

    def _come(self, now: tuple[int, int]) -> None:
        """On to the next steps."""
        if now == self.now:
            return
        self.now = first, last = now
        while self.lying and self.lying[0].last < first:
            gone = heapq.heappop(self.lying)
            own = self._stretches(gone)
            self.through[own] = np.maximum(self.through[own], gone.last + 1)
        self.free = self.through.copy()
        for other in self.lying:
            if other.first <= last:
                self.free[self._stretches(other)] = first + 1

    def _stretches(self, lying: _Lying) -> slice:
        low, high = np.searchsorted(self.cuts, (lying.low, lying.high))
        return slice(int(low), int(high))

    def _cut(self, address: int) -> None:
        """A stretch begins at an address."""
        place = int(np.searchsorted(self.cuts, address))
        if place == len(self.cuts) or self.cuts[place] != address:
            self.cuts = np.insert(self.cuts, place, address)
            self.through = np.insert(self.through, place, self.through[place - 1])
            self.free = np.insert(self.free, place, self.free[place - 1])


LOOK = 1 << 30                            # parts ahead of its own that a constant may come to local memory


@dataclass(frozen=True)
class RoundLoads:
    """Slots of constants that the rounds of a loop load, a share in each, and the loop's last step what is
    left. `slots`: one behind the other in local memory, with their bytes; `units`: by slots' name the unit
    that they are loaded for; `share`: bytes of a round; `groups`: behind which the loads come, of both rounds
    that a plan has and of the last step; `first`, `last`: from when to when the bytes are theirs."""

    slots: Mapping[str, int]
    units: Mapping[str, Name]
    share: int
    rounds: int
    groups: tuple[int, int, int]
    first: int
    last: int

    @property
    def name(self) -> str:
        """Of all bytes."""
        return f"rounds.{self.groups[0]}/0"

    def parts_at(self, address: int) -> dict[str, int]:
        """Addresses of the slots, from that of the first one."""
        ends = list(accumulate(self.slots.values(), initial=address))
        return dict(zip(self.slots, ends[:-1], strict=True))


@dataclass(frozen=True)
class Local:
    """Local memory over the whole program: lives by item, and their addresses."""

    lives: tuple[Lifetime, ...]
    layout: Layout
    shared: Mapping[str, str] = field(default_factory=dict)
    """Units whose constants stay in local memory, by the name of the slots that they share; values that lie
    where others did."""
    round_loads: tuple[RoundLoads, ...] = ()
    cutting: Collection[int] = ()
    """Groups whose loads of constants may be cut where parts of their bytes are free before others."""
    reordered: bool = False
    """Whether each queue takes the first job that is ready, instead of the next one of the program."""

    def slots(self, name: str, count: int) -> list[int]:
        return [self.layout.addresses[f"{self.shared.get(name, name)}/{k}"] for k in range(count)]

    @property
    def total(self) -> int:
        return self.layout.total


def lay_local(
    frames: Sequence[Frame], kept: Collection[str], machine: Machine, look: int = LOOK,
    method: Method = "greedy", ahead: int = 0,
) -> Local:
    """Addresses for all that local memory holds at any time; constants come early where there is room, and
    then buffers lie apart from those of `ahead` parts behind."""
    lives, movable = lives_of(frames, kept, machine)
    limit, align = machine.memory.local_bytes, machine.memory.slot_align
    over = {f"kept.{v}": f"kept.{first}" for v, first in kept_over(frames).items()}
    if look and (staying := chosen(candidates(frames, all_moments(frames)), lives, limit, align)):
        found = laid(*with_staying(lives, movable, staying), limit, align, look, method, ahead)
        if found is not None:
            return replace(found, shared=shared_slots(staying) | over)
    base = arrange(lives, align, method)
    if base.total > limit:
        raise FitError(
            f"{base.total} bytes of local memory are needed at once, there are {limit}: "
            f"{base.total - limit} too few",
            because=f"{base.bound} bytes are live at once in the worst step",
            code="NF-FIT-004",
        )
    found = laid(lives, movable, limit, align, look, method, ahead)
    assert found is not None
    return replace(found, shared=over)


def shared_slots(staying: Sequence[Staying]) -> dict[str, str]:
    """By unit the name of the slots that it shares."""
    return {f"{g}.{p}.{u}": one.name for one in staying for g, p, u in one.units}


def laid(
    lives: Sequence[Lifetime], movable: Mapping[str, int], limit: int, align: int, look: int, method: Method,
    ahead: int = 0,
) -> Local | None:
    """Addresses, with constants as early as there is room; None where the lives find none. `ahead`: as in
    `lay_local`."""
    base = arrange(lives, align, method)
    if base.total > limit:
        return None
    best, early = base, list(lives)
    ways = in_own_bytes(lives, movable, ahead, limit, align) if look else ()
    rings = (go_round(lives, movable, limit, align, method, way) for way in ways)
    ring = next((found for found in rings if found is not None), None)
    if ring is not None:
        early, best = ring
    for share in tuned.EARLY_SHARES if look and ring is None else ():
        longer = _early(lives, movable, int(limit * share), align, look)
        layout = arrange(longer, align, method)
        if layout.total <= limit:
            best, early = layout, longer
            break
    check_layout(early, best.addresses, limit, align)
    return Local(tuple(early), best)


def widened(frames: Sequence[Frame], kept: Collection[str], machine: Machine) -> list[FusionGroup]:
    """Constants get a slot for every tile where there is room: they come in early,
    and none comes in twice."""
    lives, _ = lives_of(frames, kept, machine)
    align = machine.memory.slot_align
    use = [0] * (max((v.last for v in lives), default=0) + 1)
    for v in lives:
        for t in range(v.first, v.last + 1):
            use[t] += aligned(v.size, align)
    found, now = [], 0
    for frame in frames:
        if frame.moves:
            found.append(frame.group)
            now += 1
            continue
        parts, moments = list(frame.group.parts), moments_of(frame, now)
        for p, (layer, part) in enumerate(zip(frame.layers, parts, strict=True)):
            assert part.choice is not None
            sizes = dict(part.choice.sizes)
            slots = tuple(
                prod(-(-layer.space.axis(a).size // sizes[a]) for a in s.axes) if s.home == "const" else n
                for s, n in zip(layer.streams, part.choice.slots, strict=True)
            )
            if slots == part.choice.slots:
                continue
            wider = replace(part.choice, slots=slots)
            more, less = (
                sum(aligned(u.size, align) * u.slots for u in units_of(layer, c, frame.members[p].layer))
                for c in (wider, part.choice)
            )
            if use[moments[p]] + more - less <= tuned.CONSTANT_ROOM * machine.memory.local_bytes:
                use[moments[p]] += more - less
                parts[p] = replace(
                    part, choice=replace(wider, local_bytes=part.choice.local_bytes + more - less)
                )
        found.append(replace(frame.group, parts=tuple(parts)))
        now = moments[-1] + 1
    return found


def _early(
    lives: Sequence[Lifetime], movable: Mapping[str, int], cap: int, align: int, look: int
) -> list[Lifetime]:
    """Constants live longer to the front, nearest first, as long as the sum of all
    lives stays under the cap."""
    use = [0] * (max((v.last for v in lives), default=0) + 1)
    for v in lives:
        for t in range(v.first, v.last + 1):
            use[t] += aligned(v.size, align)
    found = {v.name: v for v in lives}
    for name in sorted(movable, key=lambda n: (found[n].first, n)):
        life = found[name]
        first, size = life.first, aligned(life.size, align)
        while first > max(movable[name], life.first - look) and use[first - 1] + size <= cap:
            first -= 1
            use[first] += size
        found[name] = replace(life, first=first)
    return [found[v.name] for v in lives]


def lives_of(
    frames: Sequence[Frame], kept: Collection[str], machine: Machine
) -> tuple[list[Lifetime], dict[str, int]]:
    """(lives, constants that may come earlier -> the first moment of their segment)."""
    lives: list[Lifetime] = []
    movable: dict[str, int] = {}
    now, align, segment, start = 0, machine.memory.slot_align, -1, 0
    for g, frame in enumerate(frames):
        own = frame.topology.segment[frame.group.nodes[0]]
        if own != segment:
            segment, start = own, now
        if frame.moves:
            lives += [
                Lifetime(f"{g}.move/{k}", frame.topology.staging(frame.group.nodes[0], machine), now, now)
                for k in range(2)
            ]
            now += 1
            continue
        at = moments_of(frame, now)
        lives += _held(frame, g, at, kept)
        for name, size, moment, fixed in _parts(frame, g, at, align):
            lives.append(Lifetime(name, size, moment, moment))
            if not fixed:
                movable[name] = start
        now = at[-1] + 1
    return [*lives, *lives_of_kept(frames, kept, machine.compute.cores)], movable


def held_slots(g: int, value: str) -> str:
    """The name of the slots of a value that group `g` holds. A model may name it as a slot is: "0.2"."""
    return f"{g}.held.{value}"


def _held(frame: Frame, g: int, at: Sequence[int], kept: Collection[str]) -> Iterator[Lifetime]:
    for value, slots in frame.slots.items():
        if value in kept or value not in frame.holds or value in frame.joins:
            continue
        uses = [at[p] for p in frame.users(value)]
        made = any(value in m.outputs for m in frame.members)
        for k in range(slots):
            yield Lifetime(
                f"{held_slots(g, value)}/{k}", max(1, frame.holds[value]),
                min(uses) if made else at[0], max(uses),
            )


def _parts(frame: Frame, g: int, at: Sequence[int], align: int) -> Iterator[tuple[str, int, int, bool]]:
    """(name, bytes, moment, whether it cannot come early) of every slot; turns share
    one scratch area for sums."""
    turns = len(frame.strips[0]) > 1
    scratch = 0
    for p, units in enumerate(frame.units):
        own = 0
        for u, unit in enumerate(units):
            if turns and unit.home in ("acc", "inner"):
                own += aligned(unit.size, align) * unit.slots
                continue
            for k in range(unit.slots):
                yield f"{g}.{p}.{u}/{k}", max(1, unit.size), at[p], unit.home != "const"
        scratch = max(scratch, own)
    if scratch:
        yield f"{g}.scratch/0", scratch, at[0], True


def scratch_offsets(units: Sequence[SlotUnit], align: int) -> list[int]:
    """Where the units of a part that share the scratch area begin in it."""
    found, at = [], 0
    for unit in units:
        found.append(at)
        if unit.home in ("acc", "inner"):
            at += aligned(unit.size, align) * unit.slots
    return found
