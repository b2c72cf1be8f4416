"""A network's precision as a problem: units, their noise, costs and quality of mixtures."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Literal

import numpy as np

from npuflow.base.errors import InputError, TargetError, Where
from npuflow.hw.target import Target
from npuflow.ir.graph import Graph
from npuflow.ir.noise import EXACT, noise_decibels
from npuflow.search.canonical import Memo
from npuflow.search.memory import SearchMemory
from npuflow.strategies import FLOAT, NARROW, WIDE, Budget, Goal, Levels, Noise, Output, Unit
from npuflow.tune import tuned
from npuflow.tune.judge import PartialOutputs, judged_outputs
from npuflow.tune.metric import MetricJudge
from npuflow.tune.precision.cost import CostModel
from npuflow.tune.precision.energy_cost import EnergyModel
from npuflow.tune.precision.harness import Harness
from npuflow.tune.precision.sensitivity import wide_noises


@dataclass
class SearchProblem:
    """What a strategy is given. `noises`: [units, samples, outputs], each unit alone
    at the recipe's width."""

    harness: Harness
    cost: CostModel
    budget: Budget
    noises: Callable[[], Sequence[Noise]]
    probes: int
    corrected: bool
    log: Callable[[str], None]
    goal: Goal = field(default_factory=Goal)
    candidates: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    drop: MetricJudge | None = None
    floats_last: bool = False
    energy: EnergyModel | None = None
    verdicts: dict[Levels, tuple[Output, ...]] = field(default_factory=dict)
    measures: dict[Levels, tuple[Output, ...]] = field(default_factory=dict)
    plans: dict[Levels, float] = field(default_factory=dict)
    _promised: dict[Levels, bool] = field(default_factory=dict, init=False)
    _missing: set[Levels] = field(default_factory=set, init=False)
    _alone: dict[tuple[int, int], Noise] = field(default_factory=dict)

    @cached_property
    def units(self) -> tuple[Unit, ...]:
        return tuple(self._units())

    def cycles(self, levels: Levels) -> float:
        return self.cost.cycles(levels)

    @cached_property
    def _usual(self) -> float:
        """Cycles with the recipe's widths."""
        return self.cost.cycles((NARROW,) * len(self.harness.names))

    def price(self, levels: Levels, what: str | None = None) -> float:
        chosen = what or self.goal.minimise
        if chosen == "cycles":
            return self.cost.cycles(levels) / self._usual
        if chosen == "energy":
            assert self.energy is not None, "no search for the least energy begins without a table"
            return self.energy.relative(levels)
        return self.cost.weight_bytes(levels) if chosen == "bytes" else self.cost.weight_bits(levels)

    def planned(self, levels: Levels) -> float:
        """Cycles of a mixture by a plan of its own, as a multiple of those with the recipe's widths; the
        estimate where the target refuses the mixture. For mixtures that are taken or reported: a plan takes
        as long as a build's."""
        if levels not in self.plans:
            estimated = self.price(levels, "cycles")
            try:
                made = self.cost.replayed(self.harness.built(levels)) / self.cost.replayed()
            except TargetError:
                return estimated
            self.plans[levels] = made
            off = f"{estimated:.3f}, is {100 * (estimated / made - 1):+.1f} % off"
            self.log(f"planned: {made:.3f} times the cycles; the estimate, {off}")
        return self.plans[levels]

    def noise(self, unit: int, level: int) -> Noise:
        if level == NARROW:
            return self.units[unit].noise
        if (unit, level) not in self._alone:
            zero = level == FLOAT
            found = 0 * self.units[unit].noise if zero else self.harness.together([unit], level, self.probes)
            self._alone[unit, level] = found
        return self._alone[unit, level]

    def delta(self, levels: Levels, unit: int, level: int) -> float:
        return self.cost.delta(levels, unit, level)

    def measured(self, levels: Levels) -> Sequence[Output]:
        if levels not in self.measures:
            harness, drop = self.harness, self.drop
            found = judged_outputs(harness.judge.of(harness.mixed(levels, harness.judge.held)))
            labelled = () if drop is None else (drop.drop(harness.mixed(levels, drop.judge.held)),)
            self.measures[levels] = (*found, *labelled)
        return self.measures[levels]

    def promises(self, levels: Levels) -> bool:
        if levels in self.measures or self.drop is not None:
            return self.budget.holds(self.measured(levels))
        if levels not in self._promised:
            table, weights = self.harness.mixture(levels)
            run = partial(self.harness.fake.run, table=table, weights=weights)
            found = PartialOutputs.of(self.harness.judge, run)
            self._promised[levels] = found.hold(self.budget)
            if found.complete:
                self.measures[levels] = found.judged
        return self._promised[levels]

    def steady(self, levels: Levels) -> float:
        harness = self.harness
        probes = min(len(harness.judge.held), tuned.MIXTURE_STEADY)
        noise = harness.probe_noise(*harness.mixture(levels), probes)
        return float(noise_decibels(noise).mean(0).min(initial=EXACT))

    def verified(self, levels: Levels) -> Sequence[Output]:
        if levels not in self.verdicts:
            self._judge(levels, whole=True)
        return self.verdicts[levels]

    def holds(self, levels: Levels) -> bool:
        if levels not in self.verdicts and levels not in self._missing:
            self._judge(levels, whole=False)
        return levels in self.verdicts and self.budget.holds(self.verdicts[levels])

    def _judge(self, levels: Levels, whole: bool) -> None:
        """Of a mixture that misses the budget no more than that is found, unless `whole`."""
        found = self._verified(levels, whole)
        if found is None:
            self._missing.add(levels)
            said = "misses the budget, by the samples of most noise"
        else:
            self.verdicts[levels] = found
            said = ", ".join(described(one) for one in found)
        self.log(f"{self.summarised(levels)}: {said}")

    def floor(self, levels: Levels | None = None) -> Noise:
        harness = self.harness
        return harness.probe_noise(*harness.mixture(levels or (WIDE,) * len(self.units)), self.probes)

    def wide_noise(self) -> Sequence[Noise]:
        return wide_noises(self.harness, min(self.probes, 2))

    def summarised(self, levels: Levels) -> str:
        """For the log: how many units have which width, and what that costs."""
        counts = Counter(
            (u.kind, level) for u, level in zip(self.units, levels, strict=True) if level != NARROW
        )
        parts = [f"{n} {kind}s {self._called(kind, level)}" for (kind, level), n in sorted(counts.items())]
        costs = f"about {self.price(levels, 'cycles'):.2f} times the cycles"
        if any(kind == "weight" for kind, _ in counts):
            costs += f", {100 * self.price(levels, 'bytes'):.0f} % of the bytes of 8-bit weights"
        if self.energy is not None:
            costs += f", about {self.energy.relative(levels):.2f} times the energy"
        return f"{', '.join(parts) or 'the widths of the recipe'} of {len(levels)}, {costs}"

    def _called(self, kind: Literal["activation", "weight"], level: int) -> str:
        if level == FLOAT:
            return "float"
        mode = self.harness.types.mode(level)
        return f"in {mode}" if mode else f"at {self.harness.bits(kind, level)} bits"

    def _verified(self, levels: Levels, whole: bool) -> tuple[Output, ...] | None:
        """None: it misses the budget, and not all samples were run, as nobody asked for the `whole`."""
        harness = self.harness
        try:
            candidate = harness.candidate(levels)
            plain = harness.judge.built(candidate)
        except TargetError as error:
            return self._not(levels, f"cannot be quantised: {error.message}")
        lost = {v: why for v, why in harness.refused(levels).items() if v not in self._lost}
        if lost:
            return self._not(levels, f"would leave a loop to the host: {next(iter(lost.values()))}")
        if self.drop is not None:
            found = self._judged(plain)
            if not self.corrected or self.budget.holds(found):
                return found
            return self._better(found, self._judged(harness.judge.built(candidate, harness.judge.fit)))
        some = [PartialOutputs.of(harness.judge, plain)]
        holds = some[0].hold(self.budget)
        if self.corrected and not holds:
            better = harness.judge.built(candidate, harness.judge.fit)
            some.append(PartialOutputs.of(harness.judge, better))
            holds = some[1].hold(self.budget)
        if holds:
            return some[-1].judged
        return self._better(*(one.judged for one in some)) if whole else None

    def _not(self, levels: Levels, why: str) -> tuple[Output, ...]:
        """The verdict on a mixture that is not to be taken."""
        self.log(f"a mixture {why}")
        return tuple(replace(one, sqnr=-200.0, low=-200.0, agreement=None) for one in self.measured(levels))

    @cached_property
    def _lost(self) -> Mapping[str, str]:
        """What the target refuses in loops at the recipe's widths."""
        return self.harness.refused((NARROW,) * len(self.harness.names))

    def _better(self, *some: tuple[Output, ...]) -> tuple[Output, ...]:
        return max(some, key=lambda outputs: (self.budget.holds(outputs), self.budget.level(outputs)))

    def _judged(self, made: Graph) -> tuple[Output, ...]:
        """Outputs of a quantised graph, and what it has lost of the metric."""
        drop = self.drop
        found = judged_outputs(self.harness.judge.score(made))
        return found if drop is None else (*found, drop.drop(drop.judge.outputs(made)))

    @cached_property
    def _narrow_only(self) -> frozenset[int]:
        """Units whose layers have no tile with wider codes, or leave a loop to the host."""
        try:
            wide = self.harness.built((WIDE,) * len(self.harness.names))
            refused = self._refusing()
        except TargetError:
            return frozenset()
        found = self.cost.without_room(wide)
        for some, why in ((found, "wider codes have no tile that fits local memory"), *refused):
            if some:
                names = ", ".join(self.harness.names[k][1] for k in sorted(some))
                self.log(f"kept at the recipe's width, since {why}: {names}")
        return frozenset({*found, *(k for some, _ in refused for k in some)})

    def _refusing(self) -> list[tuple[frozenset[int], str]]:
        """Units that nodes of loops read which the target refuses with wider codes, and why; where that is
        not enough, those that they write, too."""
        harness, graph, found = self.harness, self.harness.network.graph, list[tuple[frozenset[int], str]]()
        producer, units = graph.producer(), harness.network.units
        for ends in ("inputs", "outputs"):
            narrow = {k for some, _ in found for k in some}
            levels = tuple(NARROW if k in narrow else WIDE for k in range(len(harness.names)))
            for value, why in harness.refused(levels).items():
                if value not in self._lost:
                    around = (v for v in getattr(producer[value], ends) if v in units)
                    some = frozenset(units[v] for v in around if units[v] < len(harness.network.groups))
                    found.append((some, f"the host would run a loop ({why})"))
        return found

    def _units(self) -> Iterator[Unit]:
        network, first = self.harness.network, len(self.harness.network.groups)
        producer, consumers = network.graph.producer(), network.graph.consumers()
        place = {n.outputs: i for i, n in enumerate(network.graph.nodes)}
        for k, ((kind, name), noise) in enumerate(zip(self.harness.names, self.noises(), strict=True)):
            group = network.groups[k] if k < first else ()
            around = [
                n for v in group for n in (*consumers.get(v, []), *([producer[v]] if v in producer else []))
            ]
            sensitive = any(n.op.sensitive for n in around)
            what: Literal["activation", "weight"] = "activation" if kind == "activation" else "weight"
            at = (
                network.weights[k - first].node
                if k >= first
                else min((place[n.outputs] for n in around), default=0)
            )
            some = self.candidates.get(what, (NARROW, WIDE))
            if k in self._narrow_only:
                some = tuple(n for n in some if self.cost.size(k, n) <= self.cost.size(k, NARROW)) or some
            known = self.harness.types.float_levels
            floats = tuple(level for level in known if k in self.harness.floatable(level))
            near = self.cost.neighbours(k)
            yield Unit(name, what, np.asarray(noise), near, sensitive, (*some, *floats), at, floats)


def cost_of(harness: Harness, target: Target, known: Memo | None = None) -> CostModel:
    """What mixtures of a network cost, by its plan with the recipe's own widths. `known`: costs of subgraphs
    from steps before."""
    narrow = harness.built((NARROW,) * len(harness.names))
    return CostModel(harness.network, target, narrow, harness.types, SearchMemory(known))


def unreachable(problem: SearchProblem, levels: Levels, found: Sequence[Output], most: float) -> InputError:
    """The error of a `max_drop` that the best mixture found does not keep: what it loses, and what binds."""
    best = next(one for one in found if one.drop is not None)
    widest = tuple(unit.candidates[-1] for unit in problem.units)
    limits = ", ".join(f"max_{what} = {value:g}" for what, value in problem.goal.limits.items())
    rest = next((one.drop for one in problem.verified(widest) if one.drop is not None), 0.0)
    if rest > most:
        why = f"with the most bits for every tensor and weight it loses {rest:.4f}: widths do not bind"
        hint = "other thresholds (npuflow why accuracy RECIPE), wider candidates, or a larger drop"
    elif limits:
        why = f"{limits} binds: with the most bits for every tensor and weight it loses {rest:.4f}"
        hint = "raise the limit, or accept a larger drop"
    else:
        why = f"the strategy found no mixture between; with the most bits it loses {rest:.4f}"
        hint = 'strategy = "ilp" or "greedy", or point = the last of the points'
    return InputError(
        f"no mixture of widths that was found keeps max_drop = {most:g}: the best loses {best.drop:.4f} of "
        f"{best.name}, at {problem.price(levels, 'cycles'):.2f} times the cycles",
        because=why, hint=hint, where=Where(key="precision.max_drop"), code="NF-QUANT-045",
    )


def described(one: Output) -> str:
    """For logs and summaries."""
    if one.drop is not None:
        return f"{one.name} {-one.drop:+.4f}"
    answers = "" if one.equal is None else f", {100 * one.equal:.1f} % of answers"
    return f"{one.name} {one.sqnr:.1f} dB (four of five samples {one.low:.1f}{answers})"
