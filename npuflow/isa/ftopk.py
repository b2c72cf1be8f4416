"""The largest or smallest floats along a dimension, and where they are."""

from __future__ import annotations

import numpy as np

from npuflow.hw.command import Command
from npuflow.hw.floats import infinity
from npuflow.hw.isa import OPCODES, numbers, tensor
from npuflow.isa.topk import Array, TopKOpcode
from npuflow.kernels.floats import floats
from npuflow.kernels.memory import SimulatedMemory


@OPCODES.entry
class FTopK(TopKOpcode):
    """TOPK of floats: elements are moved as they are. NaN comes before every number, whether the largest or
    the smallest are looked for; zeros are equal whatever their sign.
    """

    code = 38
    name = "FTOPK"
    fields = (
        *tensor("x", rank=3, role="float"),
        *tensor("y", "write", 3, optional=True, role="any"),
        *tensor("at", "write", 3, optional=True),
        *numbers("dims:3 count maximum last"),
    )

    def keys(self, memory: SimulatedMemory, c: Command) -> Array:
        value = floats.tensor(memory, c, "x", c.vector("dims"))
        value = np.where(c.number("maximum"), -value, value)
        # numpy sorts NaN to the end: the first are picked from numbers alone, behind all NaN
        return np.where(np.isnan(value), -np.inf, np.clip(value, -1e300, 1e300))

    def top(self, c: Command) -> int:
        return infinity(c.text("x_type"))
