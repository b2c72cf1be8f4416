"""How close the quantised network comes with the recipe's own widths: what decides
whether any are widened."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from npuflow.flow.artifact import Artifact
from npuflow.flow.stage import View, log, stage
from npuflow.quantise.grouped import lasting
from npuflow.stages._calibration import CalibrationData
from npuflow.stages._candidates import RecipeCandidate
from npuflow.strategies import NARROW, Output
from npuflow.tune.correct.config import Correct
from npuflow.tune.judge import PartialOutputs, judged_outputs
from npuflow.tune.precision.config import PrecisionTable, Probing, Widths
from npuflow.tune.precision.feedback import budget_of, feedback
from npuflow.tune.precision.problem import described


@dataclass(frozen=True)
class Baseline(Artifact):
    """Every output on held-out samples, and whether widths are to be searched."""

    outputs: tuple[Output, ...]
    search: bool

    def summary(self) -> dict[str, Any]:
        if not self.outputs:
            return {}
        worst = min(self.outputs, key=lambda one: min(one.sqnr, one.low))
        return {"sqnr_db": round(worst.sqnr, 2), "widen": self.search}


@dataclass(frozen=True)
class PrecisionOptions(View):
    """The tables by which widths are searched and judged."""

    precision: PrecisionTable
    widths: Widths
    probing: Probing
    correct: Correct


@stage(cpu="native", memory="1GB", floats=True, minor=True)
def baseline(
    candidate: RecipeCandidate, data: CalibrationData, options: PrecisionOptions
) -> Baseline:
    """Quantise as the recipe says, correct biases, and compare the outputs with the float network's."""
    precision, probing, placed = options.precision, options.probing, candidate.placed
    if precision.strategy == "none":
        return Baseline((), False)
    if data.is_random:
        log("the samples are noise: no width is chosen by them")
        return Baseline((), False)
    network, numerics, quantize = candidate.fake_quantised(), placed.numerics, placed.quantize
    ready = data.width_harness(network, candidate.thresholds.chosen, probing)
    if not ready.judge.held or not network.groups or not ready.judge.parts:
        log(
            "no held-out sample, nothing on the NPU, or no output of real numbers: the recipe's widths are "
            "used"
        )
        return Baseline((), False)
    judge, own = ready.judge, ready.candidate((NARROW,) * len(ready.names))
    budget, again = budget_of(precision, network.graph), feedback(placed.graph.graph)
    if again:
        log(f"{budget.sqnr_db:g} dB are asked for: {again}")
    plain = PartialOutputs.of(judge, judge.built(own))
    corrects = options.correct.bias != "off" and not plain.hold(budget)
    found = judged_outputs(judge.score(own, judge.fit)) if corrects else plain.judged
    for one in found:
        log(described(one))
    kept = lasting(network.candidate.stated, numerics)        # codes of the model, which no width improves
    free = any(weight.value not in kept for weight in network.weights)
    wider = (
        max(numerics.activation_bits) > quantize.activations.bits
        or (free and max(numerics.weight_bits) > quantize.weights.bits)
        or bool(options.widths.float_modes(precision.strategy, numerics, quantize))
    )
    asked = precision.searches or bool(options.widths.own)
    return Baseline(found, asked or (wider and not budget.holds(found)))
