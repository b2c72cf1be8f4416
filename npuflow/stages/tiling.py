"""How every layer is cut to fit local memory, with its estimated cost, lower bounds and the gap to them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
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
from npuflow.schedule.per_step import made_by_step, step_products
from npuflow.search.memory import SearchMemory
from npuflow.search.pinned import NO_PINS, Pins
from npuflow.search.plan import TilingPlan, plan_network
from npuflow.search.strategies import check_names, others_than
from npuflow.search.unfit import PlanRequest, explained
from npuflow.stages._targets import PlannedTarget
from npuflow.stages.costs import Effort, SubgraphCosts
from npuflow.stages.prices import EnergyPrices
from npuflow.stages.quantize import Quantized, to_plan

SHORT = 500                               # nodes of a network with its loops written out: it is planned, too
FLAT = 1000                               # the same of steps of loops with one of two nested ones written out
TRIES = 12                                # plans with products in loops, at most: each takes as long as any
TRIED = 8000                              # nodes that these have in all, at most, but for one plan
BEST = 3                                  # that go on from loop to loop: what one has is another's room


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
        return to_plan(made_by_step(quantized.graph, plan.by_step), paired=plan.paired, nested=True)
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
    plan = best_plan(LoopForms(wanted, quantized, SearchMemory(costs.memo), table.without))
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
    if plan.loops:
        log(f"loops: {plan.loops}")
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


@dataclass(frozen=True)
class LoopForms:
    """A quantised network whose loops can be planned in several forms, and how each is planned. `wanted`: the
    form that comes first; `memory` and `without`: see `plan_network`; `origin`: how a plan was found, whose
    strategies alone find these; `said`: lines for the log, of forms that were taken."""

    wanted: PlanRequest
    quantized: Quantized
    memory: SearchMemory | None = None
    without: tuple[str, ...] = ()
    origin: str = ""
    said: list[str] = field(default_factory=list)

    @property
    def nested(self) -> bool:
        """Whether the first form has some steps of loops in some steps of others."""
        return any(roll.outer for roll in self.wanted.graph.rolls)

    @cached_property
    def flat(self) -> Graph:
        """The network without nested loops."""
        return self.quantized.flat()

    def first(self, graph: Graph) -> LoopForms:
        return replace(self, wanted=replace(self.wanted, graph=graph), origin="")

    @cached_property
    def one_level(self) -> Graph:
        """Its loops in some of their steps."""
        return to_plan(self.flat)

    @property
    def whole(self) -> Graph:
        """The network whose loops are planned: with nested ones, where the first form has some steps of
        both."""
        return self.quantized.graph if self.nested else self.flat

    def form(self, by_step: tuple[str, ...] = (), paired: bool = False, cores: int = 1) -> Graph:
        """Loops in some of their steps: see `TilingPlan` and `to_plan`."""
        return to_plan(made_by_step(self.whole, by_step), paired=paired, cores=cores, nested=self.nested)

    def plan(self, graph: Graph) -> TilingPlan:
        """The plan of a form; a TargetError where there is none."""
        left_out = (*self.without, *others_than(self.origin)) if self.origin else self.without
        return plan_network(*replace(self.wanted, graph=graph).arguments, self.memory, left_out)

    def in_full(self, found: TilingPlan) -> TilingPlan:
        """The form of a plan, by all strategies."""
        plan = self.plan(planned_by(found, self.quantized))
        form = {key: getattr(found, key) for key in ("nested", "by_step", "paired", "apart", "bounds")}
        return replace(plan, **form)

    def plans(self, graph: Graph, **form: Any) -> list[TilingPlan]:
        """The plan of a form, which it says; nothing where there is none, or no form with steps of both
        nested loops."""
        if self.nested and not any(roll.outer for roll in graph.rolls):
            return []
        try:
            return [replace(self.plan(graph), nested=self.nested, **form)]
        except TargetError:
            return []

    def worth(self, plan: TilingPlan) -> float:
        return self.wanted.machine.worth(plan.cycles, plan.bytes)


def _written_flat(forms: LoopForms, plan: TilingPlan) -> list[TilingPlan]:
    try:
        return [_best(forms.first(forms.one_level))]
    except TargetError:
        return []


def _in_loops(forms: LoopForms, plan: TilingPlan) -> list[TilingPlan]:
    """Loop by loop, those of most steps first. The bounds stay those of the network as it is."""
    tries, found, graph = 0, [plan], forms.whole
    most = min(TRIES, max(TRIED // len(forms.wanted.graph.nodes), 1))
    for options in step_products(graph, forms.wanted.machine) if not graph.lengths else ():
        for before in tuple(found):
            for option in options[: most - tries]:
                tries += 1
                values = (*before.by_step, *option)
                found += forms.plans(forms.form(values), by_step=values, bounds=plan.bounds)
        found = sorted(found, key=forms.worth)[:BEST]
    return found


def _in_pairs(forms: LoopForms, plan: TilingPlan) -> list[TilingPlan]:
    """Local memory may not hold the constants of both."""
    graph = forms.form(plan.by_step, paired=True)
    if len(graph.rolls) == len(forms.wanted.graph.rolls):
        return []
    own = {"bounds": plan.bounds} if plan.by_step else {}
    return forms.plans(graph, paired=True, by_step=plan.by_step, **own)


def _on_cores(forms: LoopForms, plan: TilingPlan) -> Iterator[TilingPlan]:
    """Products that loops make on one core may be faster on all cores, in front of them; of more loops than
    cores, pairs may be one."""
    cores = forms.wanted.machine.compute.cores
    for by_step, pairs in product(dict.fromkeys((plan.by_step, ())), (False, True)):
        graph = forms.form(by_step, pairs, cores)
        if any(roll.core for roll in graph.rolls):
            yield from forms.plans(graph, apart=cores, paired=pairs, by_step=by_step, bounds=plan.bounds)


def _written_out(forms: LoopForms, plan: TilingPlan) -> list[TilingPlan]:
    return forms.plans(forms.quantized.straight())


def _few_flat(forms: LoopForms) -> bool:
    return len(forms.flat.nodes) <= FLAT and len(forms.one_level.nodes) <= FLAT


def _few_straight(forms: LoopForms) -> bool:
    """Also where steps of loops copy, so that some stand for all."""
    graph = forms.wanted.graph
    return not graph.lengths and has_copies(graph) and len(forms.quantized.straight().nodes) <= SHORT


@dataclass(frozen=True)
class Rival:
    """Another form of loops. `may`: whether it is tried; `plans`: its plans, beside the best one before it;
    `nested`: beside plans with some steps of loops in some steps of others (True), others, or both."""

    what: str
    may: Callable[[LoopForms], bool]
    plans: Callable[[LoopForms, TilingPlan], Iterable[TilingPlan]]
    nested: tuple[bool, ...] = (False,)


ONE_LEVEL = Rival("one of two nested loops is written out", _few_flat, _written_flat, nested=(True,))
NO_LOOPS = Rival("loops are written out, step after step", _few_straight, _written_out)
RIVALS = (
    Rival(
        "products in front of loops are made in them",
        lambda forms: bool(forms.wanted.graph.rolls) and forms.wanted.pins == NO_PINS, _in_loops,
        nested=(False, True),
    ),
    Rival("pairs of loops run as one", lambda forms: True, _in_pairs, nested=(False, True)),
    ONE_LEVEL,
    Rival(
        "loops each run on a core of their own", lambda forms: forms.wanted.machine.compute.cores > 1,
        _on_cores,
    ),
    NO_LOOPS,
)


def best_plan(forms: LoopForms) -> TilingPlan:
    """The plan of the first form, or that of a rival that is worth more. Where no round of a loop stands for
    all of them, the loop is written out; where that does not fit either, the error says what would."""
    forms = replace(forms, said=[])
    try:
        return _best(forms)
    except TargetError as fault:
        last = forms.first(forms.quantized.straight()) if forms.wanted.graph.rolls else forms
        raise explained(last.wanted, fault, shipped_targets()) from None
    finally:
        for line in forms.said:
            log(line)


def _best(forms: LoopForms) -> TilingPlan:
    """Rivals are planned by the strategies that found the first plan, as all take much longer; of them only
    the best by all."""
    graph, said = forms.wanted.graph, forms.said
    try:
        first = best = replace(forms.plan(graph), nested=forms.nested)
    except TargetError as fault:
        if not graph.rolls:
            raise
        next_, rest = (ONE_LEVEL, forms.one_level) if forms.nested else (NO_LOOPS, forms.quantized.straight())
        said.append(f"{next_.what}: {fault.message}")
        return _best(forms.first(rest))
    quick = replace(forms, origin=first.origin)
    for rival in RIVALS:
        if forms.nested not in rival.nested or not rival.may(quick):
            continue
        before, count = best, len(said)
        best = min((before, *rival.plans(quick, before)), key=forms.worth)
        if best is before:
            del said[count:]
        else:
            said.append(f"{rival.what}: {best.cycles:.0f} cycles, not {before.cycles:.0f}")
    if best is first or best.nested != forms.nested:
        return best
    return min((forms.in_full(best), best), key=forms.worth)


def shipped_targets() -> dict[str, Target]:
    """Targets that come with npuflow, as what a refusal tries: a refusal is never stored, so
    that no key holds their files."""
    found = {}
    for path in library("target"):
        target, _ = read(Target, *parse(path.read_text(), str(path), path.parent))
        if target is not None:
            found[path.stem] = target
    return found
