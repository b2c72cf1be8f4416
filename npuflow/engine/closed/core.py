"""One core in closed form: its queues, its local memory, what it has stored, and what it spends by group."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod

from npuflow.engine.closed.banks import NOTHING, Banks, Shares
from npuflow.engine.closed.tile import Transfer, box_transfer, rows_transfer
from npuflow.engine.closed.timetable import INSIDE, OUTSIDE, Timetable
from npuflow.engine.closed.touches import Area, Areas, Latest, Stored
from npuflow.engine.tiling.borders import Spread
from npuflow.engine.tiling.cost import Machine
from npuflow.engine.tiling.local import Local
from npuflow.engine.tiling.meet import meetings
from npuflow.engine.tiling.model import Ref
from npuflow.ir.space import Box, Interval, elements

Place = tuple[Area, Box | None]           # an area, and which box of what lies there


@dataclass
class Terms:
    """What a group adds up to on one core, in cycles, and the bytes that it moves outside the chip."""

    array: float = 0.0
    vector: float = 0.0
    set_up: float = 0.0
    bus: float = 0.0
    bytes: float = 0.0


@dataclass(frozen=True)
class Loaded:
    """A load that other cores may make too: what of, the job, and where its bytes are counted."""

    key: Hashable
    job: int
    terms: Terms
    bus: float
    bytes: float


@dataclass(frozen=True)
class Places:
    """Where values lie in external memory: (owner, byte address) of each, and the moves that sharing bytes saves."""

    of: Mapping[str, tuple[str, int]]
    saved: Collection[tuple[int, int]] = ()


@dataclass
class Stage:
    """What all cores share: the machine, the timetable, where things lie, and what has been spent by group and core."""

    machine: Machine
    local: Local
    places: Places
    groups: int
    number: int = 0                                         # the group that runs
    spread: Mapping[str, Spread] = field(default_factory=dict)   # values that stay, over the cores
    terms: list[list[Terms]] = field(init=False)
    table: Timetable = field(init=False)
    loads: list[list[Loaded]] = field(init=False)           # by core, since they last met
    sides: dict[tuple[str, Box], tuple[Transfer, Interval]] = field(default_factory=dict)   # boxes of values outside

    def __post_init__(self) -> None:
        m = self.machine
        self.width = 2 * m.dma.channels + 2                 # queues of a core
        widths = float(m.memory.external_bandwidth), float(m.memory.shared_bandwidth)
        self.loads = [[] for _ in range(m.compute.cores)]
        self.terms = [[Terms() for _ in range(m.compute.cores)] for _ in range(self.groups)]
        self.table = Timetable(self.width, m.compute.cores, widths, Banks(m.memory))

    def share(self) -> None:
        """What several cores have loaded alike since they last met is one transfer."""
        for meeting in meetings([[load.key for load in own] for own in self.loads]) if self.machine.dma.multicast else ():
            if len(meeting) > 1:
                same = [self.loads[core][index] for core, index in meeting]
                self.table.join([load.job for load in same])
                for load in same[1:]:
                    load.terms.bus -= load.bus
                    load.terms.bytes -= load.bytes
        self.loads = [[] for _ in self.loads]

    def owner(self, value: str) -> str:
        """Of the bytes of a value, or of a border."""
        return self.places.of[value][0] if value in self.places.of else value

    def span(self, value: str, shape: Sequence[int], box: Box, item: int) -> Interval:
        """The bytes of external memory from the first to the last of a box."""
        low = high = self.places.of[value][1]
        for d, (a, b) in enumerate(box):
            stride = prod(shape[d + 1 :]) * item
            low, high = low + a * stride, high + (b - 1) * stride
        return low, high + item


@dataclass
class Resident:
    """A value in local memory: its area, and the box that it is laid out for."""

    area: Area
    box: Box


class Core:
    """One core: its queues, its local memory, and the external values that it has touched."""

    def __init__(self, stage: Stage, index: int) -> None:
        self.stage, self.index = stage, index
        first, channels = index * stage.width, stage.machine.dma.channels
        self.values, self.constants, self.stores = first, first + channels - 1, first + channels
        self.tensor, self.vector = first + 2 * channels, first + 2 * channels + 1
        self.areas = Areas()
        self.now: dict[str, Resident] = {}                           # values with buffers of the group that runs
        self.kept: dict[str, Resident] = {}                          # values that stay between groups
        self.written: dict[str, Stored] = {}                         # by owner of the bytes
        self.shared: dict[str, int] = {}                             # owner of bytes -> the barrier behind which they are there
        self.loaded = -1                                             # the last load of a value

    @property
    def terms(self) -> Terms:
        return self.stage.terms[self.stage.number][self.index]

    def spend(self, array: float = 0.0, vector: float = 0.0, set_up: float = 0.0) -> None:
        terms = self.terms
        terms.array, terms.vector, terms.set_up = terms.array + array, terms.vector + vector, terms.set_up + set_up

    def resident(self, value: str) -> Resident:
        return self.now[value] if value in self.now else self.kept[value]

    def compute(self, queue: int, cycles: int, read: Sequence[Place], written: Sequence[Place]) -> None:
        """A job of the array or of the vector unit, behind what made what it reads and what still uses where it writes."""
        after: Latest = {}
        for area, box in read:
            area.before_read(box, after)
        for area, box in written:
            area.before_write(box, after)
        terms = self.terms
        if queue == self.tensor:
            terms.array += cycles
        else:
            terms.vector += cycles
        shares = self._shares((*read, *written))
        job = self.stage.table.add(queue, cycles, self._others(queue, after), shares=shares)
        for area, box in read:
            area.touch(box, queue, job, False)
        for area, box in written:
            area.touch(box, queue, job, True)

    def load_block(self, size: int, area: Area, key: Hashable) -> None:
        """Constants, packed."""
        if size:
            after: Latest = {}
            area.before_write(None, after)
            moved = rows_transfer(1, size, self.stage.machine)
            job = self._move(self.constants, moved, after, False, (area, None), key)
            area.touch(None, self.constants, job, True)

    def load_box(self, value: str, ref: Ref, box: Box, area: Area, place: Box | None) -> None:
        if elements(box):
            self.load(value, *self._side(value, ref, box), area, place, box)

    def store_box(self, value: str, ref: Ref, box: Box, area: Area, place: Box | None) -> None:
        self.store(value, *self._side(value, ref, box), area, place, box)

    def _side(self, value: str, ref: Ref, box: Box) -> tuple[Transfer, Interval]:
        if (value, box) not in self.stage.sides:
            shape, item = ref.operand.shape, ref.itemsize
            found = box_transfer(shape, box, item, self.stage.machine), self.stage.span(value, shape, box, item)
            self.stage.sides[value, box] = found
        return self.stage.sides[value, box]

    def load(self, value: str, moved: Transfer, span: Interval, area: Area, place: Box | None, box: Box) -> None:
        """A box of a value (empty: all in its span of bytes), behind the stores that made it."""
        after: Latest = {}
        area.before_write(place, after)
        owner = self.stage.owner(value)
        last = self.written[owner].last(value, box, span) if owner in self.written else -1
        last = max(last, self.shared.get(owner, -1))
        if last > after.get(self.stores, -1):
            after[self.stores] = last
        self.loaded = self._move(self.values, moved, after, self._inside(span), (area, place), (value, box, span))
        area.touch(place, self.values, self.loaded, True)

    def store(self, value: str, moved: Transfer, span: Interval, area: Area, place: Box | None, box: Box) -> None:
        after: Latest = {}
        area.before_read(place, after)
        job = self._move(self.stores, moved, after, self._inside(span), (area, place))
        area.touch(place, self.stores, job, False)
        self.written.setdefault(self.stage.owner(value), Stored()).add(value, box, span, job)

    def store_border(self, name: str, size: int, area: Area, box: Box) -> None:
        """A box that another core misses, densely."""
        at = self._border(name)
        self.store(name, rows_transfer(1, size, self.stage.machine), (at, at + size), area, box, ())

    def load_border(self, name: str, size: int, area: Area, box: Box) -> None:
        at = self._border(name)
        self.load(name, rows_transfer(1, size, self.stage.machine), (at, at + size), area, box, ())

    def _border(self, name: str) -> int:
        """Where it lies: somewhere outside where nobody has laid it."""
        return self.stage.places.of[name][1] if name in self.stage.places.of else self.stage.machine.memory.shared_bytes

    def _inside(self, span: Interval) -> bool:
        """Whether all of it lies in the chip's shared memory."""
        return span[1] <= self.stage.machine.memory.shared_bytes

    def _move(self, queue: int, moved: Transfer, after: Latest, inside: bool, place: Place, key: Hashable = None) -> int:
        """`place`: its side in local memory. `key`: what is loaded, where other cores may load the same."""
        memory, terms = self.stage.machine.memory, self.terms
        cycles = moved.bytes / (memory.shared_bandwidth if inside else memory.external_bandwidth)
        amount = 0.0 if inside else float(moved.bytes)
        terms.set_up, terms.bus, terms.bytes = terms.set_up + moved.front, terms.bus + cycles, terms.bytes + amount
        bus = INSIDE if inside else OUTSIDE
        shares = self._shares([place])
        job = self.stage.table.add(queue, moved.front, self._others(queue, after), moved.bytes, bus, shares)
        if key is not None:
            self.stage.loads[self.index].append(Loaded((queue - self.index * self.stage.width, key), job, terms, cycles, amount))
        return job

    def _shares(self, places: Sequence[Place]) -> Shares:
        banks = self.stage.table.banks
        return banks.shares(tuple([area.touched(box) for area, box in places])) if banks.ports else NOTHING

    @staticmethod
    def _others(queue: int, after: Latest) -> list[int]:
        after.pop(queue, None)
        return list(after.values())
