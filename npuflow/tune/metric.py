"""How well networks do their task, by a metric of some labelled samples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from npuflow.ir.noise import EXACT
from npuflow.metrics import Metric, stacked
from npuflow.metrics import Outputs as Named
from npuflow.strategies import Output
from npuflow.tune.judge import Judge
from npuflow.tune.quality import Outputs

Marks = Mapping[str, float]               # a metric's figures; the first one counts


@dataclass
class MetricJudge:
    """A metric and the labelled samples that it judges by, more being better: the objective of [search], and
    `max_drop` of [precision]."""

    judge: Judge
    metric: Metric
    labels: list[Any] | None

    @cached_property
    def truth(self) -> Named:
        """The float network's outputs."""
        return by_name(self.judge.truth, self.judge.real.outputs)

    @cached_property
    def baseline(self) -> Marks:
        """What the float network reaches."""
        return dict(self.metric(self.truth, self.truth, self.labels))

    def marks(self, made: Outputs) -> Marks:
        """What the metric says of a network's outputs."""
        return dict(self.metric(by_name(made, self.judge.real.outputs), self.truth, self.labels))

    def drop(self, made: Outputs) -> Output:
        """What is lost of the first figure, as one more output to be judged."""
        name, reached = next(iter(self.baseline.items()))
        lost = reached - self.marks(made)[name]
        return Output(f"{name} on {len(self.judge.held)} labelled samples", EXACT, EXACT, None, lost)


def by_name(outputs: Sequence[Sequence[Any]], names: Sequence[str]) -> Named:
    """Outputs by their names in the float model, samples along the first axis."""
    return stacked([dict(zip(names, row, strict=True)) for row in zip(*outputs, strict=True)])
