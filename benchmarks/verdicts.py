"""Whether a build's verdict is right: warnings against the truth, culprits against planted
faults, gains against promises.

    python benchmarks/verdicts.py SHARED [--only TASK/KIND ...] [--log FILE] [--table FILE] [--limit N]

SHARED holds the models and data of MODELS.md and MODELS2.md. Every configuration runs the stages from
`parse` to `verdict` in this process; tiling, code generation and simulation add nothing to the numbers,
as programs are bit-exact. Then the evaluation set, which no stage sees, is scored with the quantised
graph. --log keeps one JSON line for each configuration, and those that it holds are not run again.
--table writes the results as Markdown.

The rule. A configuration is ruined where, on the evaluation samples and against the
float network on the same samples,

- the task's own figure drops by more than one point and by more than one sample's worth, or
- fewer than 97 % of the answers agree (IoU of masks and boxes, and answers out of a
  thousand classes: less than .95).

It is good where, on the evaluation, the budget holds: 20 dB for every output, or 99 % of equal
answers. What is neither misses the budget without much harm: there a warning is right, and none does
no damage. A wrong normalisation of the calibration samples does not show on these samples; the inputs
of the recipe's [evaluate] show it.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))

from verdict_faults import Fault, faults
from verdict_tasks import ORDINARY, WRONG_MEAN, Change, Task

from npuflow.base.digest import digest, digest_array
from npuflow.flow.signature import signature
from npuflow.flow.stage import Items, Stage
from npuflow.input.data.profile import profiled
from npuflow.input.data.splits import divided as divide
from npuflow.ir.graph import Graph
from npuflow.place.islands import PlacementTable
from npuflow.quantise.candidate import Candidate
from npuflow.quantise.config import Activations, Override, Quantize
from npuflow.stages.baseline import baseline
from npuflow.stages.clipping import clipping
from npuflow.stages.correct import correct
from npuflow.stages.evaluation_inputs import EvaluationInputs
from npuflow.stages.input_check import input_check
from npuflow.stages.precision import Precision, precision
from npuflow.stages.quantize import Quantized, quantize
from npuflow.stages.samples import Sample, feeds
from npuflow.stages.sensitivity import sensitivity
from npuflow.stages.statistics import Statistics
from npuflow.stages.thresholds import Thresholds, thresholds
from npuflow.stages.verdict import Verdict, VerdictTable, verdict
from npuflow.tune.correct.config import Correct
from npuflow.tune.judge import Judge
from npuflow.tune.precision.advice import Fix
from npuflow.tune.precision.config import PrecisionTable, Probing, Widths
from npuflow.tune.precision.culprit import NoiseSource
from npuflow.tune.precision.fakequant import FakeQuantNetwork
from npuflow.tune.precision.problem import Harness
from npuflow.tune.ranges.thresholds import Calibrate, LayerCalibration

FIGURE = {
    "lines": "exact",
    "text": "line_recall",
    "pitch": "within50",
    "notes": "frame_f1",
    "face": "accuracy",
    "box": "recall50",
    "g2p": "steps",
    "thai": "f1",
    "oskut": "f1",
    "wake": "clips",
    "photos": "top1",
    "scenes": "ap50",
    "vad": "acc_10db",
    "fashion": "top1",
}
OVERLAP = ("text", "notes", "selfie", "box")       # whose agreement is an IoU


def ruined(name: str, score: Mapping[str, Any]) -> bool:
    """By the rule above."""
    agreement, figure = score.get("agreement"), FIGURE.get(name)
    drop = -(score.get(f"delta_{figure}") or 0.0) if figure else 0.0
    worth = max(0.01, 1.0 / score["n"]) + 1e-6
    least = 0.95 if name in (*OVERLAP, "photos") else 0.97
    return drop > worth or (agreement is not None and agreement < least)


@dataclass(frozen=True)
class Kind:
    """A configuration: the tables that differ from the defaults, and what is planted."""

    calibrate: Calibrate = field(default_factory=Calibrate)
    quantize: Quantize = field(default_factory=Quantize)
    widths: PrecisionTable = field(default_factory=PrecisionTable)
    change: Change = ORDINARY


NONE = PrecisionTable(strategy="none")
KINDS = {
    "default": Kind(),
    "none": Kind(widths=NONE),
    "kl": Kind(Calibrate("kl"), widths=NONE),
    "minmax": Kind(Calibrate("minmax"), widths=NONE),
    "6bits": Kind(quantize=Quantize(activations=Activations(bits=6)), widths=NONE),
    "mean": Kind(widths=NONE, change=WRONG_MEAN),
}


@dataclass(frozen=True)
class Built:
    """What the stages up to `correct` gave."""

    task: Task
    kind: Kind
    samples: Items[Sample]
    statistics: Statistics
    thresholds: Thresholds
    precision: Precision
    quantized: Quantized
    planted: tuple[str, ...] = ()


def calibrated(task: Task, kind: Kind) -> tuple[Items[Sample], Statistics, Thresholds]:
    num = task.target.numerics
    samples = task.samples(kind.change)
    fit = divided(samples)["fit"]
    statistics = task.statistics(fit, kind.change.name)
    first = thresholds(task.parsed, task.placement, statistics, kind.calibrate, kind.quantize, num)
    return (
        samples,
        statistics,
        run(
            clipping, thresholds=first, statistics=statistics, wanted=kind.widths,
            **divided(samples), **_given(task, kind),
        ),
    )


def divided(samples: Items[Sample]) -> dict[str, Items[Sample]]:
    """The parts of the samples, as a build divides them."""
    known = {
        name: digest({key: digest_array(array) for key, array in one.content.arrays.items()})
        for name, one in samples.items()
    }
    return {
        part: Items({name: partial(samples.__getitem__, name) for name in names})
        for part, names in divide(known)._asdict().items()
    }


def run(stage: Stage, **given: Any) -> Any:
    """A stage on what it asks for by name; artifacts that the configuration does without are None."""
    asked = signature(stage)
    return stage.run({name: given.get(name) for name in (*asked.tables, *asked.upstream)})


def _given(task: Task, kind: Kind) -> dict[str, Any]:
    """What the stages take beside artifacts of one another."""
    t = task.target
    tables = {
        "calibrate": kind.calibrate,
        "quantize": kind.quantize,
        "probing": Probing(),
        "correct": Correct(),
    }
    machine = {"numerics": t.numerics, "compute": t.compute, "memory": t.memory, "dma": t.dma, "host": t.host}
    tables |= {"least": PlacementTable(), "widths": Widths()}
    return {"graph": task.parsed, "placement": task.placement, **tables, **machine}


def built(task: Task, kind: Kind, fault: Fault | None = None) -> Built:
    """`fault`: its ranges are planted; its widths are the recipe's."""
    samples, statistics, ranges = calibrated(task, kind)
    wrong = fault.applied(ranges.ranges) if fault is not None else {}
    return finished(
        task, kind, samples, statistics, replace(ranges, ranges={**ranges.ranges, **wrong}), tuple(wrong)
    )


def finished(
    task: Task,
    kind: Kind,
    samples: Items[Sample],
    statistics: Statistics,
    ranges: Thresholds,
    wrong: tuple[str, ...] = (),
) -> Built:
    given = _given(task, kind) | {"thresholds": ranges, "statistics": statistics} | divided(samples)
    start = run(baseline, **given, precision=kind.widths)
    noise = run(sensitivity, **given, baseline=start)
    widths = run(precision, **given, baseline=start, sensitivity=noise, precision=kind.widths)
    plain = run(quantize, **given, precision=widths)
    final = run(correct, **given, quantized=plain)
    return Built(task, kind, samples, statistics, ranges, widths, final, wrong)


def judged(made: Built, evaluation: bool = True) -> Verdict:
    """The build's verdict; `evaluation`: whether the recipe has one, whose inputs are then
    held against the calibration's."""
    task, kind = made.task, made.kind
    profiles = EvaluationInputs(profiled(task.evaluation_feeds())) if evaluation else None
    check = input_check(made.samples, profiles, task.parsed)
    given = _given(task, kind) | {
        "thresholds": made.thresholds,
        "statistics": made.statistics,
        **divided(made.samples),
    }
    found: Verdict = run(
        verdict,
        **{**given, "widths": kind.widths},
        precision=made.precision,
        quantized=made.quantized,
        input_check=check,
        verdict=VerdictTable(),
    )
    return found


def levels(task: Task, graph: Graph) -> dict[str, float]:
    """dB of every output of real numbers on the evaluation samples; states are fed back."""
    made = task.outputs(graph)
    found = {}
    for name, array in task.truth.items():
        real = array.astype(np.float64)
        wrong = float(((real - made[name].astype(np.float64)) ** 2).sum())
        found[name] = round(float(10 * np.log10((real**2).sum() / max(wrong, 1e-30))), 2)
    return found


def holds(found: Mapping[str, float], score: Mapping[str, Any]) -> bool:
    """Whether the budget holds on the evaluation: 20 dB of every output; for the one that
    answers are of, or 99 % of them."""
    agreement = score.get("agreement")
    answered = agreement is not None and agreement >= 0.99
    named = score.get("sqnr_db")
    answers = next(iter(named)) if isinstance(named, dict) else next(iter(found))
    return all(level >= 20.0 or (answered and name == answers) for name, level in found.items())


def with_fix(made: Built, fix: Fix) -> Built:
    """The configuration built again with the fix's TOML pasted."""
    pasted = tomllib.loads(fix.toml)
    kind, ranges = made.kind, made.thresholds
    calibrate = pasted.get("calibrate", {})
    methods = [LayerCalibration(tuple(one["layers"]), one["method"]) for one in calibrate.get("layers", [])]
    extra = tuple(
        Override(**{**one, "layers": tuple(one["layers"])})
        for one in pasted.get("quantize", {}).get("overrides", [])
    )
    bits = pasted.get("quantize", {}).get("activations", {}).get("bits", kind.quantize.activations.bits)
    activations = replace(kind.quantize.activations, bits=bits)
    q = replace(kind.quantize, overrides=(*kind.quantize.overrides, *extra), activations=activations)
    c = replace(
        kind.calibrate,
        method=calibrate.get("method", kind.calibrate.method),
        layers=(*kind.calibrate.layers, *methods),
    )
    kind = replace(
        kind, calibrate=c, quantize=q, widths=PrecisionTable(**pasted.get("precision", asdict(kind.widths)))
    )
    samples, statistics, found = calibrated(made.task, kind)
    planted = {
        v: made.thresholds.ranges[v]
        for v in made.planted
        if found.methods.get(v) not in {m.method for m in methods}
    }
    ranges = replace(ranges, ranges={**found.ranges, **planted}, methods=found.methods)
    return finished(made.task, kind, samples, statistics, ranges, made.planted)


def planted_faults(task: Task, kind: str, count: int) -> list[Fault]:
    """The first faults of a kind, in the network with the recipe's widths."""
    plain = Kind(widths=NONE)
    samples, _, ranges = calibrated(task, plain)
    candidate = Candidate(
        task.graph, task.placement.placed, plain.quantize, task.target.numerics, ranges.ranges,
        task.parsed.stated,
    )
    network = FakeQuantNetwork(candidate)
    fit, held, _ = (list(feeds(part, task.graph, 64)) for part in divided(samples).values())
    judge = Judge(task.graph, held[:8], fit, network.reference)
    return faults(task, Harness(network, ranges.ranges, judge), kind, count)


PLANTS = {
    "range": {"fashion": 5, "face": 5, "pitch": 5, "g2p": 3, "thai": 4, "wake": 5, "photos": 3},
    "side": {"fashion": 1, "face": 2, "pitch": 2, "g2p": 1, "thai": 1, "wake": 1},
    "weight": {"fashion": 2, "face": 2, "pitch": 2, "wake": 1},
}
"""Kind of fault -> task -> how many are planted."""


def planted(task: Task, kind: str, number: int) -> dict[str, Any]:
    """One fault: whether it is warned of, whether the culprit is named, and what the first fix
    realises on the evaluation."""
    fault = planted_faults(task, kind, number + 1)[number]
    made = built(task, Kind(quantize=Quantize(overrides=fault.overrides), widths=NONE), fault)
    found = judged(made)
    first, culprit = (found.fixes[0] if found.fixes else None), found.culprit
    line: dict[str, Any] = {
        "plant": fault.text, "warned": found.statement.ok is False, "said": found.statement.text,
        "culprit": culprit.value if culprit else None,
        "named": culprit is not None and _named(task, culprit, fault),
    }
    if first is not None and first.before.name in task.truth:
        again = with_fix(made, first)
        have, after = (levels(task, one.quantized.graph)[first.before.name] for one in (made, again))
        line |= {
            "fix": first.line,
            "promised": first.after.sqnr - first.before.sqnr,
            "realised": after - have,
        }
    return line


def _named(task: Task, culprit: NoiseSource, fault: Fault) -> bool:
    """Whether the culprit is what is wrong: the weight, or a tensor that shares its type with a wrong one."""
    if culprit.kind == "weight":
        return culprit.value == fault.weights
    return any(v in fault.ranges for v in _group(task, culprit.value))


def _group(task: Task, value: str) -> tuple[str, ...]:
    candidate = Candidate(
        task.graph, task.placement.placed, Quantize(), task.target.numerics, stated=task.parsed.stated
    )
    network = FakeQuantNetwork(candidate)
    return next((g for g in network.groups if value in g), (value,))


def measured(task: Task, kind: str) -> dict[str, Any]:
    """One configuration: what its verdict says, and the truth."""
    begun = time.perf_counter()
    made = built(task, KINDS[kind])
    middle = time.perf_counter()
    found = judged(made)
    end = time.perf_counter()
    score = task.score(made.quantized.graph)
    evaluated = levels(task, made.quantized.graph)
    return {
        "warned": found.statement.ok is False,
        "said": found.statement.text,
        "hint": found.statement.hint,
        "outputs": [asdict(one) for one in found.outputs],
        "fixes": [f.line for f in found.fixes],
        "ruined": ruined(task.name, score),
        "holds": holds(evaluated, score),
        "levels": evaluated,
        "score": score,
        "seconds": [round(middle - begun, 1), round(end - middle, 1)],
    }


def configurations() -> list[str]:
    small = ("fashion", "face", "pitch", "g2p", "thai", "wake", "vad", "box")
    large = ("selfie", "text", "oskut", "photos", "lines")
    # their inputs are no reals
    kinds = {t: [k for k in KINDS if t not in ("g2p", "thai") or k != "mean"] for t in small}
    builds = [f"{t}/{k}" for t in small for k in kinds[t]] + [
        f"{t}/{k}" for t in large for k in ("none", "default", "6bits")
    ]
    plants = [f"{t}/{kind}{i}" for kind, tasks in PLANTS.items() for t, n in tasks.items() for i in range(n)]
    return [*builds, *plants, "selfie/mean", "text/mean", "photos/mean", "notes/none"]


def table(lines: Sequence[Mapping[str, Any]]) -> str:
    builds = [one for one in lines if "ruined" in one]
    bad, good = [b for b in builds if b["ruined"]], [b for b in builds if b["holds"] and not b["ruined"]]
    plants = [one for one in lines if "plant" in one]
    kept = [p for p in plants if "promised" in p]
    near = [p for p in kept if abs(p["promised"] - p["realised"]) <= max(1.0, 0.2 * abs(p["realised"]))]
    between = len(builds) - len(bad) - len(good)
    rest = sum(b["warned"] for b in builds if b not in bad and b not in good)
    first = (
        f"{len(builds)} builds: found {sum(b['warned'] for b in bad)} of {len(bad)} ruined ones; false alarms"
    )
    first += (
        f" {sum(b['warned'] for b in good)} of {len(good)} good ones; {between} in between, {rest} of them "
        "with a warning."
    )
    second = f"{len(plants)} planted faults: {sum(p['warned'] for p in plants)} with a warning,"
    second += (
        f" {sum(p['named'] for p in plants)} named; {len(kept)} fixes, the gain within 20 % or 1 dB for "
        f"{len(near)}."
    )
    head = "| build | warned | truth | agreement | dB, held-out | dB, evaluation | first fix |"
    text = [first, "", second, "", head, "| --- | --- | --- | --- | --- | --- | --- |"]
    for b in builds:
        truth = "ruined" if b["ruined"] else "good" if b["holds"] else "between"
        held = min((min(o["output"]["sqnr"], o["output"]["low"]) for o in b["outputs"]), default=float("nan"))
        figures = (
            b["score"].get("agreement"),
            f"{held:.1f}",
            f"{min(b['levels'].values()):.1f}",
            (b["fixes"] or [""])[0],
        )
        text.append(
            "| " + " | ".join(map(str, (b["name"], "yes" if b["warned"] else "no", truth, *figures))) + " |"
        )
    text += ["", "| planted | named | fix | promised, dB | realised, dB |", "| --- | --- | --- | --- | --- |"]
    for p in plants:
        gains = [f"{p[k]:.1f}" if k in p else "" for k in ("promised", "realised")]
        named = "yes" if p["named"] else f"no: {p['culprit']}"
        text.append("| " + " | ".join((f"{p['name']}: {p['plant']}", named, p.get("fix", ""), *gains)) + " |")
    return "\n".join(text) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("shared", type=Path)
    parser.add_argument("--only", nargs="+")
    parser.add_argument("--log", type=Path, default=Path("verdicts.jsonl"))
    parser.add_argument("--table", type=Path)
    parser.add_argument("--limit", type=int)
    args = parser.parse_args()
    known = (
        {one["name"]: one for one in map(json.loads, args.log.read_text().splitlines())}
        if args.log.exists()
        else {}
    )
    tasks: dict[str, Task] = {}
    for name in args.only or configurations():
        if name in known:
            continue
        which, kind = name.split("/")
        tasks = {
            which: tasks.get(which) or Task(args.shared, which, args.log.parent / "statistics", args.limit)
        }
        plant = kind.rstrip("0123456789")
        done = (
            planted(tasks[which], plant, int(kind[len(plant) :]))
            if plant in PLANTS
            else measured(tasks[which], kind)
        )
        known[name] = {"name": name, **done}
        with args.log.open("a") as file:
            file.write(json.dumps(known[name]) + "\n")
        print(f"{name}: {'warned' if done['warned'] else 'not warned'}: {done['said']}", flush=True)
    if args.table is not None:
        args.table.write_text(
            f"# Verdicts against the truth\n\n{__doc__.split('The rule. ')[1]}\n{table(list(known.values()))}"
        )
    print(table(list(known.values())))


if __name__ == "__main__":
    main()
