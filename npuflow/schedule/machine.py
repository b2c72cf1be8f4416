"""The parts of a target that schedules and their time depend on."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from npuflow.hw.target import Compute, Dma, Memory

Amount = TypeVar("Amount", float, npt.NDArray[np.float64])


@dataclass(frozen=True)
class Machine:
    """The slices of a target that the time of one inference depends on: of `all_cores` it has those of
    `compute`. `inside`: activations lie in the chip's shared memory. `together`: cores that run a layer side
    by side, each with its part of the bandwidth, and load together what the axis `apart` does not cut."""

    all_cores: Compute
    memory: Memory
    dma: Dma
    inside: bool = False
    together: int = 1
    apart: str | None = None
    byte_cost: float = 0.0

    @cached_property
    def compute(self) -> Compute:
        return self.all_cores.of_one_inference

    def worth(self, cycles: Amount, moved: Amount) -> Amount:
        """What a search has least of: cycles, and external bytes at what they are worth."""
        return cycles + self.byte_cost * moved if self.byte_cost else cycles

    @property
    def activation_width(self) -> float:
        """Bytes per cycle of the memory that activations live in."""
        return self.memory.shared_bandwidth if self.inside else self.memory.external_bandwidth
