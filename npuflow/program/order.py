"""Happens-before: vector clocks over queues and waits, one execution order, or the cycle of a deadlock.

A queue starts a command when the one before it has retired; a wait is for an absolute number of retired
commands, found from its 16 bits as the nearest to what the queue already knows. A barrier joins its cores. A
multicast load is begun by all its cores together, which fixes no order between what they do otherwise.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from npuflow.base.errors import ModelError, Where
from npuflow.hw.command import Command
from npuflow.hw.isa import opcodes
from npuflow.hw.target import queue_names
from npuflow.program.access import source
from npuflow.program.container import Program

Ints = npt.NDArray[Any]
HALF = 1 << 15


@dataclass(frozen=True)
class Order:
    """`sequence`: commands as (core, index) in one order that respects every wait, by segment. Per command,
    counted in that order: `queue` (over all cores), `position` in it, and `start` [n, queues]: commands of
    each queue known retired before it starts. `waits`: what it waits for, as (queue, absolute count)."""

    queues: tuple[str, ...]               # of one core
    sequence: tuple[tuple[int, int], ...]
    segments: tuple[tuple[int, int], ...]     # [first, last) of `sequence`, one per npu step
    queue: Ints
    position: Ints
    start: Ints
    waits: tuple[tuple[tuple[int, int], ...], ...]

    def before(self, earlier: int, later: int) -> bool:
        """Whether one command has always retired before the other starts."""
        return bool(self.position[earlier] < self.start[later, self.queue[earlier]])


def order_of(program: Program) -> Order:
    """The order of a whole program; a queue, wait or barrier that cannot be is a
    ModelError naming the command."""
    queues = queue_names(program.target.dma.channels)
    run = _Run(program.decoded, queues)
    segments = []
    for step in program.meta["steps"]:
        if step["kind"] == "npu":
            first = len(run.sequence)
            run.segment(step["first"], step["count"])
            segments.append((first, len(run.sequence)))
    n, width = len(run.sequence), len(run.heads)
    start = np.array(run.starts, np.int32).reshape(n, width)
    order = Order(
        queues,
        tuple(run.sequence),
        tuple(segments),
        np.array(run.queue_of, np.int32),
        np.array(run.position_of, np.int32),
        start,
        tuple(run.waits),
    )
    _distances(program, order, run.retired)
    return order


class _Run:
    """Executes queue heads in turn, carrying each queue's vector clock."""

    def __init__(self, decoded: Sequence[Sequence[Command]], queues: tuple[str, ...]) -> None:
        self.decoded, self.queues = decoded, queues
        width = len(decoded) * len(queues)
        self.heads: list[deque[int]] = [deque() for _ in range(width)]
        self.retired = [0] * width
        # clock at the end of each queue's last command
        self.known = [[0] * width for _ in range(width)]
        self.ends: list[list[list[int]]] = [[] for _ in range(width)]
        self.sequence: list[tuple[int, int]] = []
        self.queue_of: list[int] = []
        self.position_of: list[int] = []
        self.starts: list[list[int]] = []
        self.waits: list[tuple[tuple[int, int], ...]] = []

    def segment(self, first: Sequence[int], count: Sequence[int]) -> None:
        size = len(self.queues)
        for core, commands in enumerate(self.decoded):
            for index in range(first[core], first[core] + count[core]):
                self.heads[core * size + _queue(commands[index], index, core, self.queues)].append(index)
        progress = True
        while progress:
            progress = False
            for q in range(len(self.heads)):
                while self.heads[q] and self._step(q):
                    progress = True
        if any(self.heads):
            raise self._deadlock()
        # the host waits for every queue between segments: everything so far is known to all
        self.known = [list(self.retired) for _ in self.known]

    def _head(self, q: int) -> Command:
        return self.decoded[q // len(self.queues)][self.heads[q][0]]

    def _waits(self, q: int) -> tuple[tuple[int, int], ...]:
        """(queue, absolute count) of what the head of q still has to wait for."""
        base = q // len(self.queues) * len(self.queues)
        known, found = self.known[q], []
        for i, k in enumerate(self._head(q).wait):
            target = known[base + i] + ((k - known[base + i] + HALF) % (2 * HALF) - HALF)
            if target > known[base + i]:
                found.append((base + i, target))
        return tuple(found)

    def _step(self, q: int) -> bool:
        command = self._head(q)
        waits = self._waits(q)
        if any(self.retired[e] < k for e, k in waits):
            return False
        if command.opcode == "BARRIER":
            return self._barrier(q, command)
        if command.opcode == "LOAD" and command.number("mask"):
            return self._shared(q, command)
        self._retire(q, waits, self._start(q, waits))
        return True

    def _start(self, q: int, waits: tuple[tuple[int, int], ...]) -> list[int]:
        start = list(self.known[q])
        for e, k in waits:
            start = [a if a > b else b for a, b in zip(start, self.ends[e][k - 1], strict=True)]
        return start

    def _retire(
        self, q: int, waits: tuple[tuple[int, int], ...], start: list[int], end: list[int] | None = None
    ) -> None:
        end = list(start if end is None else end)
        index = self.heads[q].popleft()
        self.sequence.append((q // len(self.queues), index))
        self.queue_of.append(q)
        self.position_of.append(self.retired[q])
        self.starts.append(start)
        self.waits.append(waits)
        self.retired[q] += 1
        end[q] = self.retired[q]
        self.known[q] = end
        self.ends[q].append(end)

    def _barrier(self, q: int, command: Command) -> bool:
        """Retires all participants at once, when every core of the mask has this barrier at
        a queue's head, unhindered."""
        size, mask = len(self.queues), command.number("mask")
        self._check_mask(q, command)
        joined = []
        for core in range(len(self.decoded)):
            if not mask >> core & 1:
                continue
            ready = [
                r
                for r in range(core * size, (core + 1) * size)
                if self.heads[r]
                and self._head(r).opcode == "BARRIER"
                and self._head(r).fields == command.fields
                and all(self.retired[e] >= k for e, k in self._waits(r))
            ]
            if not ready:
                return False
            joined.append(ready[0])
        waits = [self._waits(r) for r in joined]
        starts = [self._start(r, w) for r, w in zip(joined, waits, strict=True)]
        end = [max(column) for column in zip(*starts, strict=True)]
        for r in joined:
            end[r] = self.retired[r] + 1
        for r, w, start in zip(joined, waits, starts, strict=True):
            self._retire(r, w, start, end)
        return True

    def _shared(self, q: int, command: Command) -> bool:
        """Retires a multicast load on all its cores, when it is at the head of this queue
        in each of them, unhindered."""
        size = len(self.queues)
        self._check_mask(q, command)
        joined = [
            r for r in range(q % size, len(self.heads), size) if command.number("mask") >> r // size & 1
        ]
        for r in joined:
            head = self._head(r) if self.heads[r] else None
            if head is None or (head.opcode, head.fields.get("mask")) != ("LOAD", command.number("mask")):
                return False
            if source(head) != source(command):
                raise ModelError(
                    f"a multicast load of cores {command.number('mask'):#x} reads other bytes than "
                    f"LOAD {self.heads[q][0]} of core {q // size}",
                    where=Where(value=f"command {self.heads[r][0]} of core {r // size} (LOAD)"),
                    code="NF-DECODE-001",
                )
            if any(self.retired[e] < k for e, k in self._waits(r)):
                return False
        for r in joined:
            waits = self._waits(r)
            self._retire(r, waits, self._start(r, waits))
        return True

    def _check_mask(self, q: int, command: Command) -> None:
        mask, own = command.number("mask"), q // len(self.queues)
        if mask >> len(self.decoded) or not mask >> own & 1:
            raise ModelError(
                f"{command.opcode} of cores {mask:#x} in a program of {len(self.decoded)}: "
                "the mask must contain its own core, and no core that the program lacks",
                where=Where(value=f"command {self.heads[q][0]} of core {own} ({command.opcode})"),
                code="NF-DECODE-002",
            )

    def _missing(self, q: int) -> int:
        """The queue that the multicast load at the head of a queue waits for, or -1."""
        command, size = self._head(q), len(self.queues)
        for r in range(q % size, len(self.heads), size) if command.opcode == "LOAD" else ():
            if command.number("mask") >> r // size & 1 and r != q:
                head = self._head(r) if self.heads[r] else None
                other = head is None or (head.opcode, head.fields.get("mask")) != (
                    "LOAD",
                    command.number("mask"),
                )
                if other or any(self.retired[e] < k for e, k in self._waits(r)):
                    return r
        return -1

    def _deadlock(self) -> ModelError:
        """Follow who waits for whom from any stuck head until a queue repeats."""
        size = len(self.queues)

        def label(q: int) -> str:
            head = self._head(q)
            return f"{head.opcode} {self.heads[q][0]} of core {q // size} in {self.queues[q % size]}"

        q = next(i for i, h in enumerate(self.heads) if h)
        where = Where(value=f"command {self.heads[q][0]} of core {q // size} ({self._head(q).opcode})")
        seen: list[int] = []
        text: list[str] = []
        while q not in seen:
            seen.append(q)
            blocked = [(e, k) for e, k in self._waits(q) if self.retired[e] < k]
            if not blocked:
                other = self._missing(q)
                if other >= 0 and self.heads[other]:
                    text.append(f"{label(q)} waits for core {other // size} to share it")
                    q = other
                    continue
                what = "barrier" if other < 0 else "multicast load"
                text.append(f"{label(q)} is at a {what} that another core never reaches")
                break
            e, k = blocked[0]
            text.append(f"{label(q)} waits for {self.queues[e % size]} >= {k}")
            if not self.heads[e]:
                text.append(f"{self.queues[e % size]} ends at {self.retired[e]}")
                break
            q = e
        else:
            text = text[seen.index(q) :]
        return ModelError(f"deadlock: {'; '.join(text)}", where=where, code="NF-SIM-011")


def _queue(command: Command, index: int, core: int, queues: tuple[str, ...]) -> int:
    """The queue within the core, checked against the opcode and the target."""
    where = Where(value=f"command {index} of core {core} ({command.opcode})")
    if command.queue >= len(queues):
        raise ModelError(
            f"queue {command.queue} of a target with {len(queues)}", where=where, code="NF-DECODE-003",
        )
    kind = opcodes()[command.opcode].queue
    if kind != "ANY" and not queues[command.queue].startswith(kind):
        raise ModelError(
            f"{command.opcode} in queue {queues[command.queue]}", where=where, code="NF-DECODE-004",
        )
    if len(command.wait) > len(queues):
        raise ModelError(
            f"it waits for queue {len(command.wait) - 1} of {len(queues)}", where=where, code="NF-DECODE-005",
        )
    return command.queue


def _distances(program: Program, order: Order, totals: Sequence[int]) -> None:
    """No queue may run 2^15 commands ahead of a count that another still compares
    with: 16 bits would be ambiguous."""
    if max(totals, default=0) < HALF:
        return
    size = len(order.queues)
    by_queue = [np.flatnonzero(order.queue == q) for q in range(len(totals))]
    for other in (r for r, total in enumerate(totals) if total >= HALF):
        core, e = divmod(other, size)
        for q in range(core * size, (core + 1) * size):
            if q == other:
                continue
            known = order.start[by_queue[q], other].astype(np.int64)
            commands = [program.decoded[core][order.sequence[i][1]] for i in by_queue[q].tolist()]
            counts = np.array([c.wait[e] if e < len(c.wait) else 0 for c in commands], np.int64)
            targets = known + ((counts - known + HALF) % (2 * HALF) - HALF)
            # commands of `other` that cannot have retired before this one starts: those that start after it
            free = np.searchsorted(order.start[by_queue[other], q], order.position[by_queue[q]] + 1)
            beyond = free - targets
            if (beyond >= HALF).any():
                i = int(np.argmax(beyond >= HALF))
                index = order.sequence[int(by_queue[q][i])][1]
                raise ModelError(
                    f"{order.queues[e]} may be {int(beyond[i])} commands beyond the awaited "
                    f"{int(targets[i])}; "
                    "16 bits distinguish 32767",
                    where=Where(value=f"command {index} of core {core} ({commands[i].opcode})"),
                    code="NF-DECODE-006",
                )
