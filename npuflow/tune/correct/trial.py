"""What a correction did to the error on held-out samples, and whether it was kept."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from npuflow.ir.noise import decibels as level

NETWORK = "the network's outputs"


@dataclass(frozen=True)
class Trial:
    """`before`, `after`: noise over signal on held-out samples, at the layer's own output or the network's
    outputs; None where a layer is judged with all others alone.
    """

    correction: str                       # bias, equalize, absorb, unify, round
    layer: str                            # a node's name, names of the layers around a value, or NETWORK
    before: float | None
    after: float | None
    kept: bool
    # the largest: bias and absorb in codes and real units, equalize and unify as a factor
    change: float = 0.0
    reason: str = ""                      # why it was not possible

    def line(self) -> str:
        """For logs."""
        what = f"{self.correction} {self.layer}: "
        if self.reason:
            return f"{what}not possible: {self.reason}"
        if self.before is None:
            return f"{what}by up to {self.change:.4g}"
        return f"{what}{self.errors()}, {'kept' if self.kept else 'rejected'}"

    def errors(self) -> str:
        """Without and with the correction, for eyes."""
        return f"{decibels(self.before)} -> {decibels(self.after)}"


def summary(trials: Sequence[Trial]) -> dict[str, str]:
    """Per correction the figure that decided."""
    whole = (t for t in trials if t.layer == NETWORK)
    return {f"{t.correction}_{'kept' if t.kept else 'rejected'}": t.reason or t.errors() for t in whole}


def decibels(error: float | None) -> str:
    """Signal over noise."""
    return "" if error is None else "exact" if error <= 0 else f"{level(1.0, error):.2f} dB"
