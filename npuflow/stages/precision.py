"""Bit widths by need: the overrides that bring every output within the budget at the least cycles."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from npuflow.base.errors import InputError, Where
from npuflow.flow.artifact import Artifact
from npuflow.flow.stage import View, log, stage
from npuflow.quantise.config import Override
from npuflow.stages._calibration import CalibrationData
from npuflow.stages._candidates import RecipeCandidate
from npuflow.stages._targets import PlannedTarget
from npuflow.stages.baseline import Baseline, PrecisionOptions
from npuflow.stages.judges import LabelledJudges
from npuflow.stages.prices import EnergyPrices
from npuflow.stages.sensitivity import Sensitivity
from npuflow.stages.width_costs import WidthCosts
from npuflow.strategies import NARROW, STRATEGIES, Levels, Output, Strategy
from npuflow.tune import tuned
from npuflow.tune.precision.config import PrecisionTable as Table
from npuflow.tune.precision.energy_cost import EnergyModel
from npuflow.tune.precision.feedback import budget_of
from npuflow.tune.precision.problem import SearchProblem, cost_of, unreachable


@dataclass(frozen=True)
class FrontPoint:
    """A mixture of the Pareto front: cycles of its plan as a multiple of those with the recipe's widths,
    bytes of weights as a share of 8 bits for each, their average width, outputs, and the overrides."""

    cycles: float
    bytes: float
    bits: float
    outputs: tuple[Output, ...]
    overrides: tuple[Override, ...]


@dataclass(frozen=True)
class Precision(Artifact, outputs=("before", "after"), about=("cycles", "holds", "trials")):
    """Overrides as a recipe writes them and ranges of what they widen; outputs before and after; cycles as
    multiples of those with the recipe's widths: of a search for a front by a plan, else estimated."""

    overrides: tuple[Override, ...] = ()
    ranges: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    before: tuple[Output, ...] = ()
    after: tuple[Output, ...] = ()
    cycles: float = 1.0
    holds: bool = True
    trials: tuple[str, ...] = ()
    points: tuple[FrontPoint, ...] = ()

    def summary(self) -> dict[str, Any]:
        if not self.overrides:
            least = min((one.sqnr for one in self.before), default=None)
            return {} if least is None else {"wide_tensors": 0, "sqnr_db": round(least, 2)}
        names = {"bits": "wide_tensors", "weight_bits": "wide_weights", "float": "float_layers"}
        names["type"] = "npu_float_layers"
        layers = {kind: sum(len(o.layers) for o in self.overrides if getattr(o, kind)) for kind in names}
        worst = min(self.after, key=lambda one: min(one.sqnr, one.low))
        was = next(one for one in self.before if one.name == worst.name)
        found: dict[str, Any] = {names[kind]: count for kind, count in layers.items() if count}
        return {
            **found,
            "sqnr_db": f"{was.sqnr:.1f} -> {worst.sqnr:.1f}",
            "estimated_cycles": f"{self.cycles:.2f}x",
        }


@dataclass(frozen=True)
class PricedTarget(View):
    """What a mixture's time depends on, costs of subgraphs that are known, and what energy costs where it
    counts."""

    planned: PlannedTarget
    width_costs: WidthCosts
    prices: EnergyPrices | None


@stage(cpu="native", memory="1GB", floats=True)
def precision(
    baseline: Baseline,
    sensitivity: Sensitivity,
    candidate: RecipeCandidate,
    data: CalibrationData,
    labelled: LabelledJudges,
    options: PrecisionOptions,
    hardware: PricedTarget,
) -> Precision:
    """Ask the strategy for a level of every unit, and write it as overrides."""
    precision, widths, probing = options.precision, options.widths, options.probing
    planned, prices = hardware.planned, hardware.prices
    quantize, numerics = candidate.placed.quantize, planned.numerics
    drop = labelled.drop(precision.max_drop)
    if not baseline.search or not len(sensitivity.noise):
        return Precision(before=baseline.outputs, after=baseline.outputs, holds=not baseline.search)
    network, chosen = candidate.fake_quantised(), candidate.thresholds.chosen
    modes = widths.float_modes(precision.strategy, numerics, quantize)
    types = widths.types(modes, planned.memory.local_bytes)
    ready = data.width_harness(network, chosen, probing)
    ready = replace(ready, types=types, signal=sensitivity.signal)
    cost = cost_of(ready, planned.target, hardware.width_costs.memo)
    reported: list[str] = []

    def tell(line: str) -> None:
        reported.append(line)
        log(line)

    narrow = (NARROW,) * len(ready.names)
    budget = replace(budget_of(precision, network.graph), max_drop=precision.max_drop)
    corrected = options.correct.bias != "off"
    problem = SearchProblem(
        ready, cost, budget, lambda: list(sensitivity.noise), probing.probes, corrected, tell,
        goal=precision.goal, candidates=widths.candidates(quantize, numerics, precision.strategy),
        verdicts={narrow: baseline.outputs} if drop is None else {}, drop=drop,
        floats_last=widths.floats is None,
        energy=EnergyModel(cost, prices.table) if prices is not None and prices.widths else None,
    )
    strategy: Strategy = precision.options or STRATEGIES[precision.strategy]()
    asked = bool(precision.points) or precision.point is not None
    points = front(problem, strategy, precision) if asked else ()
    by_plan = precision.strategy != "auto"                 # the default is judged by its build alone
    levels = points[precision.point] if precision.point is not None else strategy(problem)
    levels = within_cycles(problem, strategy, levels) if by_plan and precision.point is None else levels
    after = tuple(problem.verified(levels))
    choice, holds = ready.choice(levels), budget.holds(after)
    if precision.max_drop is not None and not holds and precision.point is None:
        raise unreachable(problem, levels, after, precision.max_drop)
    tell(f"taken: {problem.summarised(levels)}")
    before = baseline.outputs if drop is None else tuple(problem.verified(narrow))
    return Precision(
        choice.overrides, choice.ranges, before, after,
        problem.planned(levels) if by_plan else problem.price(levels, "cycles"), holds,
        tuple(reported), tuple(point(problem, one) for one in points[: precision.points]),
    )


def within_cycles(problem: SearchProblem, strategy: Strategy, levels: Levels) -> Levels:
    """The mixture, or a better one that keeps `max_cycles` by its own plan: where the estimate was too low,
    the strategy is asked again for as much less as it was off; where it was too high and the budget does not
    hold, for as much more. The last where no mixture keeps the limit."""
    most, wanted = problem.goal.limits.get("cycles"), problem.goal
    kept: Levels | None = None
    for _ in range(tuned.MIXTURE_ROUNDS):
        if most is None:
            return levels
        planned = problem.planned(levels)
        if planned <= most:
            better = kept is None or _level(problem, levels) > _level(problem, kept)
            kept = levels if better else kept
            if planned >= tuned.MIXTURE_NEAR * most or problem.budget.holds(problem.verified(levels)):
                break
        off = planned / problem.price(levels, "cycles")
        problem.goal = replace(wanted, limits={**wanted.limits, "cycles": most / off})
        try:
            found = strategy(problem)
        except InputError:
            log(f"no mixture keeps max_cycles = {most:g} by its plan: the estimates were too low")
            break
        if found == levels:
            break
        levels = found
    problem.goal = wanted
    return levels if kept is None else kept


def _level(problem: SearchProblem, levels: Levels) -> float:
    return problem.budget.level(problem.verified(levels))


def front(problem: SearchProblem, strategy: Strategy, table: Table) -> Sequence[Levels]:
    """The points of the Pareto front that the recipe asks for, cheapest first. InputError where the strategy
    has no front, or fewer points."""
    count = max(table.points, 0 if table.point is None else table.point + 1)
    found = strategy.points(problem, count)
    if not found:
        raise InputError(
            f'strategy = "{table.strategy}" finds one mixture, no Pareto front',
            hint='strategy = "ilp" or "greedy", or no points and point',
            where=Where(key="precision.strategy"),
            code="NF-QUANT-043",
        )
    if table.point is not None and table.point >= len(found):
        raise InputError(
            f"point = {table.point} of a Pareto front of {len(found)} points",
            hint=f"a number from 0 to {len(found) - 1}",
            where=Where(key="precision.point"),
            code="NF-QUANT-044",
        )
    return found


def point(problem: SearchProblem, levels: Levels) -> FrontPoint:
    """A mixture with its prices and the outputs of the quantised network."""
    cycles, size, bits = problem.planned(levels), *(problem.price(levels, what) for what in ("bytes", "bits"))
    outputs = tuple(problem.verified(levels))
    return FrontPoint(cycles, size, bits, outputs, problem.harness.choice(levels).overrides)
