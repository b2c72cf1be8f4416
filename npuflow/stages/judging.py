"""The metric that judges widths by labelled samples, where [precision.labelled] names one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Self

from npuflow.checks.evaluate import JudgingTable as Table
from npuflow.flow.artifact import Artifact, Reader, Writer
from npuflow.flow.stage import stage
from npuflow.metrics import METRICS, Metric


@dataclass(frozen=True)
class Judging(Artifact):
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

    def save(self, folder: Writer) -> None:
        folder.json("metric", {"name": self.name, "options": dict(self.options)})

    @classmethod
    def load(cls, folder: Reader) -> Self:
        return cls(**folder.json("metric"))

    def summary(self) -> dict[str, Any]:
        return {"metric": self.name}


@stage(when="precision.labelled", minor=True)
def judging(table: Table) -> Judging:
    """What the recipe says of it."""
    return Judging(table.metric, asdict(table.options) if table.options is not None else {})
