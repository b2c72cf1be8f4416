"""The tables [equalize], before statistics are taken, and [correct], after quantisation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from npuflow.base.tables import Config, Range

Choice = Literal["off", "auto", "on"]     # auto: kept where the error on held-out samples gets smaller


@dataclass(frozen=True)
class Equalize(Config):
    """Changes of the float network that leave its function as it is; the table switches the step on."""

    scale: Choice = "auto"
    """Scale channels between layers until the weights around them have equal ranges; "on"
    keeps it without a comparison."""
    absorb: Choice = "auto"
    """Absorb what a channel never falls below into the biases of the layers that read it."""
    smooth: Choice = "auto"
    """Move large channels of activations into the weights that read them (SmoothQuant), where the division
    folds into constants above them; alpha is chosen for every layer."""
    rotate: Choice = "off"
    """Mix the channels of a pre-norm transformer's residual stream, and those of the values of each head of
    an attention, by orthogonal (Hadamard) matrices, which fold into the layers around them; "auto" keeps
    either where held-out samples say so. Off by default: where something else writes or reads the stream,
    products with the matrix stay, which cost cycles. Rotated values cost none."""
    corrected: bool = True
    """Compare with biases corrected, as a [correct] table does it."""
    rounds: Annotated[int, Range(1, 1000)] = 40
    """How often scales are balanced at most."""
    limit: Annotated[float, Range(1, None)] = 1024.0
    """No channel is scaled by more than this, or by less than its inverse."""
    samples: Annotated[int, Range(2, None)] = 64
    """Calibration samples that judge: quantised networks with and without the change
    are compared on some of them."""
    held_out: Annotated[int, Range(1, None)] = 24
    """How many of these are compared; the others give the thresholds for the comparison."""


@dataclass(frozen=True)
class Unify(Config):
    """One range for all that an addition reads; the table switches the step on."""

    scales: Choice = "auto"
    """Tried one operator after the other; "on" keeps it without a comparison."""
    samples: Annotated[int, Range(2, None)] = 64
    """Calibration samples used, the held-out ones included."""
    held_out: Annotated[int, Range(1, None)] = 16
    """How many of these only judge."""


@dataclass(frozen=True)
class Correct(Config):
    """Corrections of the quantised network, from calibration samples alone; the
    table switches the step on."""

    bias: Choice = "auto"
    """Remove the mean error of each layer's outputs by its bias; "on" keeps it without a comparison."""
    samples: Annotated[int, Range(2, None)] = 128
    """Calibration samples used, the held-out ones included."""
    held_out: Annotated[int, Range(1, None)] = 32
    """How many of these only judge."""
