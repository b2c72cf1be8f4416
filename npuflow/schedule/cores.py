"""One core while its jobs are laid out: slots of local memory, their contents, the jobs."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from itertools import pairwise
from math import prod

from npuflow.ir.space import Box, Interval, elements
from npuflow.schedule.cycles import Transfer, box_transfer, rows_transfer
from npuflow.schedule.jobs import (
    NO_BOX,
    Allocation,
    BorderCopy,
    BoxCopy,
    ConstantShare,
    Job,
    Outside,
    Place,
    Places,
    Queues,
    What,
)
from npuflow.schedule.local import Local
from npuflow.schedule.machine import Machine
from npuflow.schedule.model import Ref

SET_UPS = 4                               # times that of its set-up a part of a load takes at least


class External:
    """External memory as jobs meet it: where values lie, and what their boxes cost to move."""

    def __init__(self, machine: Machine, places: Places) -> None:
        self.machine, self.places = machine, places
        self._boxes: dict[tuple[str, Box], tuple[Transfer, Outside]] = {}

    def box(self, value: str, ref: Ref, box: Box) -> tuple[Transfer, Outside]:
        key = value, box
        if key not in self._boxes:
            shape, item = ref.operand.shape, ref.itemsize
            span = self._span(value, shape, box, item)
            moved = box_transfer(shape, box, item, self.machine)
            self._boxes[key] = moved, Outside(self.places.of[value][0], value, box, span)
        return self._boxes[key]

    def _span(self, value: str, shape: Sequence[int], box: Box, item: int) -> Interval:
        """The bytes of external memory from the first to the last of a box."""
        low = high = self.places.of[value][1]
        for d, (a, b) in enumerate(box):
            stride = prod(shape[d + 1 :]) * item
            low, high = low + a * stride, high + (b - 1) * stride
        return low, high + item

    def border(self, name: str, size: int) -> tuple[Transfer, Outside]:
        """Bytes of their own: where nobody has laid them, somewhere outside the chip."""
        owner, at = self.places.of.get(name, (name, self.machine.memory.shared_bytes))
        return rows_transfer(1, size, self.machine), Outside(owner, name, NO_BOX, (at, at + size))


class Slot:
    """Bytes of local memory that are used again and again. `now`: what lies there; `number`: how many were
    opened before; `under`: those that lay in its bytes, by number, first and last byte."""

    __slots__ = ("high", "low", "now", "number", "under")

    def __init__(
        self, low: int, high: int, replaces: tuple[Allocation, ...], number: int = 0,
        under: Sequence[tuple[int, int, int]] = (),
    ) -> None:
        self.low, self.high, self.number, self.under = low, high, number, under
        self.now = Allocation(low, high, high - low, NO_BOX, 1, replaces)

    def renew(self, size: int, laid: Box = NO_BOX, item: int = 1) -> None:
        """Something else comes to lie here."""
        self.now = Allocation(self.low, self.high, size, laid, item, (self.now,))


class Core:
    """One core: jobs are added in program order."""

    def __init__(self, index: int, machine: Machine, local: Local, external: External) -> None:
        self.index, self.machine, self.local, self.external = index, machine, local, external
        self.queues = Queues(machine.dma.channels)
        self.group = 0                            # that is laid out
        self.cutting = False                      # whether its loads of constants may be cut
        self.jobs: list[Job] = []                 # of all cores
        self.now: dict[str, Slot] = {}            # values with buffers of the group
        self.kept: dict[str, Slot] = {}           # values that stay between groups
        # constants that stay: slots, and what each holds
        self.staying: dict[str, tuple[list[Slot], list[tuple[Box, ...] | None]]] = {}
        # slots of constants that a loop before their layer has loaded, and what each holds
        self.early: dict[str, tuple[list[Slot], list[tuple[Box, ...] | None]]] = {}
        self._slots: list[Slot] = []
        self._opened = 0

    def open(self, low: int, size: int) -> Slot:
        high, rest, under = low + size, [], []
        for other in self._slots:
            if other.low < high and low < other.high:
                under.append(other)
                if low <= other.low and other.high <= high:
                    continue
            rest.append(other)
        self._opened += 1
        lay = [(other.number, other.low, other.high) for other in under] if self.cutting else ()
        found = Slot(low, high, tuple(other.now for other in under), self._opened, lay)
        self._slots = [*rest, found]
        return found

    def resident(self, value: str) -> Slot:
        return self.now[value] if value in self.now else self.kept[value]

    def compute(
        self,
        queue: int,
        cycles: int,
        reads: Sequence[Place],
        writes: Sequence[Place],
        what: What,
        node: int,
        tile: int,
    ) -> None:
        """A job of the array or of the vector unit."""
        self.jobs.append(Job(self.index, queue, self.group, node, tile, reads, writes, cycles, what))

    def fetch(
        self, rows: int, size: int, reads: Sequence[Place], writes: Sequence[Place], what: What, node: int,
        tile: int,
    ) -> None:
        """Rows of `size` bytes each of a constant, by the indices that it reads."""
        moved, queue = rows_transfer(rows, size, self.machine), self.queues.constants
        job = Job(self.index, queue, self.group, node, tile, reads, writes, moved.front, what, moved.bytes)
        self.jobs.append(job)

    def load_block(
        self, size: int, to: Allocation, what: What, node: int, tile: int, key: Hashable = None
    ) -> None:
        """Constants, packed: on the last channel, so that they need not wait behind values."""
        if size:
            moved, queue = rows_transfer(1, size, self.machine), self.queues.constants
            job = Job(
                self.index,
                queue,
                self.group,
                node,
                tile,
                (),
                ((to, None),),
                moved.front,
                what,
                moved.bytes,
                None,
                key,
            )
            self.jobs.append(job)

    def load_share(
        self, size: int, to: Sequence[Place], what: ConstantShare, node: int, tile: int = 0
    ) -> None:
        """Some of the bytes of slots, which lie one behind the other."""
        if size:
            moved, queue = rows_transfer(1, size, self.machine), self.queues.constants
            job = Job(self.index, queue, self.group, node, tile, (), to, moved.front, what, moved.bytes)
            self.jobs.append(job)

    def cuts(self, slot: Slot, size: int) -> list[Interval]:
        """The parts of a slot's first bytes that lie over different things, as far as each takes the bus much
        longer than its set-up does; first those over what was there first, which is done with first."""
        memory, front = self.machine.memory, rows_transfer(1, 1, self.machine).front
        least = SET_UPS * front * memory.external_bandwidth
        under, low = slot.under, slot.low
        ends = {(at - low) // memory.burst * memory.burst for _, *both in under for at in both}
        found = [0]
        for end in sorted(ends):
            if end - found[-1] >= least and size - end >= least:
                found.append(end)

        def since(part: Interval) -> int:
            a, b = part
            return max((n for n, first, last in under if first < low + b and low + a < last), default=-1)

        return sorted(pairwise([*found, size]), key=since)

    def load_box(
        self, value: str, ref: Ref, box: Box, to: Allocation, place: Box | None, node: int, tile: int
    ) -> None:
        if elements(box):
            key = value, box
            self.load(*self.external.box(value, ref, box), (to, place), BoxCopy(ref), node, tile, key)

    def store_box(
        self, value: str, ref: Ref, box: Box, source: Allocation, place: Box | None, node: int, tile: int
    ) -> None:
        self.store(*self.external.box(value, ref, box), (source, place), BoxCopy(ref), node, tile)

    def load_border(self, what: BorderCopy, to: Allocation, node: int) -> None:
        moved, outside = self.external.border(what.border.name, elements(what.border.box) * what.item)
        self.load(moved, outside, (to, what.border.box), what, node, 0, outside.value)

    def store_border(self, what: BorderCopy, source: Allocation, node: int) -> None:
        moved, outside = self.external.border(what.border.name, elements(what.border.box) * what.item)
        self.store(moved, outside, (source, what.border.box), what, node, 0)

    def load(
        self,
        moved: Transfer,
        outside: Outside,
        to: Place,
        what: What,
        node: int,
        tile: int,
        key: Hashable = None,
    ) -> None:
        queue, front = self.queues.values, moved.front
        job = Job(
            self.index, queue, self.group, node, tile, (), (to,), front, what, moved.bytes, outside, key
        )
        self.jobs.append(job)

    def store(
        self, moved: Transfer, outside: Outside, source: Place, what: What, node: int, tile: int
    ) -> None:
        queue, front = self.queues.stores, moved.front
        job = Job(self.index, queue, self.group, node, tile, (source,), (), front, what, moved.bytes, outside)
        self.jobs.append(job)
