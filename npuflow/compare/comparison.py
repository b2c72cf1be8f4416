"""A tensor over many samples beside what it should be: signal, noise and cosine."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from npuflow.ir.noise import SignalToNoise
from npuflow.ir.types import Array


@dataclass
class Comparison(SignalToNoise):
    """Sums over arrays of equal shape; of other shapes, what was found counts as zeros.

    `other`, `cross`: the energy of what was found, and the product of both. `strange`: values that should be
    no numbers (NaN, infinity), which are not compared. The cosine counts what is no number as zeros.
    """

    other: float = 0.0
    cross: float = 0.0
    strange: int = 0

    def add(self, real: Array, found: Array) -> None:
        super().add(real, found)
        if found.shape != real.shape:
            return
        a, b = (array.astype(np.float64).ravel() for array in (real, found))
        numbers, both = np.isfinite(a), np.isfinite(a) & np.isfinite(b)
        self.strange += int(a.size - np.count_nonzero(numbers))
        if not both.all():
            a, b = a[both], b[both]
        self.other += float((b**2).sum())
        self.cross += float(a @ b)

    @property
    def cosine(self) -> float:
        """0 where one of the two is 0 throughout, 1 where both are."""
        norm = float(np.sqrt(self.signal * self.other))
        return self.cross / norm if norm else float(self.signal == self.other)
