"""Shadows: tensors that only local memory holds, put together from the boxes that taps
show as commands make them."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from npuflow.kernels.memory import SimulatedMemory
from npuflow.program.taps import Tap, Tapped

Array = npt.NDArray[Any]


class Shadow:
    """One value for B samples: what was `seen` of it, where, and where two commands made
    different things of one element."""

    def __init__(self, value: Tapped, batch: int) -> None:
        self.value = value
        self.array: Array = np.zeros((batch, *value.shape), value.dtype)
        self.seen: Array = np.zeros(value.shape, bool)
        self.torn: Array | None = None           # [B, *shape]; most tensors never need it

    def take(self, memory: SimulatedMemory, core: int, tap: Tap) -> None:
        """Read what lies in local memory now; an element that is there already must be the same."""
        now = memory.view(memory.local[core], tap.address, self.value.dtype, tap.extent, tap.strides)
        at = tuple(slice(a, b) for a, b in tap.box)
        mine, seen = self.array[(slice(None), *at)], self.seen[at]
        if seen.any():
            wrong = (mine != now) & seen
            if wrong.any():
                self.torn = np.zeros(self.array.shape, bool) if self.torn is None else self.torn
                self.torn[(slice(None), *at)] |= wrong
        mine[...] = now
        self.seen[at] = True
