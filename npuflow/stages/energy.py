"""The energy of an inference by the target's table: in all, by part and by layer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from npuflow.flow.artifact import Artifact
from npuflow.flow.stage import log, stage
from npuflow.hw.energy import Energy
from npuflow.report.profile import profile
from npuflow.report.profile.energy import text
from npuflow.stages.codegen import CompiledProgram


@dataclass(frozen=True)
class EnergyUse(Artifact):
    """Microjoules of an inference: `total` and by part; by node of the program, those of host nodes among
    them. `source`: where the table's figures come from."""

    total: float
    parts: Mapping[str, float]
    nodes: Mapping[str, float]
    source: str

    def plain(self) -> dict[str, Any]:
        """For the report."""
        return {"total_uj": self.total, "parts": self.parts, "nodes": self.nodes, "source": self.source}

    def summary(self) -> dict[str, Any]:
        return {"uj": float(f"{self.total:.4g}")}


@stage(when="target.energy", minor=True)
def energy(compiled: CompiledProgram, energy: Energy) -> EnergyUse:
    """Count what the commands do, and multiply."""
    found = profile(compiled.program, energy)
    total = found.totals()
    log(text(total, energy))
    rows = [*found.operators(), *found.host_rows]
    return EnergyUse(
        total["energy_uj"], total["energy"], {str(row["nodes"][0]): row["energy_uj"] for row in rows},
        energy.source,
    )
