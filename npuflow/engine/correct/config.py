"""The [correct] table: corrections of the quantised network."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from npuflow.base.tables import Config, Range

Choice = Literal["off", "auto", "on"]     # auto: kept where the error on held-out samples gets smaller


@dataclass(frozen=True)
class Correct(Config):
    """Corrections of the quantised network, from calibration samples alone; the table switches the step on."""

    bias: Choice = "auto"
    """Take what quantisation adds to the mean of each layer's outputs out of the layer's bias; "on" asks no judge."""
    samples: Annotated[int, Range(2, None)] = 128
    """Calibration samples used, the held-out ones included."""
    held_out: Annotated[int, Range(1, None)] = 32
    """Of these, how many only judge."""
