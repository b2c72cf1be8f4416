"""The calibration samples that ranges, codes and corrections come from."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from npuflow.flow.stage import Items, stage
from npuflow.stages.samples import Sample
from npuflow.stages.splits import Splits, part_of


@dataclass(frozen=True)
class FitSample(Sample):
    """One of them."""


@stage(quick=True, minor=True)
def fit(samples: Items[Sample], splits: Splits) -> Iterator[tuple[str, FitSample]]:
    """Samples of a type of their own: a stage that does not ask for it does not see them. Those that could
    not be read are here, last, whatever their part: statistics report them."""
    for name, content in part_of(samples, splits.fit):
        yield name, FitSample(content)
    for name, one in samples.items():
        if one.content.broken:
            yield name, FitSample(one.content)
