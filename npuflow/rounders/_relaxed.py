"""Choices between two neighbours as numbers that descend: rectified sigmoids, pushed to one end, and Adam."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]

WIDE, LOW = 1.2, -0.1                     # of the rectified sigmoid: its span, and where that begins
BETA = (20.0, 2.0)                        # exponents of the regulariser, first and last
FREE = 0.2                                # share of the steps without it
MOMENTS = (0.9, 0.99)                     # decay of Adam's averages
END = 8.0                                 # of a variable: the sigmoid is flat there
TINY = 1e-30


@dataclass
class Descending:
    """Numbers with the averages of Adam."""

    at: Floats

    def __post_init__(self) -> None:
        self.slope, self.square, self.count = np.zeros_like(self.at), np.zeros_like(self.at), 0

    def move(self, slope: Floats, rate: float) -> None:
        """One step against the slope."""
        first, second = MOMENTS
        self.count += 1
        self.slope += np.float32(1 - first) * (slope - self.slope)
        self.square += np.float32(1 - second) * (slope * slope - self.square)
        mean = self.slope / np.float32(1 - first**self.count)
        size = np.sqrt(self.square / np.float32(1 - second**self.count))
        self.at -= np.float32(rate) * mean / (size + np.float32(TINY))


@dataclass
class Relaxed:
    """How much of a step every weight takes, from 0 to 1. `free`: those that may take it."""

    variable: Descending
    free: npt.NDArray[np.bool_]

    @classmethod
    def of(cls, share: npt.NDArray[np.float64], free: npt.NDArray[np.bool_]) -> Relaxed:
        """Steps taken by these shares at first."""
        inner = np.where(free, share, 0.5)
        return cls(Descending(np.log((inner - LOW) / (WIDE + LOW - inner)).astype(np.float32)), free)

    @property
    def taken(self) -> Floats:
        soft = 1 / (1 + np.exp(-self.variable.at))
        return np.asarray(np.where(self.free, np.clip(WIDE * soft + np.float32(LOW), 0, 1), 0), np.float32)

    def descend(self, slope: Floats, rate: float, push: float, done: float) -> None:
        """`slope`: of the error by what is taken; `push`: weight of the regulariser; `done`: the share of all
        steps that were made."""
        soft = 1 / (1 + np.exp(-self.variable.at))
        up = np.clip(WIDE * soft + np.float32(LOW), 0, 1)
        if done >= FREE:
            beta = BETA[1] + (BETA[0] - BETA[1]) * (1 + np.cos((done - FREE) / (1 - FREE) * np.pi)) / 2
            far = 2 * up - 1
            steep = np.sign(far) * np.abs(far) ** np.float32(beta - 1)
            slope = (slope - np.float32(2 * push * beta) * steep).astype(np.float32)
        inner = np.where(self.free & (up > 0) & (up < 1), WIDE * soft * (1 - soft), 0)
        self.variable.move((slope * inner).astype(np.float32), rate)
        np.clip(self.variable.at, -END, END, out=self.variable.at)
