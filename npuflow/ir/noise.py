"""Signal, noise and decibels: one definition of what no noise, no signal and no numbers give."""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite, log10

import numpy as np

from npuflow.ir.types import Array

EXACT = 200.0                             # dB without noise; nothing counts as worse than its negative
LARGEST = float(np.finfo(np.float32).max)  # what an infinity counts as


def decibels(signal: float, noise: float) -> float:
    """Signal over noise, both as energies, from -200 to 200 dB. However small both are, their ratio counts.
    No noise: 200. Noise without a signal, and noise that is no number: -200."""
    if noise <= 0.0:
        return EXACT
    if not (isfinite(noise) and isfinite(signal)) or signal <= 0.0:
        return -EXACT
    return min(max(10 * (log10(signal) - log10(noise)), -EXACT), EXACT)


def measured(signal: float, noise: float) -> float | None:
    """The same; None where there is no noise, for figures that say "exact"."""
    return None if noise == 0.0 else decibels(signal, noise)


def ratio_decibels(ratio: Array) -> Array:
    """Ratios of energies, each above 0, in decibels, element by element."""
    found: Array = 10 * np.log10(ratio)
    return found


def noise_decibels(noise: Array) -> Array:
    """Noise over signal, element by element, as signal over noise from -200 to 200 dB. No number: -200."""
    found = np.nan_to_num(np.asarray(noise, np.float64), nan=np.inf, posinf=np.inf)
    return -ratio_decibels(np.clip(found, 10 ** (-EXACT / 10), 10 ** (EXACT / 10)))


def energy(array: Array) -> float:
    """The sum of squares of all values that are numbers."""
    wide = np.asarray(array, np.float64).ravel()
    found = float(wide @ wide)
    if isfinite(found):
        return found
    wide = wide[np.isfinite(wide)]
    return float(wide @ wide)


def difference(made: Array, truth: Array) -> Array:
    """What `made` has beside `truth`, in float64. Where the truth is no finite number nothing is compared;
    where only the other is none, all of it is noise."""
    plain = np.asarray(made, np.float64)
    with np.errstate(invalid="ignore"):
        own = plain if plain is not made and plain.shape == truth.shape else None
        plain = np.subtract(plain, truth, out=own)
    if np.isfinite(plain).all():
        return plain
    wide, found = truth.astype(np.float64), made.astype(np.float64)
    real, found = np.isfinite(wide), np.nan_to_num(found, posinf=LARGEST, neginf=-LARGEST)
    return np.where(real, found - np.where(real, wide, 0.0), 0.0)


@dataclass
class SignalToNoise:
    """Energies of a signal and of what differs from it, over any number of arrays."""

    signal: float = 0.0
    noise: float = 0.0

    def add(self, real: Array, found: Array) -> None:
        """One more array and what was found instead; of another shape, that counts as zeros."""
        own = energy(real)
        self.noise += energy(difference(found, real)) if found.shape == real.shape else own
        self.signal += own

    @property
    def decibels(self) -> float:
        return decibels(self.signal, self.noise)

    @property
    def measured(self) -> float | None:
        """None: no noise."""
        return measured(self.signal, self.noise)

    @property
    def ratio(self) -> float:
        """Noise over signal; huge where there is only noise."""
        return self.noise / max(self.signal, 1e-200)
