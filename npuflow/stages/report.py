"""The report of a build: one self-contained HTML page and the same data as JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Self

import numpy as np

from npuflow.base.wording import counted
from npuflow.flow.artifact import Artifact, Reader, Writer
from npuflow.flow.stage import View, log, stage
from npuflow.input.data.profile import InputProfile
from npuflow.ir.graph import Graph
from npuflow.ir.types import QuantType, span
from npuflow.report.accuracy import Table, judged, of_qdq, of_rewrites, tables
from npuflow.report.gate.figures import HeadlineFigures, first_score, worst
from npuflow.report.gather import BINS, ReportSources, report_data
from npuflow.report.page import render
from npuflow.report.profile import profile
from npuflow.report.statement import Statement, accuracy_warnings, evaluated
from npuflow.report.suggest import of_network
from npuflow.stages.baseline import Baseline
from npuflow.stages.channels import ChannelRanges
from npuflow.stages.codegen import CompiledProgram
from npuflow.stages.energy import EnergyUse
from npuflow.stages.evaluate import Evaluation
from npuflow.stages.fidelity import Fidelity
from npuflow.stages.input_check import InputCheck
from npuflow.stages.page_library import PageLibrary
from npuflow.stages.parse import Parsed
from npuflow.stages.placement import Placement
from npuflow.stages.precision import Precision
from npuflow.stages.qdq_check import QdqComparison
from npuflow.stages.quantize import Quantized
from npuflow.stages.rewrite_check import RewriteCheck
from npuflow.stages.sensitivity import Sensitivity
from npuflow.stages.simulate import Simulation
from npuflow.stages.statistics import Statistics
from npuflow.stages.thresholds import Thresholds
from npuflow.stages.verdict import Verdict
from npuflow.statistics import statistics as merging
from npuflow.tune.improve import Trial, decibels
from npuflow.tune.precision.output_check import in_decibels
from npuflow.tune.precision.widened import widened

PAGE, DATA = "report.html", "report.json"
STATED = "the model's own"
BYTES = "bytes as they are"


@dataclass(frozen=True)
class Report(Artifact):
    """The page and its data."""

    data: dict[str, Any]
    page: str

    def save(self, folder: Writer) -> None:
        folder.text(PAGE, self.page)
        folder.text(DATA, json.dumps(self.data, sort_keys=True, indent=1, allow_nan=False))

    @classmethod
    def load(cls, folder: Reader) -> Self:
        return cls(json.loads(folder.text(DATA)), folder.text(PAGE))

    def summary(self) -> dict[str, Any]:
        """What the build says of the accuracy, now that the evaluation is known."""
        one = self.data["accuracy"]
        found = dict(Statement(one["ok"], one["text"], one["hint"]).facts())
        if one["warnings"]:
            texts, hints = ("; ".join(each[part] for each in one["warnings"]) for part in ("text", "hint"))
            found |= {"warning": texts, "warning_hint": hints}
        return found

    def products(self) -> dict[str, str]:
        return {"report": PAGE, "report.json": DATA}


@dataclass(frozen=True)
class Decisions(View):
    """What was found on calibration data, and chosen by it."""

    statistics: Statistics | None
    thresholds: Thresholds | None
    baseline: Baseline | None
    sensitivity: Sensitivity | None
    precision: Precision | None
    channels: ChannelRanges | None


@dataclass(frozen=True)
class Checks(View):
    """What was compared, and how good the network is."""

    fidelity: Fidelity
    simulate: Simulation
    input_check: InputCheck
    rewrite_check: RewriteCheck
    qdq_check: QdqComparison
    verdict: Verdict
    evaluate: Evaluation | None
    energy: EnergyUse | None


@stage(minor=True)
def report(
    parse: Parsed,
    placement: Placement,
    quantize: Quantized,
    codegen: CompiledProgram,
    decided: Decisions,
    checks: Checks,
    page_library: PageLibrary,
) -> Report:
    """Gather what the stages found, for eyes and for machines."""
    statistics, baseline, sensitivity = decided.statistics, decided.baseline, decided.sensitivity
    precision, channels, evaluate = decided.precision, decided.channels, checks.evaluate
    fidelity, verdict, input_check = checks.fidelity, checks.verdict, checks.input_check
    known, thresholds = statistics or Statistics(merging.empty(())), decided.thresholds or Thresholds({}, {})
    chosen, least = precision or Precision(), baseline.outputs if baseline is not None else ()
    codes = {n: q for n, q in {**parse.stated, **thresholds.codes}.items() if n in thresholds.ranges}
    stated = {name: span(quant) for name, quant in codes.items()}
    ranges = {**thresholds.ranges, **stated}
    trials = (*parse.trials, *thresholds.trials, *quantize.trials)
    given = {n: BYTES if n in parse.pixels else STATED for n in stated if n in parse.stated}
    extrema = channels.content if channels is not None else {}
    stretches = {name: one.stretches for name, one in fidelity.tensors.items()}
    reported = of_network(parse.graph, known.content, ranges, _codes(quantize.graph), extrema, stretches)
    score = evaluate.score if evaluate is not None else None
    said = evaluated(verdict.statement, score)
    log(f"{said.text}; {said.hint}" if said.hint else said.text)
    alone = sensitivity or Sensitivity((), np.zeros((0, 0, 0)))
    wider = widened(parse.graph, chosen.overrides, alone.names, alone.noise)
    clock = profile(codegen.program)
    sources = ReportSources(
        title=f"npuflow report on {_name(parse.graph)}",
        graph=quantize.graph,
        placement=placement.placed,
        refusals=parse.refusals,
        profile=clock,
        fidelity=fidelity.tensors,
        ranges=ranges,
        methods={**thresholds.methods, **given},
        histogram=partial(_histogram, known.content),
        facts=[
            *_accuracy(evaluate), *_facts(clock.totals(), quantize, fidelity), *_simulated(checks.simulate),
            *_used(checks.energy),
        ],
        notes=[
            *tables(least, chosen.after, verdict.outputs, wider, verdict.fixes, verdict.clipped),
            *_widths(quantize),
            ("Corrections, judged on held-out samples", TRIED, list(map(_tried, trials))),
            ("Samples left out", ("sample", "reason"), known.broken),
            *_inputs(input_check),
            *_compared(parse, checks.rewrite_check, checks.qdq_check),
        ],
        suggestions=reported,
        channels=extrema,
        accuracy=said,
        accuracy_warnings=accuracy_warnings(verdict.outputs, checks.qdq_check.bias, said, score),
        outputs=judged(verdict.outputs), figures=_figures(checks, clock.totals(), codegen.size),
        energy=None if checks.energy is None else checks.energy.plain(),
    )
    data = report_data(sources)
    return Report(data, render(data, page_library.text))


def _figures(checks: Checks, totals: dict[str, Any], size: int) -> HeadlineFigures:
    """What a later build is held against."""
    evaluate, energy = checks.evaluate, checks.energy
    name, score = first_score(evaluate.score.figures) if evaluate is not None else ("", None)
    return HeadlineFigures(
        score=score, score_name=name,
        score_better=evaluate.score.better if evaluate is not None else "higher",
        samples=evaluate.score.samples if evaluate is not None else 0,
        sqnr_db=worst([one.output.sqnr for one in in_decibels(checks.verdict.outputs)]),
        cycles=totals["cycles"],
        external_bytes=totals["bytes"], program_bytes=size,
        energy_uj=energy.total if energy is not None else None,
    )


def _used(energy: EnergyUse | None) -> list[tuple[str, Any]]:
    if energy is None:
        return []
    most = max(energy.parts, key=lambda part: energy.parts[part])
    share = energy.parts[most] / max(energy.total, 1e-30)
    return [("energy of an inference, uJ", float(f"{energy.total:.4g}")),
            (f"of it {most}", f"{100 * share:.0f} %")]


def _codes(graph: Graph) -> dict[str, QuantType]:
    """The types of tensors of codes, by the names of the float network."""
    held = graph.values.values()
    return {v.id.removesuffix(":q"): v.quant for v in held if v.quant is not None and not v.number}


def _histogram(
    content: merging.ObservedStatistics, value_id: str
) -> tuple[float, float, Sequence[float]] | None:
    if value_id not in content:
        return None
    one = content[value_id]
    if one.hi <= one.lo:
        return one.lo, one.hi, []
    return one.lo, one.hi, one.histogram(BINS, one.lo, one.hi).tolist()


TRIED = ("correction", "layer", "without", "with", "kept", "largest change", "not possible because")


def _tried(trial: Trial) -> tuple[str, ...]:
    change = "" if trial.reason or not trial.change else f"{trial.change:.3g}"
    errors = decibels(trial.before), decibels(trial.after)
    return trial.correction, trial.layer, *errors, "yes" if trial.kept else "no", change, trial.reason


def _widths(quantize: Quantized) -> list[Table]:
    return [
        ("Nodes kept in float for their numbers", ("node", "reason"), _notes(quantize, on_host=True)),
        ("Nodes that deviate from the recipe", ("node", "what"), _notes(quantize, on_host=False)),
    ]


def _compared(parse: Parsed, rewrites: RewriteCheck, qdq: QdqComparison) -> list[Table]:
    tables = of_qdq(qdq.tensors, qdq.verdict, qdq.reason)
    return tables + of_rewrites(parse.applied, rewrites.errors, rewrites.culprits, rewrites.reason)


def _inputs(check: InputCheck) -> list[Table]:
    return [
        ("Model inputs: possible errors", ("warning",), [(w,) for w in check.warnings]),
        ("Model inputs: calibration", FED, [_fed(name, one) for name, one in check.profiles.items()]),
    ]


FED = ("input", "samples looked at", "lowest", "highest", "mean", "deviation", "mean by channel")


def _fed(name: str, one: InputProfile) -> tuple[Any, ...]:
    return name, one.samples, one.lo, one.hi, one.mean, one.std, ", ".join(f"{c:.3g}" for c in one.colours)


def _name(graph: Graph) -> str:
    """What the network turns into what, as it has no name of its own."""
    shapes = ", ".join(f"{name} {'x'.join(map(str, graph.type(name).shape))}" for name in graph.inputs[:3])
    return f"{shapes} -> {', '.join(graph.outputs[:3])}"


def _notes(quantize: Quantized, on_host: bool) -> list[tuple[str, str]]:
    return [(n.node, n.reason) for n in quantize.notes if n.on_host is on_host]


def _accuracy(evaluation: Evaluation | None) -> list[tuple[str, Any]]:
    if evaluation is None:
        return []
    score = evaluation.score
    found: list[tuple[str, Any]] = [
        (f"{name} on {counted(score.samples, 'sample')}", round(v, 4)) for name, v in score.figures.items()
    ]
    found += [(f"{name} of the float model", round(v, 4)) for name, v in score.beside.items()]
    if score.agreement is not None and "agreement" not in score.figures:
        found.append(("agreement with the float model", round(score.agreement, 4)))
    return found


def _simulated(simulation: Simulation) -> list[tuple[str, Any]]:
    """What the simulator found: inferences at the same time and one after the other, and exactness."""
    rate, checks = simulation.totals["throughput"], simulation.checks
    many = int(rate["instances"])
    own = [("ms of an inference, all cores busy", round(rate["latency_ms"], 4))] if many > 1 else []
    cores = f", on {many} cores with one each" if many > 1 else ""
    different = f"{sum(1 for c in checks if c.different)} of {len(checks)}"
    return [
        (f"inferences a second{cores}", round(rate["per_second"], 1)), *own,
        ("tensors that differ from the reference", different),
    ]


def _facts(totals: dict[str, Any], quantize: Quantized, fidelity: Fidelity) -> list[tuple[str, Any]]:
    gap = totals["npu_cycles"] / totals["bound_cycles"] if totals["bound_cycles"] else None
    outputs = [fidelity.tensors[o] for o in fidelity.tensors if o in quantize.graph.outputs]
    known = [f.sqnr for f in outputs if f.sqnr is not None]
    found: list[tuple[str, Any]] = [
        ("cycles", round(totals["cycles"])),
        ("cycles of the host among them", round(totals["host_cycles"])),
        ("ms at the target's clock", round(totals["milliseconds"], 3)),
        ("MACs on the NPU", f"{100 * quantize.share:.1f} %"),
        ("MACs on the host", f"{totals['host_macs']:,}"),
        ("array utilisation", f"{100 * totals['utilisation']:.1f} %"),
        ("external MB", round(totals["bytes"] / 1e6, 3)),
        ("times the lower bound of the NPU's cycles", None if gap is None else round(gap, 2)),
    ]
    if known:
        found.append(("worst output SQNR, dB", round(min(known), 1)))
    return [f for f in found if f[1] is not None]
