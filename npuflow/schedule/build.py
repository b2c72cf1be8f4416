"""Walks a plan once: group by group on every core, to jobs in program order.

Loads of the same bytes by several cores are made together, in one order that agrees with each core's own.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from math import ceil

from npuflow.ir.space import Box, elements
from npuflow.schedule import tuned
from npuflow.schedule.allocate import aligned
from npuflow.schedule.apart import cores_together, together
from npuflow.schedule.borders import loaded, spreads, stored
from npuflow.schedule.cores import Core, External, Slot
from npuflow.schedule.frame import Frame
from npuflow.schedule.geometry import Member, RollingBuffer, Spread
from npuflow.schedule.jobs import Barrier, BorderCopy, ConstantShare, CopyRows, Job, Phase, Places, Schedule
from npuflow.schedule.joined import shown_in, whole_place
from npuflow.schedule.local import Local, held_slots, scratch_offsets
from npuflow.schedule.machine import Machine
from npuflow.schedule.model import Ref
from npuflow.schedule.movers import move
from npuflow.schedule.parts import CorePart, UnitSlots
from npuflow.schedule.reorder import reordered
from npuflow.schedule.round_loads import load_shares

Meeting = list[tuple[int, int]]           # (core, index in its sequence) of one load


def meetings(sequences: Sequence[Sequence[Hashable]]) -> list[Meeting]:
    """Every load of every core once, alone or together with others, in an order that respects all sequences.

    A load is shared by all cores that want it soon where each can come to it next; where their orders
    contradict each other, by those that can. No core then waits for one that waits for it. A core that wants
    it much later loads it alone: rows at the border of two cores' parts are the first of one and the last of
    the other, which would wait for each other's whole work.
    """
    at = [0] * len(sequences)
    found: list[Meeting] = []
    while open_ := [c for c, s in enumerate(sequences) if at[c] < len(s)]:
        heads: dict[Hashable, list[int]] = {}
        for core in open_:
            heads.setdefault(sequences[core][at[core]], []).append(core)
        agreed = [
            key for key, cores in heads.items()
            if all(c in cores or key not in sequences[c][at[c] : at[c] + tuned.MEETING_AHEAD] for c in open_)
        ]
        if agreed:                        # the core that is least far: all go on at one pace
            key = min(agreed, key=lambda k: min(at[c] for c in heads[k]))
        else:
            key = max(heads, key=lambda k: len(heads[k]))
        found.append([(core, at[core]) for core in heads[key]])
        for core in heads[key]:
            at[core] += 1
    return found


def schedule_of(frames: Sequence[Frame], local: Local, machine: Machine, places: Places) -> Schedule:
    """All jobs of a plan's groups. `frames`: by which `local` numbers its slots."""
    kept, external = frames[0].kept if frames else (), External(machine, places)
    spread = spreads(frames, kept, machine.compute.cores)
    cores = [Core(c, machine, local, external) for c in range(machine.compute.cores)]
    phases: list[Phase] = []
    busy: set[int] = set()                    # cores that used external memory since they last met
    fresh: dict[str, str] = {}                # values stored since then, and whose bytes they have
    beside, before = cores_together(frames), None
    for number, frame in in_turn(frames):
        segment, nodes = frame.topology.segment[frame.group.nodes[0]], frame.group.nodes
        used = set(frame.cores) | {c.index for c in cores if loaded(spread, number, c.index)}
        own = together(frame)
        meeting = used | beside[own] if own is not None else used
        if not phases or phases[-1].segment != segment:     # the host comes between
            phases.append(Phase(segment, None, []))
            busy, fresh = set(), {}
        elif busy and len(busy | meeting) > 1 and (own is None or own != before):
            phases.append(Phase(segment, Barrier(number, nodes[0], fresh), []))
            busy, fresh = set(), {}
        jobs, before = phases[-1].jobs, own
        for core in (cores[c] for c in sorted(used)):
            begin, core.jobs, core.group, core.now = len(jobs), jobs, number, {}
            core.cutting = number in local.cutting
            on_core = GroupOnCore(core, frame, spread)
            on_core.fetch()
            if core.index in frame.cores:
                on_core.run()
                jobs[begin:] = constants_first(jobs[begin:], frame)
            load_shares(core, frames, number)
            busy |= {core.index} if len(jobs) > begin else set()
        made = [o for n in nodes for o in frame.topology.graph.nodes[n].outputs]
        fresh.update({o: places.owner(o) for o in made if o in places.of})
        borders = [b.name for o in made if o in spread for b in spread[o].borders]
        fresh.update({name: places.owner(name) for name in borders})
    for phase in phases if local.reordered else ():
        phase.jobs = reordered(phase.jobs, machine)
    for phase in phases if machine.dma.multicast else ():
        phase.shared = _shared(phase.jobs, frames, machine.compute.cores)
    return Schedule(phases, len(frames), places.whole)


def constants_first(jobs: Sequence[Job], frame: Frame) -> list[Job]:
    """The jobs of a group with loads of parts of constants in front of all that use other bytes: values that
    come before them may wait for bytes that are free later. Those of the last product come as they would: the
    first one should not wait for them."""
    products = [m.nodes for m in frame.members if m.layer.mac is not None] if not frame.moves else []
    layers = {n for nodes in (products[:-1] or products) for n in nodes}
    early, rest, used = list[Job](), list[Job](), dict[tuple[int, int], None]()
    for job in jobs:
        spans = [(a.low, a.high) for a, _ in (*job.reads, *job.writes)]
        share = type(job.what) is ConstantShare and job.node in layers
        if share and all(b <= c or d <= a for a, b in spans for c, d in used):
            early.append(job)
            continue
        rest.append(job)
        used.update(dict.fromkeys(spans))
    return [*early, *rest]


def in_turn(frames: Sequence[Frame]) -> list[tuple[int, Frame]]:
    """Groups, with their numbers in the plan, in the order in which they run."""
    return sorted(enumerate(frames), key=lambda f: f[1].topology.place[f[1].group.nodes[0]])


def _shared(jobs: Sequence[Job], frames: Sequence[Frame], cores: int) -> list[list[int]]:
    """Loads that several cores make alike, and so together. Those of loops that run at the same time do not
    wait for each other."""
    loads: list[list[int]] = [[] for _ in range(cores)]
    for n, job in enumerate(jobs):
        if job.key is not None and together(frames[job.group]) is None:
            loads[job.core].append(n)
    found = meetings([[(jobs[n].queue, jobs[n].key) for n in own] for own in loads])
    return [[loads[core][at] for core, at in meeting] for meeting in found if len(meeting) > 1]


class GroupOnCore:
    """A group on a core: its stripes, its parts, and the buffers of values that stay in local memory."""

    def __init__(self, core: Core, frame: Frame, spread: Mapping[str, Spread]) -> None:
        self.core, self.frame, self.spread, self.number = core, frame, spread, core.group
        self.machine = core.machine
        self.held: dict[str, list[Slot]] = {}
        self.parts: dict[int, CorePart] = {}

    def run(self) -> None:
        if self.frame.moves:
            move(self.core, self.frame)
            return
        strips = self.frame.strips_on(self.core.index)
        made = {v for m in self.frame.members for v in m.outputs}
        for strip in strips:
            entered: set[str] = set()
            for p, (member, window) in enumerate(zip(self.frame.members, strip.windows, strict=True)):
                for value in (*(v for v, _ in member.inputs), *member.outputs):
                    owner = self.frame.owner(value)
                    if owner in strip.holds and owner not in entered:
                        entered.add(owner)
                        self._enter(owner, strip.holds[owner], owner in made, member)
                    if owner != value and value in strip.holds and value not in entered:
                        entered.add(value)
                        self._lay(value, owner, strip.holds[value], value in made, member)
                if window is None:
                    continue
                self._part(p, len(strips) > 1).run(window)
                for ref in member.layer.kept:
                    if ref.home == "result":
                        self._store(member.value(ref), ref.operand.box(window), member)
        for border in stored(self.spread, self.number, self.core.index):
            what = BorderCopy(border, self.frame.item(border.value))
            self.core.store_border(
                what, self.core.kept[border.value].now, self.frame.topology.maker[border.value]
            )

    def fetch(self) -> None:
        """What this core misses of values that stay, out of what others have stored."""
        for border in loaded(self.spread, self.number, self.core.index):
            value, box = border.value, self.spread[border.value].boxes[self.core.index]
            item = self.frame.item(value)
            if value not in self.core.kept:
                assert box is not None
                (address,) = self.core.local.slots(f"kept.{value}", 1)
                size = elements(box) * item
                self.core.kept[value] = slot = self.core.open(address, max(1, size))
                slot.renew(max(1, size), box, item)
            self.core.load_border(
                BorderCopy(border, item), self.core.kept[value].now, self.frame.group.nodes[0]
            )

    def _part(self, p: int, turns: bool) -> CorePart:
        """A part with its slots; where parts take turns, sums and what is made within a
        tile share one scratch area."""
        units, align, local = self.frame.units[p], self.machine.memory.slot_align, self.core.local
        if known := p in self.parts:
            part = self.parts[p]
        else:
            choice = self.frame.group.parts[p].choice
            assert choice is not None
            part = self.parts[p] = CorePart(
                self.core, self.frame.members[p], choice, [UnitSlots(unit) for unit in units],
                self.frame.joins,
            )
        offsets = scratch_offsets(units, align)
        for u, (own, unit) in enumerate(zip(part.units, units, strict=True)):
            scratch = turns and unit.home in ("acc", "inner")
            if known and not scratch:
                continue
            if scratch:
                (base,) = local.slots(f"{self.number}.scratch", 1)
                addresses = [base + offsets[u] + k * aligned(unit.size, align) for k in range(unit.slots)]
            else:
                name = f"{self.number}.{p}.{u}"
                if (stays := local.shared.get(name)) in self.core.staying:
                    own.slots, own.holds = self.core.staying[str(stays)]
                    continue
                addresses = local.slots(name, unit.slots)
                if (early := self.core.early.get(name)) is not None:
                    there, held = early
                    rest = addresses[len(there) :]
                    own.slots = [*there, *(self.core.open(a, max(1, unit.size)) for a in rest)]
                    own.holds, own.turn = [*held, *[None] * len(rest)], len(there)
                    continue
                if stays is not None:
                    own.slots = [self.core.open(a, max(1, unit.size)) for a in addresses]
                    own.holds = [None] * len(own.slots)
                    self.core.staying[stays] = own.slots, own.holds
                    continue
            own.slots = [self.core.open(a, max(1, unit.size)) for a in addresses]
            own.holds = [None] * len(own.slots)
        return part

    def _enter(self, value: str, hold: RollingBuffer, made: bool, reader: Member) -> None:
        """The buffer of a held value as this stripe wants it: rows that are there
        move over, others come in."""
        ref, stays, core = self._ref(value), value in self.frame.kept, self.core
        whole = self.spread[value].boxes[core.index] if stays else None
        box = hold.box if whole is None else whole
        if value not in self.held:
            count = self.frame.slots[value]
            addresses = core.local.slots(f"kept.{value}" if stays else held_slots(self.number, value), count)
            size = max(1, self.frame.holds[value] if whole is None else elements(whole) * ref.itemsize)
            self.held[value] = [core.open(a, size) for a in addresses]
        before, slot = core.now.get(value), self.held[value][hold.slot]
        if before is not slot or slot.now.laid != box:
            slot.renew(elements(box) * ref.itemsize, box, ref.itemsize)
            core.now[value] = slot
        if hold.copied is not None and before is not None:
            self._copy(value, ref, hold.copied, before, slot)
        if hold.fresh is not None and not made:
            self._load(value, hold.fresh, slot, reader)
        if stays:
            core.kept[value] = slot

    def _lay(self, value: str, owner: str, hold: RollingBuffer, made: bool, reader: Member) -> None:
        """A value in the buffer of another one."""
        self.core.now[value] = slot = self.core.resident(owner)
        if value in self.frame.kept:
            self.core.kept[value] = slot
        if hold.fresh is not None and not made:
            self._load(value, hold.fresh, slot, reader)

    def _load(self, value: str, box: Box, slot: Slot, reader: Member) -> None:
        node = next(n for n in reader.nodes if value in self.frame.topology.graph.nodes[n].inputs)
        self.core.load_box(value, self._ref(value), box, slot.now, box, node, 0)

    def _copy(self, value: str, ref: Ref, box: Box, old: Slot, new: Slot) -> None:
        """Rows that this stripe needs again move from the old slot to the new one."""
        c, nodes = self.machine.compute, self.frame.group.nodes
        cycles = c.command_cycles + ceil(elements(box) / c.vector_lanes)
        maker = self.frame.topology.maker.get(value, -1)
        what = CopyRows(value, ref, box, old.now, new.now)
        node = maker if maker in nodes else nodes[0]
        self.core.compute(self.core.queues.vector, cycles, [(old.now, box)], [(new.now, box)], what, node, 0)

    def _ref(self, value: str) -> Ref:
        return next(r for m in self.frame.members for r in m.layer.kept if m.value(r) == value)

    def _store(self, value: str, made: Box, member: Member) -> None:
        """What somebody looks for in external memory is stored; of values that are joined without a copy,
        each part as soon as it is made."""
        if self.frame.fills_itself(value):
            return
        slot = self.core.now[value]
        self._keep(value, made, member, slot)
        for place in shown_in(self.frame.joins, value):
            if not self.frame.fills_itself(place.value):
                break
            self._keep(place.value, place.box(made), member, slot)

    def _keep(self, value: str, made: Box, member: Member, slot: Slot) -> None:
        """`slot`: where the value lies."""
        frame = self.frame
        walk = frame.walk_on(self.core.index)
        if value not in walk.results or not frame.topology.wanted_in_data(value, frame.kept):
            return
        pairs = zip(made, walk.own(value), strict=True)
        box = tuple((max(a, c), min(b, d)) for (a, b), (c, d) in pairs)
        if all(a < b for a, b in box):
            ref, place = self._ref(value), whole_place(frame.joins, value)
            there = box if place is None else place.box(box)
            node = member.nodes[ref.member] if value in member.outputs else frame.topology.maker[value]
            self.core.store_box(value, ref, box, slot.now, there, node, 0)
