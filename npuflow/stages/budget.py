"""Checks that a run of the program keeps its time limit; else explains what binds it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal

from npuflow.base.tables import Config, Fault, Range
from npuflow.flow.artifact import Artifact
from npuflow.flow.stage import log, stage
from npuflow.hw.elements import wide as is_wide
from npuflow.ir.graph import Graph
from npuflow.ir.unroll import rolled
from npuflow.quantise.graph import build
from npuflow.report.profile import profile
from npuflow.report.profile.budget import BudgetCase, MissedBudget, too_slow
from npuflow.stages._chosen import ChosenCandidate
from npuflow.stages._targets import WholeTarget
from npuflow.stages.codegen import CompiledProgram
from npuflow.stages.quantize import Quantized
from npuflow.stages.tiling import Planning, Tiled, planned_by, shipped_targets


@dataclass(frozen=True)
class Allowed(Config, table="budget"):
    """How long a run of the program may take, by the simulator's clock."""

    ms: Annotated[float, Range(0, None)] = 0.0
    """Milliseconds, at the target's clock; 0: as `cycles` says."""
    cycles: Annotated[int, Range(0, None)] = 0
    """Cycles; 0: as `ms` says. Where both are there, both hold."""
    on_miss: Literal["refuse", "warn"] = "refuse"
    """A program that takes longer: the build fails, or goes on with a warning. Both report what
    limits it and what would help."""

    def check(self) -> Iterator[Fault]:
        if not self.ms and not self.cycles:
            yield Fault(
                "ms", "the budget is empty", hint="ms = 5.0, or cycles = 1000000", code="NF-RECIPE-038", )


@dataclass(frozen=True)
class CycleBudget(Artifact, budget=...):
    """What a run takes and may take, in cycles and milliseconds, and the story where it is too long."""

    cycles: float
    host_cycles: float
    host_macs: int
    allowed: float
    clock_mhz: int
    reported: tuple[str, ...] = ()

    def summary(self) -> dict[str, Any]:
        times = (self.cycles, self.allowed, self.host_cycles)
        have, want, host = (round(x / self.clock_mhz / 1000, 4) for x in times)
        found: dict[str, Any] = {"ms": have, "of": want, "host_ms": host, "host_macs": self.host_macs}
        if self.reported:
            message, because, hint = self.reported
            found |= {
                "warning": f"{message}; {because}".replace("\n", "; "),
                "warning_hint": hint.replace("\n", "; "),
            }
        return found


@stage(when="budget")
def budget(
    chosen: ChosenCandidate,
    quantized: Quantized,
    tiled: Tiled,
    compiled: CompiledProgram,
    budget: Allowed,
    planning: Planning,
    whole: WholeTarget,
) -> CycleBudget:
    """Read the clock; where a run is too long, try what would shorten it."""
    found, clock_mhz = profile(compiled.program), whole.planned.compute.clock_mhz
    allowed = min(x for x in (budget.ms * clock_mhz * 1000, float(budget.cycles)) if x)
    cycles, lowest = found.whole_cycles, tiled.plan.bounds.cycles + found.host_cycles
    host_part = f" ({found.host_cycles:.0f} of them the host's)" if found.host else ""
    log(f"{cycles:.0f} cycles{host_part}, {allowed:.0f} allowed; at least {lowest:.0f} on this machine")
    if cycles <= allowed:
        return CycleBudget(cycles, found.host_cycles, found.host.macs, allowed, clock_mhz)

    recipe = chosen.placed.quantize

    def narrow() -> Graph:
        eight = replace(recipe, activations=replace(recipe.activations, bits=8), overrides=())
        return rolled(build(chosen.candidate.with_(scheme=eight)).graph)

    target = whole.target
    wide = any(
        v.quant is not None and is_wide(v.quant.bits)
        for v in quantized.graph.values.values()
        if v.const is None
    )
    table, level = planning.tiling, planning.effort.level
    narrower = narrow if wide and recipe.integers else None
    graph = planned_by(tiled.plan, quantized)
    case = BudgetCase(graph, target, level, table.pins, table.allocation, narrower)
    fault = too_slow(MissedBudget(case, found, tiled.plan.bounds, allowed), shipped_targets())
    if budget.on_miss == "refuse":
        raise fault
    reported = (fault.message, fault.because, fault.hint)
    log("\n".join(reported))
    return CycleBudget(cycles, found.host_cycles, found.host.macs, allowed, clock_mhz, reported)
