"""Bytes from local memory into external memory."""

from __future__ import annotations

from collections.abc import Iterator

from npuflow.engine.opcodes import _transfers as transfers
from npuflow.engine.sim.memory import Memory
from npuflow.engine.sim.opcode import Simulated, Step
from npuflow.engine.sim.operands import Bench
from npuflow.hw.command import Command
from npuflow.hw.isa import DMA, OPCODES, Fields, Terms
from npuflow.hw.region import LOCAL, Region
from npuflow.hw.target import Target


@OPCODES.entry
class Store(Simulated):
    """external[i0..i5] = local[i0..i5] for i < dims; `space` must be DATA."""

    code = 2
    name = "STORE"
    queue = "STORE"
    fields = DMA
    copies = True

    def problems(self, f: Fields) -> Iterator[str]:
        yield from transfers.problems(f)
        if f["space"] != "DATA":
            yield "STORE writes DATA only"

    def accesses(self, c: Command) -> Iterator[Region]:
        dims, size = c.vector("dims"), c.number("element")
        yield Region("local", LOCAL, False, c.number("local"), size, dims, c.vector("local_strides"))
        strides, space = c.vector("external_strides"), c.text("space")
        yield Region("external", space, True, c.number("external"), size, dims, strides)

    def latency(self, c: Command, target: Target) -> Terms:
        return transfers.latency(c, target)

    def execute(self, memory: Memory, c: Command) -> None:
        transfers.execute(memory, c)

    def bind(self, bench: Bench, i: int, c: Command) -> Step | None:
        return transfers.bind(bench, i, c)
