"""Bytes from local memory into external memory."""

from __future__ import annotations

from collections.abc import Iterator

from npuflow.hw.command import Command
from npuflow.hw.isa import DMA, OPCODES, Fields
from npuflow.hw.region import LOCAL, Region
from npuflow.isa._transfers import BusTransferOpcode


@OPCODES.entry
class StoreOpcode(BusTransferOpcode):
    """external[i0..i5] = local[i0..i5] for i < dims; `space` must be DATA."""

    code = 2
    name = "STORE"
    queue = "STORE"
    fields = DMA

    def problems(self, f: Fields) -> Iterator[str]:
        yield from super().problems(f)
        if f["space"] != "DATA":
            yield "STORE writes DATA only"

    def accesses(self, c: Command) -> Iterator[Region]:
        dims, size = c.vector("dims"), c.number("element")
        yield Region("local", LOCAL, False, c.number("local"), size, dims, c.vector("local_strides"))
        strides, space = c.vector("external_strides"), c.text("space")
        yield Region("external", space, True, c.number("external"), size, dims, strides)
