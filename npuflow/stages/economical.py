"""The plan whose program takes the least energy, where [tiling] minimise asks for it."""

from __future__ import annotations

from dataclasses import replace

from npuflow.flow.stage import log, stage
from npuflow.hw.energy import Energy
from npuflow.hw.target import Target
from npuflow.program.codegen.generate import generate
from npuflow.report.profile import profile
from npuflow.schedule.machine import Machine
from npuflow.search.plan import TilingPlan, plan_network
from npuflow.search.unfit import PlanRequest
from npuflow.stages._targets import PlannedTarget
from npuflow.stages.prices import TilingGoal
from npuflow.stages.quantize import Quantized
from npuflow.stages.tiling import Planning, Tiled, planned_by

FEWER = 4.0                               # cycles of the bus that a byte counts as in the plan between


def needless(goal: TilingGoal) -> str:
    """Why the plan of the search is as good."""
    return "" if goal.minimise == "energy" else '[tiling] does not have minimise = "energy"'


@stage(refines="tiling", always=True, unless=needless, after=("chunked",))
def economical(
    tiled: Tiled, quantized: Quantized, planning: Planning, planned: PlannedTarget
) -> Tiled:
    """The search knows external traffic and time, and not what crosses local memory: plans in which bytes
    count less, and not at all, become programs, too, and what all commands do decides."""
    machine = Machine(planned.compute, planned.memory, planned.dma)
    table, prices = planning.tiling, planning.prices
    assert prices is not None, "it is on where [tiling] minimise is"
    level = planning.effort.level
    graph = planned_by(tiled.plan, quantized)
    wanted = PlanRequest(graph, machine, planned.numerics, level, table.pins, table.allocation)
    plans = {"the fewest bytes": tiled.plan}
    between = FEWER / planned.memory.external_bandwidth
    for name, cost in (("bytes that count less", between), ("the fewest cycles", 0.0)):
        request = replace(wanted, machine=replace(machine, byte_cost=cost))
        plan = plan_network(*request.arguments, None, table.without)
        mine = tiled.plan
        plans[name] = replace(
            plan, paired=mine.paired, apart=mine.apart, by_step=mine.by_step, chunk=mine.chunk,
            nested=mine.nested,
        )
    spent = {name: _spent(one, quantized, planned.target, prices.table) for name, one in plans.items()}
    least = min(spent, key=lambda name: spent[name])
    log(f"{', '.join(f'{name}: {uj:.4g} uJ' for name, uj in spent.items())}; taken: {least}")
    return replace(tiled, plan=plans[least])


def _spent(plan: TilingPlan, quantized: Quantized, target: Target, table: Energy) -> float:
    """Microjoules of the program of a plan."""
    one = replace(target, compute=target.compute.of_one_inference)
    made = generate(planned_by(plan, quantized), plan, one)
    return float(profile(made, table).totals()["energy_uj"])
