"""The event-driven clock: cycles from decoded words and the target's constants alone; it never looks at data.

A queue starts a command when its previous one has retired and every awaited count is reached. LOAD and STORE
spend command + setup + row cycles, then move whole bursts over external memory (or the chip's shared memory),
whose bandwidth all transfers in flight share equally. TENSOR and VECTOR commands take the cycles that
`terms_of` states. A bank of local memory serves `bank_ports` commands at once; one that comes when they are
taken waits out the bytes that both have in it. A multicast load occupies the queue of each of its cores from
its arrival there; once all have arrived, it is one transfer. The host takes no time.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from npuflow.hw.command import Command
from npuflow.hw.isa import Terms, opcodes
from npuflow.hw.target import Target
from npuflow.kernels.cycles import bank_bytes, burst_bytes, in_shared, terms_of
from npuflow.program.container import Program
from npuflow.program.order import Order

Floats = npt.NDArray[np.float64]
EXTERNAL, SHARED = 0, 1


@dataclass(frozen=True)
class Timeline:
    """Per command, in the order's numbering: `start` and `end` in cycles, `ready` (its queue was
    free), external bytes moved, bytes moved in the chip's shared memory, cycles waited for banks, and
    the terms of its own latency."""

    start: Floats
    end: Floats
    ready: Floats
    moved: Floats
    shared: Floats
    banks: Floats
    terms: tuple[Terms, ...]
    cycles: float


def timeline_of(program: Program, order: Order, target: Target | None = None) -> Timeline:
    """Run the clock over all segments; each begins when the one before it has ended. `target`: the machine
    that runs the commands, where it is not the one that they were compiled for."""
    return _Clock(program, order, target or program.target).run()


class _Clock:
    def __init__(self, program: Program, order: Order, target: Target) -> None:
        self.target, self.order = target, order
        n = len(order.sequence)
        self.commands = [program.decoded[core][index] for core, index in order.sequence]
        self.terms = tuple(terms_of(c, self.target) for c in self.commands)
        self.start, self.end, self.ready, self.due = ([0.0] * n for _ in range(4))
        self.moved, self.shared, self.banks = ([0.0] * n for _ in range(3))
        width = len(order.queues) * len(program.commands)
        self.lists: list[list[int]] = [[] for _ in range(width)]      # commands of each queue, all segments
        self.queue_of = [int(q) for q in order.queue]
        for i, q in enumerate(self.queue_of):
            self.lists[q].append(i)
        self.next, self.retired = [0] * width, [0] * width
        self.free = [0.0] * width
        self.limits = [0] * width
        self.events: list[tuple[float, int, str]] = []
        memory = self.target.memory
        self.widths = (memory.external_bandwidth, memory.shared_bandwidth)
        self.left: tuple[dict[int, float], dict[int, float]] = ({}, {})   # bytes in flight, by memory
        self.now = 0.0
        self.arrived: dict[tuple[Any, ...], list[int]] = {}
        self.running: dict[int, int] = {}                             # queue -> command
        self.touched: dict[int, dict[int, float]] = {}                # command in flight -> bytes by bank
        # multicast load -> the same on the other cores
        self.sharers: dict[int, list[int]] = {}
        self.leads: dict[int, int] = {}                               # and back

    def run(self) -> Timeline:
        for first, last in self.order.segments:
            for q, members in enumerate(self.lists):
                self.limits[q] = sum(1 for i in members if first <= i < last) + self.next[q]
                self.free[q] = self.now
            self._segment()
        columns = (self.start, self.end, self.ready, self.moved, self.shared, self.banks)
        start, end, ready, moved, shared, banks = (np.array(c, np.float64) for c in columns)
        return Timeline(start, end, ready, moved, shared, banks, self.terms, self.now)

    def _segment(self) -> None:
        self._issue(range(len(self.lists)))
        while self.events or any(self.left):
            moment, done, place = min(self._next_transfer(p) for p in (EXTERNAL, SHARED))
            if self.events and self.events[0][0] <= moment:
                moment, i, phase = heapq.heappop(self.events)
                self._flow(moment)
                if phase == "move":
                    self.left[SHARED if self.shared[i] else EXTERNAL][i] = self.shared[i] or self.moved[i]
                    continue
                self._retire(i)
            else:
                self._flow(moment)
                del self.left[place][done]
                self._retire(done)
            self._issue(range(len(self.lists)))

    def _rate(self, place: int) -> float:
        return min(
            float(self.target.memory.local_bandwidth), self.widths[place] / max(1, len(self.left[place]))
        )

    def _next_transfer(self, place: int) -> tuple[float, int, int]:
        left = self.left[place]
        if not left:
            return float("inf"), -1, place
        i = min(left, key=lambda j: (left[j], j))
        return self.now + left[i] / self._rate(place), i, place

    def _flow(self, moment: float) -> None:
        """Let the transfers in flight run until `moment`."""
        for place, left in enumerate(self.left):
            if left:
                step = (moment - self.now) * self._rate(place)
                for i in left:
                    left[i] -= step
        self.now = moment

    def _retire(self, i: int) -> None:
        q = self.queue_of[i]
        self.end[i] = self.free[q] = self.now
        self.retired[q] += 1
        del self.running[q]
        self.touched.pop(i, None)
        for j in self.sharers.pop(i, ()):
            del self.leads[j]
            self._retire(j)

    def _issue(self, queues: range) -> None:
        for q in queues:
            if q in self.running or self.next[q] >= self.limits[q]:
                continue
            i = self.lists[q][self.next[q]]
            if any(self.retired[e] < k for e, k in self.order.waits[i]):
                continue
            self.next[q] += 1
            self.start[i], self.ready[i] = self.now, self.free[q]
            self._begin(i, q)
            self.running[q] = i

    def _begin(self, i: int, q: int) -> None:
        command = self.commands[i]
        if command.opcode == "BARRIER":
            self._barrier(i, command)
            return
        if command.opcode == "LOAD" and command.number("mask"):
            self._share(i, command)
            return
        if self.target.memory.bank_ports:
            self.banks[i] = self._conflict(i, q, command)
        self.due[i] = self.now + self.terms[i].total + self.banks[i]
        transfers = opcodes()[command.opcode].transfers
        if transfers:
            inside = in_shared(command, self.target.memory)
            (self.shared if inside else self.moved)[i] = burst_bytes(command, self.target)
        heapq.heappush(self.events, (self.due[i], i, "move" if transfers else "end"))

    def _conflict(self, i: int, q: int, command: Command) -> float:
        """Cycles for which the command's banks have no port left: the bytes that it and
        those in flight both have there."""
        mine = self.touched[i] = bank_bytes(command, self.target.memory)
        ports, size = self.target.memory.bank_ports, len(self.order.queues)
        others: dict[int, list[float]] = {}
        for other, j in self.running.items():
            if other // size != q // size or j not in self.touched:
                continue
            rest = self._rest(j)
            for bank, amount in self.touched[j].items():
                if bank in mine:
                    others.setdefault(bank, []).append(amount * rest)
        waited = 0.0
        for bank, amounts in others.items():
            if len(amounts) >= ports:
                waited += min(mine[bank], sum(sorted(amounts)[: len(amounts) - ports + 1]))
        return waited / self.target.memory.local_bandwidth

    def _rest(self, j: int) -> float:
        """The part of a running command's accesses that is still to come."""
        j = self.leads.get(j, j)
        for place, amount in ((EXTERNAL, self.moved[j]), (SHARED, self.shared[j])):
            if amount:
                return float(self.left[place].get(j, amount) / amount)
        length = self.due[j] - self.start[j]
        return float((self.due[j] - self.now) / length) if length else 0.0

    def _share(self, i: int, command: Command) -> None:
        """The last core to arrive starts a multicast load for all: as long as the slowest of
        them takes, the bytes once."""
        mask, size = command.number("mask"), len(self.order.queues)
        waiting = self.arrived.setdefault(("LOAD", mask, self.queue_of[i] % size), [])
        waiting.append(i)
        if len(waiting) < mask.bit_count():
            return
        del self.arrived["LOAD", mask, self.queue_of[i] % size]
        lead, *others = sorted(waiting, key=lambda j: self.queue_of[j])
        if self.target.memory.bank_ports:
            for j in waiting:
                self.banks[j] = self._conflict(j, self.queue_of[j], self.commands[j])
        due = self.now + max(self.terms[j].total + self.banks[j] for j in waiting)
        for j in waiting:
            self.due[j] = due
        self.sharers[lead] = others
        self.leads.update(dict.fromkeys(others, lead))
        inside = in_shared(command, self.target.memory)
        (self.shared if inside else self.moved)[lead] = burst_bytes(command, self.target)
        heapq.heappush(self.events, (due, lead, "move"))

    def _barrier(self, i: int, command: Command) -> None:
        """The last core to arrive releases all of them."""
        key = (command.number("id"), command.number("mask"))
        waiting = self.arrived.setdefault(key, [])
        waiting.append(i)
        cores = len(self.lists) // len(self.order.queues)
        members = sum(1 for core in range(cores) if command.number("mask") >> core & 1)
        if len(waiting) >= members:
            for j in self.arrived.pop(key):
                heapq.heappush(self.events, (self.now + self.target.compute.command_cycles, j, "end"))
