"""The event-driven clock: cycles from decoded words and the target's constants alone; it never looks at data.

A queue starts a command when its previous one has retired and every awaited count is reached. LOAD and STORE spend
command + setup + row cycles, then move whole bursts over external memory, whose bandwidth all transfers in flight
share equally. TENSOR and VECTOR commands take the cycles that `cycles_of` states. The host takes no time.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from math import ceil, prod
from typing import Any

import numpy as np
import numpy.typing as npt

from npuflow.engine.program.container import Program
from npuflow.engine.sim.access import SIZES, regions
from npuflow.engine.sim.order import Order
from npuflow.hw.encode import Command
from npuflow.hw.target import Compute, Target

Floats = npt.NDArray[np.float64]
_VECTOR_COST = {"DIV": 4, "SOFTMAX": 4, "RESIZE": 4}


@dataclass(frozen=True)
class Timeline:
    """Per command, in the order's numbering: `start` and `end` in cycles, `ready` (its queue was free), bytes moved."""

    start: Floats
    end: Floats
    ready: Floats
    moved: Floats
    cycles: float


def rows_of(command: Command) -> tuple[int, int]:
    """(contiguous rows, bytes of each) on the external side of a transfer."""
    found = next(r for r in regions(command) if r.name == "external").squeezed()
    total = prod(command.vector("dims")) * command.number("element")     # a broadcast row is moved as often as it is read
    return max(1, total // found.size), found.size


def burst_bytes(command: Command, target: Target) -> int:
    """What a transfer costs on external memory: every row in whole bursts."""
    rows, size = rows_of(command)
    return rows * ceil(size / target.memory.burst) * target.memory.burst


def cycles_of(command: Command, target: Target) -> int:
    """Cycles of a command on its engine (of a transfer: before its bytes move)."""
    compute = target.compute
    if command.opcode in ("LOAD", "STORE"):
        rows, _ = rows_of(command)
        return compute.command_cycles + target.dma.setup_cycles + target.dma.row_cycles * (rows - 1)
    if command.opcode in ("CONV", "MATMUL"):
        body = _conv(command, compute) if command.opcode == "CONV" else _matmul(command, compute)
        return compute.command_cycles + compute.fill_cycles + body
    if command.opcode == "BARRIER":
        return compute.command_cycles
    return compute.command_cycles + ceil(_elements(command) / compute.vector_lanes)


def _wide(command: Command, compute: Compute, *names: str) -> int:
    return compute.wide_factor if any(SIZES[command.text(f"{n}_type")] > 1 for n in names) else 1


def _conv(c: Command, compute: Compute) -> int:
    groups, out = c.number("groups"), c.number("out_channels")
    per_in, per_out = c.vector("x_dims")[1] // groups, out // groups
    area, pixels = prod(c.vector("kernel")), c.number("batch") * c.number("out_height") * c.number("out_width")
    wide = _wide(c, compute, "x", "w")
    if per_in == 1 and groups > 1:
        return ceil(area * out * pixels / compute.depthwise_macs) * wide
    if compute.dataflow == "weight_stationary":
        passes = area * ceil(per_in / compute.array_rows) * ceil(per_out / compute.array_cols) * groups
        return passes * (ceil(pixels / compute.array_pixels) + compute.pass_cycles) * wide
    passes = groups * ceil(pixels / compute.array_rows) * ceil(per_out / compute.array_cols)
    return passes * (area * per_in + compute.pass_cycles) * wide


def _matmul(c: Command, compute: Compute) -> int:
    batch, m, k, n = (c.number(i) for i in ("batch", "m", "k", "n"))
    wide = _wide(c, compute, "a", "b")
    if compute.dataflow == "weight_stationary":
        passes = batch * ceil(k / compute.array_rows) * ceil(n / compute.array_cols)
        return passes * (ceil(m / compute.array_pixels) + compute.pass_cycles) * wide
    passes = batch * ceil(m / compute.array_rows) * ceil(n / compute.array_cols)
    return passes * (k + compute.pass_cycles) * wide


def _elements(c: Command) -> int:
    """Element operations of a VECTOR command."""
    cost = _VECTOR_COST.get(c.opcode, 1)
    if c.opcode in ("MAXPOOL", "AVGPOOL"):
        cost = prod(c.vector("kernel"))
    if "out_height" in c.fields:
        return prod(c.vector("x_dims")[:2]) * c.number("out_height") * c.number("out_width") * cost
    return prod(c.vector("dims")) * cost


def timeline_of(program: Program, order: Order) -> Timeline:
    """Run the clock over all segments; each begins when the one before it has ended."""
    return _Clock(program, order).run()


class _Clock:
    def __init__(self, program: Program, order: Order) -> None:
        self.target, self.order = program.target, order
        n = len(order.sequence)
        self.commands = [program.decoded[core][index] for core, index in order.sequence]
        self.start, self.end, self.ready = np.zeros(n), np.zeros(n), np.zeros(n)
        self.moved = np.zeros(n)
        width = len(order.queues) * len(program.commands)
        self.lists: list[list[int]] = [[] for _ in range(width)]      # commands of each queue, all segments
        for i in range(n):
            self.lists[int(order.queue[i])].append(i)
        self.next, self.retired = [0] * width, [0] * width
        self.free = [0.0] * width
        self.limits = [0] * width
        self.events: list[tuple[float, int, str]] = []
        self.left: dict[int, float] = {}                              # bytes that transfers in flight still have to move
        self.now = 0.0
        self.arrived: dict[tuple[Any, ...], list[int]] = {}
        self.running: set[int] = set()

    def run(self) -> Timeline:
        for first, last in self.order.segments:
            for q, members in enumerate(self.lists):
                self.limits[q] = sum(1 for i in members if first <= i < last) + self.next[q]
                self.free[q] = self.now
            self._segment()
        return Timeline(self.start, self.end, self.ready, self.moved, self.now)

    def _segment(self) -> None:
        self._issue(range(len(self.lists)))
        while self.events or self.left:
            moment, done = self._next_transfer()
            if self.events and self.events[0][0] <= moment:
                moment, i, phase = heapq.heappop(self.events)
                self._flow(moment)
                if phase == "move":
                    self.left[i] = self.moved[i]
                    continue
                self._retire(i)
            else:
                self._flow(moment)
                del self.left[done]
                self._retire(done)
            self._issue(range(len(self.lists)))

    def _rate(self) -> float:
        memory = self.target.memory
        return min(float(memory.local_bandwidth), memory.external_bandwidth / max(1, len(self.left)))

    def _next_transfer(self) -> tuple[float, int]:
        if not self.left:
            return float("inf"), -1
        i = min(self.left, key=lambda j: (self.left[j], j))
        return self.now + self.left[i] / self._rate(), i

    def _flow(self, moment: float) -> None:
        """Let the transfers in flight run until `moment`."""
        if self.left:
            step = (moment - self.now) * self._rate()
            for i in self.left:
                self.left[i] -= step
        self.now = moment

    def _retire(self, i: int) -> None:
        q = int(self.order.queue[i])
        self.end[i] = self.free[q] = self.now
        self.retired[q] += 1
        self.running.discard(q)

    def _issue(self, queues: range) -> None:
        for q in queues:
            if q in self.running or self.next[q] >= self.limits[q]:
                continue
            i = self.lists[q][self.next[q]]
            if any(self.retired[e] < k for e, k in self.order.waits[i]):
                continue
            self.next[q] += 1
            self.running.add(q)
            self.start[i], self.ready[i] = self.now, self.free[q]
            self._begin(i)

    def _begin(self, i: int) -> None:
        command = self.commands[i]
        latency = cycles_of(command, self.target)
        if command.opcode == "BARRIER":
            self._barrier(i, command)
            return
        if command.opcode in ("LOAD", "STORE"):
            self.moved[i] = burst_bytes(command, self.target)
            heapq.heappush(self.events, (self.now + latency, i, "move"))
            return
        heapq.heappush(self.events, (self.now + latency, i, "end"))

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
