"""Whether the quantised network can be used: its outputs on held-out samples, what spoils them,
and fixes that were measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Annotated, Any

from npuflow.base.tables import Config
from npuflow.calibrators import CALIBRATORS
from npuflow.calibrators.auto import Auto
from npuflow.flow.artifact import Artifact
from npuflow.flow.stage import Items, View, log, progress, stage
from npuflow.hw.target import Target
from npuflow.ir.graph import Graph
from npuflow.ir.types import Array
from npuflow.quantise.config import Override, Quantize
from npuflow.report.statement import MORE, Advice, JudgedOn, Statement, statement
from npuflow.run.fixed_outputs import with_fixed_outputs
from npuflow.stages._calibration import TuningSamples
from npuflow.stages._candidates import PlacedNetwork
from npuflow.stages._chosen import ChosenCandidate
from npuflow.stages._reference import reference_of
from npuflow.stages._targets import PlannedTarget
from npuflow.stages.input_check import InputCheck
from npuflow.stages.quantize import Quantized
from npuflow.stages.samples import feeds
from npuflow.stages.statistics import Statistics
from npuflow.stages.thresholds import Thresholds
from npuflow.stages.verify import VerifyingSample
from npuflow.strategies import STRATEGIES, Budget
from npuflow.tune.correct.config import Correct
from npuflow.tune.judge import Judge
from npuflow.tune.precision.advice import Fix, FixSearch
from npuflow.tune.precision.config import PrecisionTable, Probing
from npuflow.tune.precision.culprit import NoiseSource, culprits
from npuflow.tune.precision.harness import Harness
from npuflow.tune.precision.masks import masked
from npuflow.tune.precision.named import BetterMethod, automatic, compared
from npuflow.tune.precision.output_check import (
    MOST,
    JudgedOutput,
    affordable,
    clipped,
    in_decibels,
    no_numbers,
    shown,
)
from npuflow.tune.precision.problem import SearchProblem, cost_of, described
from npuflow.tune.precision.sensitivity import noises
from npuflow.tune.ranges.thresholds import Calibrate, RangeChoice, choices
from npuflow.tune.ranges.thresholds import thresholds as chosen_by
from npuflow.whole.execute.executor import real_outputs

ELSEWHERE = "npuflow why accuracy RECIPE (a layer of the host makes the output: fixes are measured of others)"
OFF = "[verdict] advice = true, which looks for the cause and measures fixes"


@dataclass(frozen=True)
class VerdictTable(Config, table="verdict"):
    """What a build does about outputs that are too far from the float network's."""

    advice: bool = True
    """Find what spoils the output, apply fixes to it, and measure them; of outputs that are good, whether a
    method that [calibrate] names is much worse than "auto"."""
    methods: tuple[Annotated[str, CALIBRATORS], ...] = ("minmax", "percentile", "kl", "mse")
    """Threshold methods that are tried where the recipe names one."""


@dataclass(frozen=True)
class Verdict(
    Artifact, about=("samples", "reason", "budget", "inputs", "untried", "weights", "verified"),
):
    """Outputs on `samples` held-out samples, or the `reason` why nothing can be judged; shares of clipped
    values by tensor; of the worst output what spoils it most, and fixes, by the samples that choose.
    `verified`: no choice has seen the samples. `untried`: what to do to have fixes, where none were looked
    for; `weights`: how many numbers of constants are NaN, where an output is; `short`: the search for widths
    found none that hold the budget."""

    outputs: tuple[JudgedOutput, ...] = ()
    samples: int = 0
    reason: str = ""
    budget: Budget = field(default_factory=Budget)
    clipped: Mapping[str, float] = field(default_factory=dict)
    culprit: NoiseSource | None = None
    fixes: tuple[Fix, ...] = ()
    inputs: str = ""
    better: BetterMethod | None = None
    untried: str = ""
    weights: Mapping[str, int] = field(default_factory=dict)
    verified: bool = True
    short: bool = False

    @property
    def statement(self) -> Statement:
        return statement(
            self.outputs, JudgedOn(self.samples, self.verified), self.reason, self.budget, self.advice,
            self.inputs, self.weights,
        )

    @property
    def advice(self) -> Advice:
        return Advice(self.culprit, self.fixes, self.untried, self.short)

    def summary(self) -> dict[str, Any]:
        said = self.statement
        found: dict[str, Any] = {"judged": "no" if said.ok is None else "good" if said.ok else "poor"}
        if self.outputs:
            worst = min((s.output for s in in_decibels(self.outputs)), key=lambda one: min(one.sqnr, one.low))
            found |= {"sqnr_db": round(worst.sqnr, 2), "samples": self.samples}
            if not self.verified:
                found["verified"] = "no"
        if self.clipped:
            name = max(self.clipped, key=lambda n: self.clipped[n])
            if self.clipped[name] > 0:
                share = 100 * self.clipped[name]
                found |= {"most_clipped": f"{share:.2g} % of {name}" if share < 99.5 else f"all of {name}"}
        if self.better is not None:
            found |= {"warning": self.better.text, "warning_hint": 'method = "auto", or leave it out'}
        return {**found, **said.facts()}


@dataclass(frozen=True)
class JudgedSamples(View):
    """Samples that no choice has seen; for advice, which is a choice, those that the build chose by."""

    verify: Items[VerifyingSample]
    tuning: TuningSamples


@dataclass(frozen=True)
class VerdictOptions(View):
    """The tables by which outputs are judged and fixes are tried."""

    verdict: VerdictTable
    calibrate: Calibrate
    widths: PrecisionTable
    probing: Probing
    correct: Correct


@stage(cpu="native", memory="1GB", floats=True, minor=True)
def verdict(
    chosen: ChosenCandidate,
    quantized: Quantized,
    statistics: Statistics | None,
    samples: JudgedSamples,
    input_check: InputCheck,
    options: VerdictOptions,
    planned: PlannedTarget,
) -> Verdict:
    """Run samples that no choice has seen through the float network and the program's integers; where an
    output is poor, look for the cause and for what helps."""
    graph, quantize = chosen.placed.graph, chosen.placed.quantize
    thresholds, precision = chosen.choices.thresholds, chosen.choices.precision
    verdict, calibrate, correct = options.verdict, options.calibrate, options.correct
    budget, unlike = options.widths.budget, next(iter(input_check.unlike), "")
    if samples.tuning.is_random:
        return _unjudged("the calibration samples are random numbers")
    judge = samples.tuning.judge(graph.graph, correct.samples, correct.held_out)
    unseen = list(feeds(samples.verify, graph.graph, MOST))
    held = affordable(graph.graph, unseen or judge.held)
    if not held:
        lone = "sequence" if graph.graph.state else "sample"
        return _unjudged(f"there is only one calibration {lone}, which cannot both calibrate and judge")
    integers, reference = with_fixed_outputs(quantized.graph), with_fixed_outputs(reference_of(graph))
    verifies = Judge(with_fixed_outputs(graph.graph), held, reference=reference)
    found = shown(verifies, real_outputs(integers, planned.numerics, held), budget)
    shares = _looked(graph.graph, quantized.graph, found, held)
    made = Verdict(
        found, len(held), "", budget, shares, inputs=unlike, untried=MORE, verified=bool(unseen),
        short=precision is not None and not precision.holds,
    )
    poor = [s.output for s in found if not s.ok]
    if (strange := any(s.nan for s in found)) or not verdict.advice:
        return replace(made, untried=OFF, weights=no_numbers(graph.graph) if strange else {})
    if thresholds is None or precision is None or statistics is None:
        return made                        # nothing was calibrated: there are no ranges or widths to choose
    if not (poor or calibrate.method != "auto"):
        return made
    network, ranges = chosen.fake_quantised(), _Ranges(chosen.placed, statistics, thresholds, calibrate)
    chooses = Judge(network.graph, affordable(graph.graph, judge.held), judge.fit, network.reference)
    chooses = chooses.objects_first()
    harness = Harness(network, ranges.extrema, chooses)
    # fixes are networks in fake quantisation, and so is what they are compared with
    mine = shown(choosing := replace(verifies, held=chooses.held), choosing.outputs(integers), budget)
    if not poor:
        return replace(made, better=ranges.automatic(harness, mine, frozenset(precision.ranges), budget))
    rivals = partial(ranges.others, verdict.methods, frozenset(precision.ranges))
    target, corrected = planned.target, correct.bias != "off"
    searched = partial(_searched, harness, quantize, target, options)
    clinic = FixSearch(harness, quantize, target, budget, corrected, ranges.extrema, rivals, searched, log)
    columns = {part.name: i for i, part in enumerate(harness.judge.parts)}
    if not network.groups or not (known := [one for one in poor if one.name in columns]):
        return replace(made, untried=ELSEWHERE)
    name = min(known, key=lambda one: min(one.sqnr, one.low)).name
    worst, column = next(one.output for one in mine if one.output.name == name), columns[name]
    blamed = culprits(harness, column, progress)
    for one in blamed[:10]:
        log(f"{one.kind} {one.value} ({one.layer}) in float: {one.before:.1f} -> {one.after:.1f} dB")
    fixes = clinic.fixes(worst.name, worst, blamed)
    return replace(made, culprit=blamed[0] if blamed else None, fixes=tuple(fixes), untried="")


@dataclass(frozen=True)
class _Ranges:
    """Ranges by other methods than those of the build."""

    placed: PlacedNetwork
    statistics: Statistics
    thresholds: Thresholds
    calibrate: Calibrate

    def by(self, method: str) -> dict[str, tuple[float, float]]:
        one = self.calibrate
        table = Calibrate(method, one.bounds, one.beyond, one.infinite, one.as_trimmed)
        net, seen = self.placed.plain, self.statistics.content
        return dict(chosen_by(net.graph, seen, table, net.scheme, net.numerics, net.placed.on_npu).ranges)

    @cached_property
    def choices(self) -> dict[str, RangeChoice]:
        """Of every tensor what its method chooses by."""
        net = self.placed.plain
        return choices(net.graph, self.statistics.content, self.calibrate, net.scheme, net.numerics, [])

    @cached_property
    def extrema(self) -> dict[str, tuple[float, float]]:
        found = self.choices
        minmax = CALIBRATORS["minmax"]()
        return {name: minmax(one.tensor, one.grid) for name, one in found.items()} | self.masks

    @cached_property
    def masks(self) -> dict[str, tuple[float, float]]:
        """Additive masks, which are clamped whatever the method."""
        return dict(masked(self.placed.graph.graph, self.statistics.content))

    def others(
        self, methods: Sequence[str], kept: frozenset[str]
    ) -> dict[str, dict[str, tuple[float, float]]]:
        """Of all tensors whose method the recipe names; what is written by hand or was widened stays."""
        own = self.calibrate.method
        if own == "auto":
            return {}
        free = {
            v
            for v, method in self.thresholds.methods.items()
            if method == own and v not in kept and v not in self.masks
        }
        return {m: {v: span for v, span in self.by(m).items() if v in free} for m in methods if m != own}

    def automatic(
        self, harness: Harness, built: Sequence[JudgedOutput], kept: frozenset[str], budget: Budget
    ) -> BetterMethod | None:
        """Whether `auto` is much better than the method that the recipe names, where that chose ranges."""
        auto, method = Auto(), self.calibrate.method
        chosen = {v for v, own in self.thresholds.methods.items() if own == method} - {
            *kept,
            *self.thresholds.codes,
        }
        found = self.choices
        free = {v: one.grid for v, one in found.items() if v in chosen}
        choosing = min(auto.samples, len(harness.judge.fit))
        if not free or not choosing or not harness.judge.parts:
            return None
        chooses = replace(harness.judge, held=[*harness.judge.fit[:choosing], *harness.judge.held])
        ready = replace(harness, judge=chooses)
        done = automatic(
            ready,
            self.statistics.content,
            self.calibrate,
            self.masks,
            replace(auto, samples=choosing),
            free,
            budget,
        )
        return compared(ready, [one.output for one in built], method, done.ranges, choosing)


def _searched(
    harness: Harness, recipe: Quantize, target: Target, options: VerdictOptions
) -> tuple[tuple[Override, ...], Mapping[str, tuple[float, float]]] | None:
    """What `[precision] strategy = "auto"` would choose, where the recipe has switched it off."""
    widths, probing, corrected = options.widths, options.probing, options.correct.bias != "off"
    if widths.strategy != "none":
        return None
    judge = replace(harness.judge, held=harness.judge.held[: probing.held_out])
    ready = replace(harness, network=harness.network.with_(scheme=recipe), judge=judge)
    noise = list(noises(ready, probing.probes, progress))
    cost = cost_of(ready, target)
    problem = SearchProblem(ready, cost, widths.budget, lambda: noise, probing.probes, corrected, log)
    choice = ready.choice(STRATEGIES["auto"]()(problem))
    return choice.overrides, choice.ranges


def _looked(
    real: Graph, graph: Graph, found: Sequence[JudgedOutput], held: Sequence[Mapping[str, Array]]
) -> dict[str, float]:
    """Shares of clipped values, and everything into the log."""
    types = {
        v.id.removesuffix(":q"): v.quant
        for v in graph.values.values()
        if v.const is None and v.quant is not None and not v.number
    }
    shares = clipped(real, types, held)
    for one in found:
        at = f', where "{one.where}" is high' if one.where else ""
        log(f"{'good' if one.ok else 'POOR'}: {described(one.output)}{at}")
    for name, share in sorted(shares.items(), key=lambda pair: -pair[1])[:20]:
        if share > 0:
            log(f"clipped: {100 * share:.3g} % of {name}")
    return shares


def _unjudged(reason: str) -> Verdict:
    log(f"not judged: {reason}")
    return Verdict(reason=reason)
