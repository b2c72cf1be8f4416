"""Which operators the network has, and how many of each: a stage with a table and a product of its own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from npuflow.base.tables import Config
from npuflow.flow.artifact import Artifact, Reader, Writer
from npuflow.flow.stage import stage
from npuflow.stages.parse import Parsed


@dataclass(frozen=True)
class Census(Config, table="acme_census"):
    """Counting operators."""

    least: int = 1
    """Operators seen less often are left out."""


@dataclass(frozen=True)
class Counts(Artifact):
    counts: Mapping[str, int]

    def save(self, folder: Writer) -> None:
        folder.json("counts", dict(self.counts))

    @classmethod
    def load(cls, folder: Reader) -> Self:
        return cls(folder.json("counts"))

    def summary(self) -> dict[str, Any]:
        return {"kinds": len(self.counts)}


@stage(when="acme_census")          # runs when the recipe has the table [acme_census]
def acme_census(parsed: Parsed, acme_census: Census) -> Counts:
    found = Counter(node.op.onnx_type()[1] for node in parsed.graph.nodes)
    return Counts({name: found[name] for name in sorted(found) if found[name] >= acme_census.least})
