"""Layers outside loops as loops over chunks of a free length, where samples take less time so."""

from __future__ import annotations

from dataclasses import replace

from npuflow.base.errors import FitError, TargetError
from npuflow.flow.stage import log, stage
from npuflow.hw.target import Target
from npuflow.ir.graph import Graph
from npuflow.program.codegen.generate import generate
from npuflow.program.order import order_of
from npuflow.schedule.chunks import chunk_sizes
from npuflow.schedule.machine import Machine
from npuflow.search.pinned import NO_PINS
from npuflow.search.plan import TilingPlan, plan_network
from npuflow.sim.clock import timeline_of
from npuflow.stages._targets import PlannedTarget
from npuflow.stages.costs import SubgraphCosts
from npuflow.stages.model import ModelTable
from npuflow.stages.quantize import Quantized
from npuflow.stages.tiling import Planning, Tiled

MORE = 1.03                               # times the cycles at the most steps that chunks may cost
PARTS = (1, 2, 4, 8)                      # of the most steps: the lengths at which plans are compared


def needless(model: ModelTable) -> str:
    """Why all samples have as many steps."""
    return "" if model.ranges else "[model] dims has no range of lengths"


@stage(refines="tiling", always=True, unless=needless)
def chunked(
    tiled: Tiled, quantized: Quantized, costs: SubgraphCosts, planning: Planning, planned: PlannedTarget
) -> Tiled:
    """Plan layers that work step by step as loops over chunks of several sizes. Of programs whose cycles at
    the most steps are nearly those without, take the one with the fewest at other lengths."""
    sizes = chunk_sizes(quantized.graph) if tiled.plan.rolled and planning.tiling.pins == NO_PINS else ()
    if not sizes:
        log("no layer outside loops that works step by step is planned in chunks")
        return tiled
    target = replace(planned.target, compute=planned.compute.of_one_inference)
    graph = quantized.planned(not tiled.plan.rolled, tiled.plan.paired)
    best, plain = (1.0, tiled.plan), _cycles(graph, tiled.plan, target)
    log(f"whole layers: {_said(graph, plain)}")
    for size in sizes:
        made = _planned(size, quantized, costs, planning, planned, target)
        if made is None:
            continue
        plan, found = made
        share = sum(a / b for a, b in zip(found, plain, strict=True)) / len(found)
        log(f"chunks of {size}: {_said(graph, found)}; {share:.3f} of that on average")
        if found[0] <= MORE * plain[0] and share < best[0]:
            best = share, plan
    log(f"taken: chunks of {best[1].chunk}" if best[1].chunk else "taken: whole layers")
    return replace(tiled, plan=best[1])


def _planned(
    size: int, quantized: Quantized, costs: SubgraphCosts, planning: Planning, planned: PlannedTarget,
    target: Target,
) -> tuple[TilingPlan, list[float]] | None:
    """A plan with chunks of some steps, and its cycles; None where there is none whose rounds are alike."""
    graph, prices, table = quantized.planned(chunk=size), planning.prices, planning.tiling
    cost = prices.byte_cost if prices is not None else 0.0
    machine = Machine(planned.compute, planned.memory, planned.dma, byte_cost=cost)
    numbers = (planned.numerics, planning.effort.level, table.pins, table.allocation)
    try:
        plan = plan_network(graph, machine, *numbers, costs.memo, table.without)
        return replace(plan, chunk=size), _cycles(graph, plan, target)
    except (TargetError, FitError) as fault:
        log(f"chunks of {size}: {fault.message}")
        return None


def _lengths(graph: Graph) -> list[int]:
    (length,) = graph.lengths
    return [max(length.least, length.most // part) for part in PARTS]


def _cycles(graph: Graph, plan: TilingPlan, target: Target) -> list[float]:
    """What the program takes at each of the compared lengths."""
    program, name = generate(graph, plan, target), graph.lengths[0].name
    shorter = [program.at({name: steps}) for steps in _lengths(graph)]
    return [timeline_of(one, order_of(one)).cycles for one in shorter]


def _said(graph: Graph, cycles: list[float]) -> str:
    pairs = zip(_lengths(graph), cycles, strict=True)
    return ", ".join(f"{count:,.0f} cycles at {graph.lengths[0].dim} = {steps}" for steps, count in pairs)
