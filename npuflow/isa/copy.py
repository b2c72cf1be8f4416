"""Bytes from one place of local memory to another."""

from __future__ import annotations

from collections.abc import Iterator

from npuflow.hw.command import Command
from npuflow.hw.isa import OPCODES, Field, numbers
from npuflow.hw.region import LOCAL, Region
from npuflow.isa._transfers import TransferOpcode


@OPCODES.entry
class CopyOpcode(TransferOpcode):
    """Local to local: y[i0..i5] = x[i0..i5], `element` bytes each."""

    code = 19
    name = "COPY"
    queue = "VECTOR"
    fields = (
        Field("x", access="read"), Field("y", access="write"),
        *numbers("element dims:6 x_strides:6! y_strides:6!"),
    )

    def accesses(self, c: Command) -> Iterator[Region]:
        dims, size = c.vector("dims"), c.number("element")
        yield Region("x", LOCAL, False, c.number("x"), size, dims, c.vector("x_strides"))
        yield Region("y", LOCAL, True, c.number("y"), size, dims, c.vector("y_strides"))
