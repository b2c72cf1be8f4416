"""The command list: who touches which bytes, and from that the fewest waits that
keep every true dependency."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from npuflow.base.errors import InternalError
from npuflow.hw.command import NONE
from npuflow.hw.encode import Words, encode
from npuflow.hw.isa import WAIT_SLOTS, WORDS, opcodes
from npuflow.hw.target import queue_names
from npuflow.ir.space import Box
from npuflow.schedule.accesses import Latest, LocalAccesses, merge
from npuflow.schedule.jobs import Place, Queues

SYNC = 4096                             # commands between lagged synchronisations, in programs that need them
FAR = 1 << 15                           # waits compare modulo 2^16, so counts must stay closer than this



class Touch(NamedTuple):
    """One access to a value in DATA: which view of its storage, which box of it, which bytes at most."""

    view: object
    box: Box
    low: int
    high: int

    def meets(self, other: Touch) -> bool:
        if self.high <= other.low or other.high <= self.low:
            return False
        if self.view != other.view:
            return True
        return all(a < d and c < b for (a, b), (c, d) in zip(self.box, other.box, strict=True))


@dataclass
class DataRange:
    """A range of DATA with the accesses to it."""

    address: int
    size: int
    # accesses to the same bytes by storage that died earlier
    before: Latest = field(default_factory=dict)
    writes: list[tuple[Touch, int, int]] = field(default_factory=list)
    reads: list[tuple[Touch, int, int]] = field(default_factory=list)
    last: Latest = field(default_factory=dict)
    # the barrier behind which other cores' writes are seen
    shared: Latest = field(default_factory=dict)
    opened: bool = False


@dataclass
class Pending:
    """A command before its waits are known."""

    opcode: str
    values: Mapping[str, object]
    queue: int
    node: int
    needs: Latest
    step: int                                              # tile step, for profiles


class CommandList:
    """Commands of one core in program order, with their dependencies."""

    def __init__(self, core: int, channels: int) -> None:
        self.core, self.channels = core, channels
        self.queues = Queues(channels)
        self.tensor, self.vector = self.queues.tensor, self.queues.vector
        self.counts = [0] * self.queues.count
        self.commands: list[Pending] = []
        # commands before which all queues are idle: segments begin
        self.starts: set[int] = set()
        self.local = LocalAccesses()
        # loads from DATA are retired when LOAD0 has retired this many
        self.inputs = 0

    def add(
        self, opcode: str, values: Mapping[str, object], queue: int, node: int, needs: Latest, step: int = 0
    ) -> int:
        """Append; returns the count that waiters must see retired."""
        needs.pop(queue, None)                             # a queue keeps its own order
        self.commands.append(Pending(opcode, values, queue, node, needs, step))
        self.counts[queue] += 1
        return self.counts[queue]

    def load(
        self,
        values: Mapping[str, object],
        places: Sequence[Place],
        node: int,
        source: tuple[DataRange, Touch] | None,
        step: int,
        part: bool = False,
    ) -> None:
        """LOAD into slots from a value in DATA, or from CONST, on the last channel so that it
        need not wait behind values. `part`: it waits for what lay in the bytes of its boxes alone."""
        queue, needs = self.queues.constants if source is None else self.queues.values, Latest()
        for allocation, box in places:
            if part:
                self.local[allocation].before_part(allocation.touched(box), box, needs)
            else:
                self.local[allocation].before_write(box, needs)
        if source is not None:
            storage, touch = source
            merge(needs, storage.shared)
            for other, q, count in storage.writes:
                if count > needs.get(q, 0) and touch.meets(other):
                    needs[q] = count
        count = self.add("LOAD", values, queue, node, needs, step)
        for allocation, box in places:
            self.local[allocation].touch(box, queue, count, True)
        if source is not None:
            storage.reads.append((touch, queue, count))
            merge(storage.last, {queue: count})
            self.inputs = count

    def store(
        self,
        values: Mapping[str, object],
        place: Place,
        node: int,
        storage: DataRange,
        touch: Touch,
        step: int,
    ) -> None:
        (allocation, box), queue = place, self.queues.stores
        local, needs = self.local[allocation], Latest()
        local.before_read(box, needs)
        merge(needs, storage.before)
        for other, q, count in (*storage.reads, *storage.writes):
            if q != queue and count > needs.get(q, 0) and touch.meets(other):
                needs[q] = count
        count = self.add("STORE", values, queue, node, needs, step)
        local.touch(box, queue, count, False)
        storage.writes.append((touch, queue, count))
        merge(storage.last, {queue: count})

    def barrier(self, number: int, mask: int, node: int) -> int:
        """All cores meet, behind everything that this one did to external memory;
        returns the STOREs to wait for."""
        needs: Latest = {self.queues.values: self.inputs} if self.inputs else {}
        return self.add("BARRIER", {"id": number, "mask": mask}, self.queues.stores, node, needs)

    def compute(
        self, opcode: str, values: Mapping[str, object], places: Sequence[Place], node: int, step: int,
        exact: bool = False,
    ) -> None:
        """A command of the array, of the vector unit, or a load by indices, on the places that its pointers
        fall into. `exact`: several values lie in one allocation, each in a place of its own."""
        known = opcodes()[opcode]
        queue = {"TENSOR": self.tensor, "LOAD": self.queues.constants}.get(known.queue, self.vector)
        absent = {f.name for f in known.fields if f.optional and values.get(f.name, NONE) == NONE}
        named = [name for name in known.pointers("read") if values.get(name, NONE) != NONE]
        made = [name for name in known.pointers("write", "sum") if name not in absent]
        read = [p for name in named for p in _find(places, opcode, name, values, exact)]
        written = [p for name in made for p in _find(places, opcode, name, values, exact)]
        if values.get("accumulate"):
            read += written
        needs: Latest = {}
        for allocation, box in read:
            self.local[allocation].before_read(box, needs)
        for allocation, box in written:
            self.local[allocation].before_write(box, needs)
        count = self.add(opcode, values, queue, node, needs, step)
        for allocation, box in read:
            self.local[allocation].touch(box, queue, count, False)
        for allocation, box in written:
            self.local[allocation].touch(box, queue, count, True)

    def words(self) -> Words:
        """All commands encoded, with the fewest waits."""
        out = np.zeros((len(self.commands), WORDS), np.uint32)
        for i, (command, wait) in enumerate(zip(self.commands, self._waits(), strict=True)):
            out[i] = encode(
                command.opcode,
                command.values,
                queue=command.queue,
                core=self.core,
                node=command.node,
                wait=wait,
            )
        return out

    def _waits(self) -> Iterable[tuple[int, ...]]:
        """Per command the counts to wait for: what its queue does not know already,
        directly or through others."""
        n = self.queues.count
        far = max(self.counts, default=0) >= FAR
        seen = [0] * n                                     # commands of each queue so far, in program order
        marks: list[list[int]] = []                        # `seen` at every SYNC commands
        known = [[0] * n for _ in range(n)]                # what each queue has waited for
        # per queue, per command: what its retirement implies
        after: list[list[list[int]]] = [[] for _ in range(n)]
        synced = [-1] * n
        for i, command in enumerate(self.commands):
            if i in self.starts:
                known = [list(seen) for _ in known]
            if i % SYNC == 0:
                marks.append(list(seen))
            epoch, q = i // SYNC, command.queue
            floor = marks[epoch - 1] if far and epoch else [0] * n
            needs = command.needs
            if synced[q] != epoch and far:
                synced[q] = epoch
                needs = dict(needs)
                merge(needs, {o: c for o, c in enumerate(floor) if o != q and c})
            open_needs = {o: c for o, c in needs.items() if c > known[q][o]}
            wait = list(floor)
            for other, count in open_needs.items():
                if count > seen[other]:
                    raise InternalError(
                        f"command {i} waits for a command that comes later", code="NF-INTERNAL-010",
                    )
                if any(after[p][c - 1][other] >= count for p, c in open_needs.items() if p != other):
                    continue
                wait[other] = count
            for other, count in open_needs.items():
                implied = after[other][count - 1]
                known[q] = [max(a, b) for a, b in zip(known[q], implied, strict=True)]
            seen[q] += 1
            known[q][q] = seen[q]
            after[q].append(list(known[q]))
            yield tuple(wait) if any(wait) else ()


def _find(
    places: Sequence[Place], opcode: str, name: str, values: Mapping[str, object], exact: bool
) -> list[Place]:
    """Every box that an operand may mean: one, unless a tile reads one tensor in two ways."""
    address = values.get(name, 0)
    found = [p for p in places if p[0].low <= address < p[0].high]  # type: ignore[operator]
    if not found:
        raise InternalError(
            f"{opcode}.{name} = {address} points into no buffer of its tile", code="NF-INTERNAL-011",
        )
    if exact and len(found) > 1:
        touched = [(p, p[0].touched(p[1])) for p in found]
        return [p for p, t in touched if t.low <= address < t.high] or found  # type: ignore[operator]
    return found


assert len(queue_names(7)) <= WAIT_SLOTS
