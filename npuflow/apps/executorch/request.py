"""What a quantiser or partitioner is asked for: a target, and tables as recipes have them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Self

from npuflow.base.errors import RecipeError, UsageError
from npuflow.flow.recipe import load
from npuflow.hw.target import Target
from npuflow.place.islands import PlacementTable
from npuflow.quantise.config import Quantize
from npuflow.quantise.wishes import check_scheme
from npuflow.rules import Hardware

RANGES_KEPT: Mapping[str, Any] = {
    "precision": {"strategy": "none"}, "correct": {"bias": "off"},
}
"""Tables of a program whose ranges PT2E chose: nothing is chosen a second time."""


@dataclass(frozen=True)
class LoweringRequest:
    """`named`: the target's name, file or table; `tables`: of a recipe, by name."""

    named: str | Mapping[str, Any]
    tables: Mapping[str, Any]

    @classmethod
    def of(cls, target: str | Path | Mapping[str, Any], tables: Mapping[str, Any]) -> Self:
        """Checked: unknown keys of [quantize], and what the target's arithmetic lacks, are errors."""
        if "model" in tables or "data" in tables:
            raise UsageError(
                "a backend of ExecuTorch takes no tables [model] and [data]",
                because="the network is the program that is lowered",
                hint="samples=[(input, ...), ...] of the partitioner are its calibration samples",
                code="NF-USAGE-281",
            )
        made = cls(target if isinstance(target, str | Mapping) else str(target), dict(tables))
        check_scheme(made.quantize, made.target.numerics)
        return made

    @cached_property
    def target(self) -> Target:
        return self._table(Target)

    @cached_property
    def quantize(self) -> Quantize:
        return self._table(Quantize)

    @cached_property
    def placement(self) -> PlacementTable:
        return self._table(PlacementTable)

    @property
    def hardware(self) -> Hardware:
        return Hardware.of(self.target.compute, self.target.memory, self.target.dma)

    def text(self) -> str:
        """As JSON, the same for equal targets and tables."""
        return json.dumps({"target": self.named, "tables": self.tables}, sort_keys=True, default=str)

    @classmethod
    def of_text(cls, text: str) -> Self:
        row = json.loads(text)
        return cls(row["target"], row["tables"])

    def build_tables(self, observed: bool) -> dict[str, Any]:
        """Tables of the build. `observed`: PT2E chose the ranges."""
        calm = RANGES_KEPT if observed else {}
        return {**calm, **{name: _over(calm.get(name), table) for name, table in self.tables.items()}}

    def _table(self, cls: type[Any]) -> Any:
        recipe = load(None, tables={**self.tables, "target": self.named}, lenient=True)
        lost = list(recipe.lost.values())
        found, faults = recipe.read(cls)
        if lost or found is None:
            raise RecipeError([*lost, *faults])
        return found


def _over(below: Any, table: Any) -> Any:
    return {**below, **table} if isinstance(below, Mapping) and isinstance(table, Mapping) else table
