"""The table [distillation]: how weights are trained to give what the float network gives."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from npuflow.base.tables import Config, Range


@dataclass(frozen=True)
class Distillation(Config, table="distillation"):
    """How weights are trained with `[round] mode = "distilled"`."""

    steps: Annotated[int, Range(1, 1_000_000)] = 1000
    """Each along the gradient of some samples."""
    batch: Annotated[int, Range(1, 1024)] = 8
    """Samples a step."""
    rate: Annotated[float, Range(1e-7, 1)] = 0.001
    """How far a weight moves in a step, as a share of its layer's root mean square; rises at first, falls
    by a cosine."""
    inner: Annotated[float, Range(0, 1000)] = 1.0
    """Weight of what leaves the blocks of layers inside the network, beside the outputs."""
    mix: Annotated[float, Range(0, 1)] = 0.0
    """Share of the samples that are blended with another, element by element; of float inputs only."""
    mirror: bool = False
    """Half of the samples are mirrored along the last dimension of inputs [1, channels, height, width]."""
    seed: int = 0
    """Of the order of the samples."""
