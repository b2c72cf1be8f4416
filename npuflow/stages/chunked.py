"""Layers outside loops as loops over chunks of a free length, where samples take less time so."""

from __future__ import annotations

from dataclasses import dataclass, replace

from npuflow.base.errors import TargetError
from npuflow.flow.stage import log, stage
from npuflow.hw.target import Target
from npuflow.ir.graph import Graph
from npuflow.ir.lengths import Length
from npuflow.program.codegen.generate import generate
from npuflow.program.container import Program
from npuflow.program.order import order_of
from npuflow.schedule.chunks import chunk_sizes, whole_layers
from npuflow.schedule.chunks import chunked as chunks_of
from npuflow.search.memory import SearchMemory
from npuflow.search.pinned import NO_PINS
from npuflow.search.plan import TilingPlan, plan_network
from npuflow.sim.clock import timeline_of
from npuflow.stages._targets import PlannedTarget
from npuflow.stages.costs import SubgraphCosts
from npuflow.stages.model import ModelTable
from npuflow.stages.quantize import Quantized, to_plan
from npuflow.stages.tiling import Planning, Tiled, planned_by

MORE = 1.04                               # times the cycles at the most steps that chunks may cost
FEW = 8                                   # of the most steps that part is the other length of a comparison


def needless(model: ModelTable) -> str:
    """Why all samples have as many steps."""
    return "" if model.ranges else "[model] dims has no range of lengths"


@stage(refines="tiling", always=True, unless=needless)
def chunked(
    tiled: Tiled, quantized: Quantized, costs: SubgraphCosts, planning: Planning, planned: PlannedTarget
) -> Tiled:
    """Plan layers that work step by step as loops over chunks of several sizes. Of programs that need hardly
    more cycles at the most steps, take the one with the fewest there and at few steps: between these lengths,
    cycles go on evenly."""
    sizes = chunk_sizes(quantized.flat()) if tiled.plan.rolled and planning.tiling.pins == NO_PINS else ()
    for name, why in whole_layers(quantized.flat()).items():
        log(f"{name} runs at the most steps: {why}")
    if not sizes:
        log("no layer outside loops that works step by step is planned in chunks")
        return tiled
    target = replace(planned.target, compute=planned.compute.of_one_inference)
    graph = planned_by(tiled.plan, quantized)
    whole = _Timed.of(graph, tiled.plan, target)
    most, few = whole.at(1), whole.at(FEW)
    log(f"whole layers: {most:,.0f} cycles at the most steps, {few:,.0f} at few")
    best = 1.0, tiled.plan
    for size in sizes:
        timed = _planned(size, quantized, costs, planning, planned, target)
        if timed is None:
            continue
        longest = timed.at(1)
        if longest > MORE * most:
            log(f"chunks of {size}: {longest:,.0f} cycles at the most steps")
            continue
        shortest = timed.at(FEW)
        share = (longest / most + shortest / few) / 2
        log(f"chunks of {size}: {longest:,.0f} cycles at the most steps, {shortest:,.0f} at few")
        if share < best[0]:
            best = share, replace(timed.plan, chunk=size)
    log(f"taken: chunks of {best[1].chunk}" if best[1].chunk else "taken: whole layers")
    return replace(tiled, plan=best[1])


@dataclass(frozen=True)
class _Timed:
    """A plan, and its program."""

    plan: TilingPlan
    program: Program
    length: Length

    @classmethod
    def of(cls, graph: Graph, plan: TilingPlan, target: Target) -> _Timed:
        return cls(plan, generate(graph, plan, target), graph.lengths[0])

    def at(self, part: int) -> float:
        """Cycles at a part of the most steps."""
        one = self.program.at({self.length.name: max(self.length.least, self.length.most // part)})
        return timeline_of(one, order_of(one)).cycles


def _planned(
    size: int, quantized: Quantized, costs: SubgraphCosts, planning: Planning, planned: PlannedTarget,
    target: Target,
) -> _Timed | None:
    """A plan with chunks of some steps; None where there is none whose rounds are alike."""
    graph, table = to_plan(chunks_of(quantized.flat(), size)), planning.tiling
    machine = planning.machine(planned)
    memory = SearchMemory(costs.memo)
    numbers = (planned.numerics, planning.effort.level, table.pins, table.allocation)
    try:
        plan = plan_network(graph, machine, *numbers, memory, table.without)
        return _Timed.of(graph, plan, target)
    except TargetError as fault:
        log(f"chunks of {size}: {fault.message}")
        return None
