"""The calibration samples by which one choice is taken and not another."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from npuflow.flow.stage import Items, stage
from npuflow.stages.samples import Sample
from npuflow.stages.splits import Splits, part_of


@dataclass(frozen=True)
class ChoosingSample(Sample):
    """One of them."""


@stage(quick=True, minor=True)
def choose(samples: Items[Sample], splits: Splits) -> Iterator[tuple[str, ChoosingSample]]:
    """Samples of a type of their own: a stage that does not ask for it does not see them."""
    for name, content in part_of(samples, splits.choose):
        yield name, ChoosingSample(content)
