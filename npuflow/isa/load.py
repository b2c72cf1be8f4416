"""Bytes from external memory into local memory, for one core or several at once."""

from __future__ import annotations

from collections.abc import Iterator

from npuflow.hw.command import Command
from npuflow.hw.isa import DMA, OPCODES, numbers
from npuflow.hw.region import LOCAL, Region
from npuflow.isa._transfers import BusTransferOpcode


@OPCODES.entry
class LoadOpcode(BusTransferOpcode):
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

    def accesses(self, c: Command) -> Iterator[Region]:
        dims, size = c.vector("dims"), c.number("element")
        strides, space = c.vector("external_strides"), c.text("space")
        yield Region("external", space, False, c.number("external"), size, dims, strides)
        yield Region("local", LOCAL, True, c.number("local"), size, dims, c.vector("local_strides"))
