"""What a float network would lose by quantisation as the recipe has it: the judge of
changes made before quantisation."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from npuflow.hw.target import Numerics, Target
from npuflow.ir.graph import Graph
from npuflow.ir.types import Array
from npuflow.onnx.export import session_model
from npuflow.place.place import place
from npuflow.quantise.candidate import Candidate
from npuflow.quantise.config import Quantize
from npuflow.quantise.graph import build
from npuflow.run.walk import Feed
from npuflow.statistics import statistics
from npuflow.statistics.observe import Observer, needed_values
from npuflow.tune.correct.bias import correct_biases
from npuflow.tune.correct.error import output_error, outputs_of
from npuflow.tune.ranges.thresholds import Calibrate, thresholds


@dataclass(frozen=True)
class QuantisationSetup:
    """How networks are quantised to be compared: tables, target, samples to calibrate on and samples that
    judge; whether biases are corrected first."""

    calibrate: Calibrate
    quantize: Quantize
    target: Target
    fit: Sequence[Feed]
    held: Sequence[Feed]
    corrected: bool = True


def loss(graph: Graph, truth: Sequence[Sequence[Array]], terms: QuantisationSetup) -> float:
    """Noise over signal of the outputs on the samples that judge; `truth`: the float
    network's outputs there."""
    placed, numerics, quantize = place(graph, terms.target), terms.target.numerics, terms.quantize
    ranges = observed_ranges(graph, placed.on_npu, terms.fit, terms.calibrate, quantize, numerics)
    made = build(Candidate(graph, placed, quantize, numerics, ranges)).graph
    if terms.corrected:
        made = correct_biases(graph, made, terms.target.numerics, terms.fit, (), judge=False).graph
    return output_error(truth, outputs_of(made, terms.held))


def observed_ranges(
    graph: Graph,
    on_npu: Callable[[int], bool],
    fit: Sequence[Feed],
    calibrate: Calibrate,
    quantize: Quantize,
    numerics: Numerics,
) -> Mapping[str, tuple[float, float]]:
    """The recipe's thresholds from some samples alone."""
    names = needed_values(graph, on_npu)
    types = {name: graph.type(name) for name in graph.inputs}
    observer = Observer(session_model(graph, [n for n in names if n not in types]), types, names)
    total = statistics.merged((str(i), observer.observe(feed)) for i, feed in enumerate(fit))
    assert total is not None
    return thresholds(graph, total, calibrate, quantize, numerics, on_npu).ranges
