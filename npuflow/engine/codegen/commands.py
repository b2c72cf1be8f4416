"""The command list: who touches which bytes, and from that the fewest waits that keep every true dependency."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from npuflow.base.errors import InternalError
from npuflow.hw.encode import Words, encode
from npuflow.hw.isa import BY_NAME, NONE, WAIT_SLOTS, WORDS
from npuflow.hw.target import queue_names
from npuflow.ir.space import Box

Tokens = dict[int, int]                 # queue -> retired commands of it that must be waited for

SYNC = 4096                             # commands between lagged synchronisations, in programs that need them
FAR = 1 << 15                           # waits compare modulo 2^16, so counts must stay closer than this

READS: Mapping[str, tuple[str, ...]] = {
    "CONV": ("x", "w", "w_zeros"), "MATMUL": ("a", "b", "b_zeros"), "REQUANT": ("acc", "bias", "multipliers", "los", "his"),
    "ADD": ("a", "b"), "MUL": ("a", "b"), "DIV": ("a", "b"), "MINMAX": ("a", "b"), "PRELU": ("x", "slope"),
    "RESCALE": ("x",), "MAXPOOL": ("x",), "AVGPOOL": ("x", "multipliers"), "REDUCE": ("x",), "LUT": ("x", "table"),
    "SOFTMAX": ("x", "low", "high"), "RESIZE": ("x", "rows", "columns"), "COPY": ("x",), "FILL": (),
}  # fmt: skip
WRITES = {"CONV": "acc", "MATMUL": "acc", "REDUCE": "acc"}


def merge(into: Tokens, other: Mapping[int, int]) -> None:
    for queue, count in other.items():
        if count > into.get(queue, 0):
            into[queue] = count


class Slot:
    """A range of local memory with what was last done to it."""

    __slots__ = ("high", "low", "reads", "writes")

    def __init__(self, low: int, high: int) -> None:
        self.low, self.high = low, high
        self.reads: Tokens = {}
        self.writes: Tokens = {}


class LocalMap:
    """Slots of one core's local memory; a new slot inherits what was done to the bytes it covers."""

    def __init__(self) -> None:
        self._slots: list[Slot] = []

    def open(self, low: int, size: int) -> Slot:
        high, fresh, kept = low + size, Slot(low, low + size), []
        for old in self._slots:
            if old.high <= low or high <= old.low:
                kept.append(old)
                continue
            merge(fresh.reads, old.reads)
            merge(fresh.reads, old.writes)     # whoever writes next waits for both alike
            for a, b in ((old.low, low), (high, old.high)):
                if a < b:
                    rest = Slot(a, b)
                    rest.reads, rest.writes = dict(old.reads), dict(old.writes)
                    kept.append(rest)
        self._slots = [*kept, fresh]
        return fresh


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
class Storage:
    """A range of DATA with the accesses to it."""

    address: int
    size: int
    before: Tokens = field(default_factory=dict)           # accesses to the same bytes by storage that died earlier
    writes: list[tuple[Touch, int, int]] = field(default_factory=list)
    reads: list[tuple[Touch, int, int]] = field(default_factory=list)
    last: Tokens = field(default_factory=dict)
    opened: bool = False


@dataclass
class Pending:
    """A command before its waits are known."""

    opcode: str
    values: Mapping[str, object]
    queue: int
    node: int
    needs: Tokens
    step: int                                              # tile step, for profiles


class CommandList:
    """Commands of one core in program order, with their dependencies."""

    def __init__(self, core: int, channels: int) -> None:
        self.core, self.channels = core, channels
        self.queues = queue_names(channels)
        self.tensor, self.vector = self.queues.index("TENSOR"), self.queues.index("VECTOR")
        self.counts = [0] * len(self.queues)
        self.commands: list[Pending] = []
        self.starts: set[int] = set()                      # commands before which all queues are idle: segments begin
        self.local = LocalMap()

    def add(self, opcode: str, values: Mapping[str, object], queue: int, node: int, needs: Tokens, step: int = 0) -> int:
        """Append; returns the count that waiters must see retired."""
        needs.pop(queue, None)                             # a queue keeps its own order
        self.commands.append(Pending(opcode, values, queue, node, needs, step))
        self.counts[queue] += 1
        return self.counts[queue]

    def load(self, values: Mapping[str, object], slot: Slot, node: int, source: tuple[Storage, Touch] | None, step: int) -> None:
        """LOAD into a slot from a value in DATA, or from CONST, on the last channel so that it need not wait behind values."""
        queue, needs = (0 if source is not None else self.channels - 1), dict(slot.reads)
        if source is not None:
            storage, touch = source
            for other, q, count in storage.writes:
                if count > needs.get(q, 0) and touch.meets(other):
                    needs[q] = count
        merge(needs, slot.writes)
        count = self.add("LOAD", values, queue, node, needs, step)
        _write(slot, queue, count)
        if source is not None:
            storage.reads.append((touch, queue, count))
            merge(storage.last, {queue: count})

    def store(self, values: Mapping[str, object], slot: Slot, node: int, storage: Storage, touch: Touch, step: int) -> None:
        queue = self.channels
        needs = dict(slot.writes)
        merge(needs, storage.before)
        for other, q, count in (*storage.reads, *storage.writes):
            if q != queue and count > needs.get(q, 0) and touch.meets(other):
                needs[q] = count
        count = self.add("STORE", values, queue, node, needs, step)
        merge(slot.reads, {queue: count})
        storage.writes.append((touch, queue, count))
        merge(storage.last, {queue: count})

    def compute(self, opcode: str, values: Mapping[str, object], slots: Sequence[Slot], node: int, step: int) -> None:
        """A TENSOR or VECTOR command on the slots that its pointers fall into."""
        queue = self.tensor if BY_NAME[opcode].queue == "TENSOR" else self.vector
        target = WRITES.get(opcode, "y")
        read = [_find(slots, opcode, name, values) for name in READS[opcode] if values.get(name, NONE) != NONE]
        written = _find(slots, opcode, target, values)
        if values.get("accumulate"):
            read.append(written)
        needs: Tokens = {}
        for slot in read:
            merge(needs, slot.writes)
        merge(needs, written.reads)
        merge(needs, written.writes)
        count = self.add(opcode, values, queue, node, needs, step)
        for slot in read:
            merge(slot.reads, {queue: count})
        _write(written, queue, count)

    def words(self) -> Words:
        """All commands encoded, with the fewest waits."""
        out = np.zeros((len(self.commands), WORDS), np.uint32)
        for i, (command, wait) in enumerate(zip(self.commands, self._waits(), strict=True)):
            out[i] = encode(
                command.opcode, command.values, queue=command.queue, core=self.core, node=command.node, wait=wait
            )
        return out

    def _waits(self) -> Iterable[tuple[int, ...]]:
        """Per command the counts to wait for: what its queue does not know already, directly or through others."""
        n = len(self.queues)
        far = max(self.counts, default=0) >= FAR
        seen = [0] * n                                     # commands of each queue so far, in program order
        marks: list[list[int]] = []                        # `seen` at every SYNC commands
        known = [[0] * n for _ in range(n)]                # what each queue has waited for
        after: list[list[list[int]]] = [[] for _ in range(n)]   # per queue, per command: what its retirement implies
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
                    raise InternalError(f"command {i} waits for a command that comes later")
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


def _write(slot: Slot, queue: int, count: int) -> None:
    """A write that waited for all earlier accesses stands for them; writes of a row of commands add up."""
    if slot.reads:
        slot.reads.clear()
        slot.writes.clear()
    merge(slot.writes, {queue: count})


def _find(slots: Sequence[Slot], opcode: str, name: str, values: Mapping[str, object]) -> Slot:
    address = values.get(name, 0)
    for slot in slots:
        if slot.low <= address < slot.high:  # type: ignore[operator]
            return slot
    raise InternalError(f"{opcode}.{name} = {address} points into no buffer of its tile")


assert len(queue_names(7)) <= WAIT_SLOTS
