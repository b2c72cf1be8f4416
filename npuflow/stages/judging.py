"""The metric that judges widths by labelled samples, where [precision.labelled] names one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from npuflow.checks.evaluate import JudgingTable as Table
from npuflow.flow.artifact import Artifact
from npuflow.flow.stage import stage
from npuflow.metrics import METRICS, Metric


@dataclass(frozen=True)
class Judging(Artifact, metric=...):
    """Its name and its options."""

    name: str
    options: Mapping[str, Any]

    @property
    def metric(self) -> Metric:
        plain = {key: tuple(v) if isinstance(v, list) else v for key, v in self.options.items()}
        made: Metric = METRICS[self.name](**plain)
        return made

    def uses(self) -> dict[str, tuple[str, ...]]:
        return {"metrics": (self.name,)}

    def summary(self) -> dict[str, Any]:
        return {"metric": self.name}


@stage(when="precision.labelled", minor=True)
def judging(table: Table) -> Judging:
    """What the recipe says of it."""
    return Judging(table.metric, asdict(table.options) if table.options is not None else {})
