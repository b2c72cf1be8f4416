"""Bytes from external memory into local memory, for one core or several at once."""

from __future__ import annotations

from collections.abc import Iterator

from npuflow.engine.opcodes import _transfers as transfers
from npuflow.engine.sim.memory import Memory
from npuflow.engine.sim.opcode import Simulated, Step
from npuflow.engine.sim.operands import Bench
from npuflow.hw.command import Command
from npuflow.hw.isa import DMA, OPCODES, Fields, Terms, numbers
from npuflow.hw.region import LOCAL, Region
from npuflow.hw.target import Target


@OPCODES.entry
class Load(Simulated):
    """local[i0..i5] = external[i0..i5] for i < dims; `element` bytes each (1, 2, 4 or 8). mask 0: of this
    core alone. Else a multicast load of the cores in the mask: the k-th LOAD with this mask in a queue is
    the same transfer on each of them, from the same external bytes to each core's own `local`; it
    starts when all have arrived at it, the bytes cross external memory's bus once, and it retires on all
    cores together.
    """

    code = 1
    name = "LOAD"
    queue = "LOAD"
    fields = (*DMA, *numbers("mask"))
    copies = True

    def problems(self, f: Fields) -> Iterator[str]:
        return transfers.problems(f)

    def accesses(self, c: Command) -> Iterator[Region]:
        dims, size = c.vector("dims"), c.number("element")
        strides, space = c.vector("external_strides"), c.text("space")
        yield Region("external", space, False, c.number("external"), size, dims, strides)
        yield Region("local", LOCAL, True, c.number("local"), size, dims, c.vector("local_strides"))

    def latency(self, c: Command, target: Target) -> Terms:
        return transfers.latency(c, target)

    def execute(self, memory: Memory, c: Command) -> None:
        transfers.execute(memory, c)

    def bind(self, bench: Bench, i: int, c: Command) -> Step | None:
        return transfers.bind(bench, i, c)
