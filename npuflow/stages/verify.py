"""The calibration samples that no choice has seen."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from npuflow.flow.stage import Items, stage
from npuflow.stages.samples import Sample
from npuflow.stages.splits import Splits, part_of


@dataclass(frozen=True)
class VerifyingSample(Sample):
    """One of them."""


@stage(quick=True, minor=True)
def verify(samples: Items[Sample], splits: Splits) -> Iterator[tuple[str, VerifyingSample]]:
    """Samples of a type of their own: a stage that does not ask for it does not see them."""
    for name, content in part_of(samples, splits.verify):
        yield name, VerifyingSample(content)
