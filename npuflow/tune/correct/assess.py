"""What a float network would lose by quantisation as the recipe has it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from npuflow.hw.target import Numerics, Target
from npuflow.ir.graph import Graph
from npuflow.onnx.export import session_model
from npuflow.place.islands import PlacementTable
from npuflow.place.place import place
from npuflow.quantise.candidate import Candidate
from npuflow.quantise.config import Quantize
from npuflow.statistics import statistics
from npuflow.statistics.observe import Observer, needed_values
from npuflow.tune.judge import Judge
from npuflow.tune.ranges.thresholds import Calibrate, thresholds
from npuflow.tune.walk import Feed


@dataclass(frozen=True)
class QuantisationSetup:
    """How networks of one function are quantised to be compared: the samples that judge them and those that
    ranges come from, how ranges are chosen, one of the networks without ranges, target; whether biases are
    corrected first."""

    judge: Judge
    calibrate: Calibrate
    candidate: Candidate
    target: Target
    corrected: bool = True

    def error(self, graph: Graph) -> float:
        """Noise over signal of the outputs. Weights are rounded to the nearest, since others are rounded when
        this network is known."""
        one, fit = self.candidate, self.judge.fit
        least = PlacementTable() if one.prices is None else one.prices.least
        placed = place(graph, self.target, least, one.stated)
        ranges = observed_ranges(graph, placed.on_npu, fit, self.calibrate, one.scheme, one.numerics)
        candidate = one.with_(graph=graph, placed=placed, ranges=ranges)
        return self.judge.score(candidate, fit if self.corrected else ()).error


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
