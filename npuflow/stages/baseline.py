"""How close the quantised network comes with the recipe's own widths: what decides
whether any are widened."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Self

from npuflow.flow.artifact import Artifact, Reader, Writer
from npuflow.flow.stage import Items, log, stage
from npuflow.hw.target import Numerics
from npuflow.quantise.config import Quantize
from npuflow.stages._held_out import is_random, network_of, rig
from npuflow.stages.parse import Parsed
from npuflow.stages.placement import Placement
from npuflow.stages.rounded import Rounded
from npuflow.stages.samples import Sample
from npuflow.stages.statistics import Statistics
from npuflow.stages.thresholds import Thresholds
from npuflow.strategies import NARROW, Output
from npuflow.tune.correct.bias import correct_biases
from npuflow.tune.correct.config import Correct
from npuflow.tune.correct.error import outputs_of
from npuflow.tune.precision.config import PrecisionTable, Probing, Widths
from npuflow.tune.precision.feedback import budget_of, feedback
from npuflow.tune.precision.problem import described
from npuflow.tune.precision.quality import quality
from npuflow.tune.ranges.thresholds import Calibrate


@dataclass(frozen=True)
class Baseline(Artifact):
    """Every output on held-out samples, and whether widths are to be searched."""

    outputs: tuple[Output, ...]
    search: bool

    def save(self, folder: Writer) -> None:
        folder.json("outputs", [asdict(one) for one in self.outputs])
        folder.json("search", self.search)

    @classmethod
    def load(cls, folder: Reader) -> Self:
        return cls(tuple(Output(**one) for one in folder.json("outputs")), bool(folder.json("search")))

    def summary(self) -> dict[str, Any]:
        if not self.outputs:
            return {}
        worst = min(self.outputs, key=lambda one: min(one.sqnr, one.low))
        return {"sqnr_db": round(worst.sqnr, 2), "widen": self.search}


@stage(cpu="native", memory="1GB", floats=True, minor=True)
def baseline(
    graph: Parsed,
    placement: Placement,
    thresholds: Thresholds,
    statistics: Statistics,
    rounded: Rounded | None,
    samples: Items[Sample],
    calibrate: Calibrate,
    precision: PrecisionTable,
    widths: Widths,
    probing: Probing,
    correct: Correct,
    quantize: Quantize,
    numerics: Numerics,
) -> Baseline:
    """Quantise as the recipe says, correct biases, and compare the outputs with the float network's."""
    if precision.strategy == "none":
        return Baseline((), False)
    if is_random(samples):
        log("the samples are noise: no width is chosen by them")
        return Baseline((), False)
    network = network_of(graph, placement, thresholds, rounded, quantize, numerics)
    ready = rig(
        graph, network, thresholds, statistics.content, calibrate, samples, probing.samples, probing.held_out
    )
    if not ready.held or not network.groups or not ready.parts:
        log(
            "no held-out sample, nothing on the NPU, or no output of real numbers: the recipe's widths are "
            "used"
        )
        return Baseline((), False)
    made = ready.quantized((NARROW,) * len(ready.names)).graph
    found = quality(network.graph, ready.truth, outputs_of(made, ready.held))
    budget, again = budget_of(precision, network.graph), feedback(graph.graph)
    if again:
        log(f"{budget.sqnr_db:g} dB are asked for: {again}")
    if correct.bias != "off" and not budget.holds(found):
        made = correct_biases(network.reference, made, numerics, ready.fit, (), judge=False).graph
        found = quality(network.graph, ready.truth, outputs_of(made, ready.held))
    for one in found:
        log(described(one))
    wider = (
        max(numerics.activation_bits) > quantize.activations.bits
        or max(numerics.weight_bits) > quantize.weights.bits
        or bool(widths.float_modes(precision.strategy, numerics, quantize))
    )
    asked = precision.searches or bool(widths.own)
    return Baseline(found, asked or (wider and not budget.holds(found)))
