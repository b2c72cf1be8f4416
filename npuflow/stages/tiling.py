"""How every layer is cut to fit local memory, with its estimated cost, lower bounds and the gap to them."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any

from npuflow.base.errors import TargetError
from npuflow.base.tables import Config, parse, read
from npuflow.base.wording import counted
from npuflow.flow.artifact import Artifact
from npuflow.flow.stage import View, library, log, stage
from npuflow.hw.target import Target
from npuflow.ir.graph import Graph
from npuflow.ir.unroll import has_copies
from npuflow.place.host import HostWork, host_work, total_work
from npuflow.schedule.arrange import Method
from npuflow.schedule.chunks import chunked
from npuflow.schedule.machine import Machine
from npuflow.schedule.per_step import made_by_step
from npuflow.search.in_loops import with_products_in_loops
from npuflow.search.pinned import NO_PINS, Pins
from npuflow.search.plan import TilingPlan, plan_network
from npuflow.search.strategies import check_names
from npuflow.search.unfit import PlanRequest, explained
from npuflow.stages._targets import PlannedTarget
from npuflow.stages.costs import Effort, SubgraphCosts
from npuflow.stages.prices import EnergyPrices
from npuflow.stages.quantize import Quantized, to_plan

SHORT = 500                               # nodes of a network with its loops written out: it is planned, too
FLAT = 1000                               # the same of steps of loops with one of two nested ones written out


@dataclass(frozen=True)
class Tiling(Config):
    """Pinned parts of the plan, and how addresses are found."""

    groups: tuple[tuple[str, ...], ...] = ()
    """Layers that must form a group, by their names in the model: a list of lists of consecutive layers."""
    allocation: Method = "greedy"
    """How addresses in local and external memory are found: greedy, in several orders; climb: orders improved
    step by step; exact: an integer program that proves the fewest bytes where the solver finishes."""
    keep: tuple[str, ...] = ()
    """Tensors that must stay in local memory from the layer that makes them to the last that reads them."""
    tiles: dict[str, dict[str, int]] = field(default_factory=dict)
    """Tile sizes of layers, `{ "conv1" = { co = 32, oh = 8 } }`; each is a group of its own, with the
    point-wise layers that follow it. Axes of convolutions: n, co, oh, ow, ci; others: d0, d1, .. of the
    result; an unknown one is an error that lists them."""

    without: tuple[str, ...] = ()
    """Search strategies to leave out, by the names that `npuflow show tiling RECIPE --strategies` prints."""

    @property
    def pins(self) -> Pins:
        tiles = tuple((name, tuple(sorted(sizes.items()))) for name, sizes in sorted(self.tiles.items()))
        return Pins(self.keep, self.groups, tiles)


@dataclass(frozen=True)
class Planning(View):
    """How hard plans are searched for, what of them is pinned, and what energy costs where it counts."""

    effort: Effort
    tiling: Tiling
    prices: EnergyPrices | None

    def machine(self, planned: PlannedTarget) -> Machine:
        """What plans are for, with what a byte of external traffic costs."""
        cost = self.prices.byte_cost if self.prices is not None else 0.0
        return Machine(planned.compute, planned.memory, planned.dma, byte_cost=cost)


@dataclass(frozen=True)
class Tiled(Artifact, host={"work": "host", "cycles": "host_cycles"}):
    """The plan: tile sizes, nesting, slots and costs of every integer node; what the
    host does, and its cycles."""

    plan: TilingPlan
    host: HostWork = field(default_factory=HostWork)
    host_cycles: float = 0.0

    def summary(self) -> dict[str, Any]:
        plan = self.plan
        whole, bound = round(plan.cycles + self.host_cycles), round(plan.bounds.cycles)
        cycles = {"cycles": whole, "bound": bound, "gap": round(plan.gap, 2)}
        host = {"host_cycles": round(self.host_cycles), "host_macs": self.host.macs}
        return {**cycles, "mb": round(plan.bytes / 1e6, 3), **host}


def planned_by(plan: TilingPlan, quantized: Quantized) -> Graph:
    """The graph whose nodes the groups of a plan have. Only plans and programs see layers of a free length as
    loops over chunks, and products in front of loops in them: how layers are cut decides no code."""
    if plan.nested:
        return to_plan(quantized.graph, nested=True)
    graph = made_by_step(chunked(quantized.flat(), plan.chunk), plan.by_step)
    return to_plan(graph, not plan.rolled, plan.paired, plan.apart)


@stage
def tiling(
    quantized: Quantized, costs: SubgraphCosts, planning: Planning, planned: PlannedTarget
) -> Tiled:
    """Cut the network into groups by their costs, keep tensors in local memory, and take
    the plan that replays fastest."""
    table, machine = planning.tiling, planning.machine(planned)
    check_names(table.without)
    level = planning.effort.level
    graph = to_plan(quantized.graph, nested=True)
    wanted = PlanRequest(
        graph, machine, planned.numerics, level, table.pins, table.allocation
    )
    how = _nested if any(roll.outer for roll in graph.rolls) else _planned
    plan = how(wanted, quantized, costs, table.without)
    bounds = plan.bounds
    members = sum(len(g.nodes) for g in plan.groups)
    groups = counted(len(plan.groups), "group")
    log(f"{counted(members, 'layer')} in {groups}; {counted(plan.solved, 'different tiling')} searched")
    if plan.asked:
        split = sum(g.cores[1] > 1 for g in plan.groups)
        log(
            f"{counted(plan.asked, 'candidate fusion group')} costed, "
            f"starting at {counted(plan.spans, 'layer')}, "
            f"{plan.spans - plan.different} of which repeat an earlier one; {split} groups on several cores; "
            f"{counted(len(plan.kept), 'tensor')} resident in local memory between groups"
        )
    log(
        f"{plan.cycles:.0f} cycles of the NPU; bounds: engines {bounds.compute:.0f}, "
        f"bus {bounds.traffic:.0f}, chain {bounds.chain:.0f}, weights {bounds.late:.0f}, "
        f"roofline {bounds.roofline:.0f}; gap {plan.gap:.2f}"
    )
    log(f"{plan.bytes / 1e6:.2f} MB external traffic, at least {bounds.bytes / 1e6:.2f} MB")
    work, target = total_work(host_work(graph)), planned.target
    if work:
        log(f"host: {work.described(target)}")
    return Tiled(plan, work, work.cycles(target))


def _nested(
    wanted: PlanRequest, quantized: Quantized, costs: SubgraphCosts, without: tuple[str, ...]
) -> TilingPlan:
    """The plan with some steps of loops in some steps of others. Where there is none, one of two nested loops
    is written out, and where that is short and better."""
    flat = quantized.flat()
    try:
        plan = replace(plan_network(*wanted.arguments, costs.memo, without), nested=True)
    except TargetError as fault:
        log(f"one of two nested loops is written out: {fault.message}")
        return _planned(replace(wanted, graph=to_plan(flat)), quantized, costs, without)
    if len(flat.nodes) > FLAT or len((graph := to_plan(flat)).nodes) > FLAT:
        return plan
    other, machine = _planned(replace(wanted, graph=graph), quantized, costs, without), wanted.machine
    if machine.worth(other.cycles, other.bytes) >= machine.worth(plan.cycles, plan.bytes):
        return plan
    log(f"one of two nested loops is written out: {other.cycles:.0f} cycles, not {plan.cycles:.0f}")
    return other


def _planned(
    wanted: PlanRequest, quantized: Quantized, costs: SubgraphCosts, without: tuple[str, ...]
) -> TilingPlan:
    """The plan. Where no round of a loop stands for all of them, loops are written out."""
    try:
        plan = plan_network(*wanted.arguments, costs.memo, without)
    except TargetError as fault:
        if not wanted.graph.rolls:
            raise explained(wanted, fault, shipped_targets()) from None
        log(f"loops are written out, step after step: {fault.message}")
        return _planned(replace(wanted, graph=quantized.straight()), quantized, costs, without)
    plan = _in_loops(plan, wanted, quantized, costs, without)
    plan = _apart(_paired(plan, wanted, quantized, costs, without), wanted, quantized, costs, without)
    if wanted.graph.lengths or not has_copies(wanted.graph):
        return plan
    return _short_written_out(plan, wanted, quantized.straight(), costs, without)


def _in_loops(
    plan: TilingPlan, wanted: PlanRequest, quantized: Quantized, costs: SubgraphCosts,
    without: tuple[str, ...],
) -> TilingPlan:
    """The plan; one with products in front of loops made in them, where it is better."""
    if not wanted.graph.rolls or wanted.pins != NO_PINS:
        return plan

    def planned(graph: Graph) -> TilingPlan:
        return plan_network(*replace(wanted, graph=to_plan(graph)).arguments, costs.memo, without)

    other = with_products_in_loops(plan, quantized.flat(), wanted.machine, planned)
    if other.by_step:
        log(f"made in loops: {', '.join(other.by_step)}; {other.cycles:.0f} cycles, not {plan.cycles:.0f}")
    return other


def _paired(
    plan: TilingPlan, wanted: PlanRequest, quantized: Quantized, costs: SubgraphCosts,
    without: tuple[str, ...],
) -> TilingPlan:
    """The plan; that with pairs of loops as one, where it is better: local memory may not hold the constants
    of both."""
    graph = to_plan(made_by_step(quantized.flat(), plan.by_step), paired=True)
    machine = wanted.machine
    if len(graph.rolls) == len(wanted.graph.rolls):
        return plan
    try:
        other = plan_network(*replace(wanted, graph=graph).arguments, costs.memo, without)
    except TargetError:
        return plan
    if machine.worth(other.cycles, other.bytes) >= machine.worth(plan.cycles, plan.bytes):
        return plan
    log(f"pairs of loops run as one: {other.cycles:.0f} cycles, not {plan.cycles:.0f}")
    bounds = plan.bounds if plan.by_step else other.bounds
    return replace(other, paired=True, by_step=plan.by_step, bounds=bounds)


def _apart(
    plan: TilingPlan, wanted: PlanRequest, quantized: Quantized, costs: SubgraphCosts,
    without: tuple[str, ...],
) -> TilingPlan:
    """The plan; that with loops that may run beside each other each on a core of its own, where it is
    better. Products that loops make on one core may be faster on all cores, in front of them; of more loops
    than cores, pairs may be one."""
    cores, machine, best = wanted.machine.compute.cores, wanted.machine, plan
    for by_step, pairs in product(dict.fromkeys((plan.by_step, ())), (False, True) if cores > 1 else ()):
        graph = to_plan(made_by_step(quantized.flat(), by_step), paired=pairs, cores=cores)
        if not any(roll.core for roll in graph.rolls):
            continue
        try:
            other = plan_network(*replace(wanted, graph=graph).arguments, costs.memo, without)
        except TargetError:
            continue
        if machine.worth(other.cycles, other.bytes) < machine.worth(best.cycles, best.bytes):
            best = replace(other, apart=cores, paired=pairs, by_step=by_step, bounds=plan.bounds)
    if best is not plan:
        log(f"loops each run on a core of their own: {best.cycles:.0f} cycles, not {plan.cycles:.0f}")
    return best


def _short_written_out(
    plan: TilingPlan, wanted: PlanRequest, straight: Graph, costs: SubgraphCosts, without: tuple[str, ...]
) -> TilingPlan:
    """The plan, whose steps copy so that some stand for all; that of short loops written out, where it is
    better."""
    if len(straight.nodes) > SHORT:
        return plan
    try:
        other = plan_network(*replace(wanted, graph=straight).arguments, costs.memo, without)
    except TargetError:
        return plan
    machine = wanted.machine
    if machine.worth(other.cycles, other.bytes) >= machine.worth(plan.cycles, plan.bytes):
        return plan
    log(f"loops are written out, step after step: {other.cycles:.0f} cycles, not {plan.cycles:.0f}")
    return other


def shipped_targets() -> dict[str, Target]:
    """Targets that come with npuflow, as what a refusal tries: a refusal is never stored, so
    that no key holds their files."""
    found = {}
    for path in library("target"):
        target, _ = read(Target, *parse(path.read_text(), str(path), path.parent))
        if target is not None:
            found[path.stem] = target
    return found
