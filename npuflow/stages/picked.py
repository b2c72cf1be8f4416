"""The calibration samples that weights are rounded by."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

from npuflow.engine.rounding.config import Counting, rounds
from npuflow.flow.stage import Items, stage
from npuflow.stages.samples import Sample


@dataclass(frozen=True)
class Picked(Sample):
    """One of them."""


@stage(when="round", wanted=rounds)
def picked(samples: Items[Sample], table: Counting) -> Iterator[tuple[str, Picked]]:
    """The first that can be read, as many as the recipe has it."""
    whole = ((name, one.content) for name, one in samples.items() if not one.content.broken)
    for name, content in islice(whole, table.samples):
        yield name, Picked(content)
