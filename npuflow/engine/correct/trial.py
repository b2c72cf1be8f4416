"""What a correction did to the error on held-out samples, and whether it was kept."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf, log10

NETWORK = "the network's outputs"


@dataclass(frozen=True)
class Trial:
    """`before`, `after`: noise over signal on held-out samples, at the layer's own output (or the network's)."""

    correction: str                       # bias, equalize, absorb
    layer: str                            # a node's name, or NETWORK
    before: float
    after: float
    kept: bool
    change: float = 0.0                   # the largest: bias in codes of the output, equalize as a factor
    reason: str = ""                      # why it could not be tried

    def line(self) -> str:
        what = f"{self.correction} {self.layer}: "
        if self.reason:
            return f"{what}not possible: {self.reason}"
        return f"{what}{self.errors()}, {'kept' if self.kept else 'rejected'}"

    def errors(self) -> str:
        return f"{decibels(self.before)} -> {decibels(self.after)}"


def decibels(error: float) -> str:
    """Signal over noise, for eyes."""
    return "exact" if error <= 0 else "no signal" if error == inf else f"{-10 * log10(error):.2f} dB"
