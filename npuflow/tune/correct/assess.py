"""What a float network would lose by quantisation as the recipe has it: the judge of
changes made before quantisation."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from npuflow.hw.target import Numerics, Target
from npuflow.ir.graph import Graph
from npuflow.ir.types import Array, QuantType
from npuflow.onnx.export import session_model
from npuflow.place.islands import PlacementTable, Prices
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
    least: PlacementTable = field(default_factory=PlacementTable)
    stated: Mapping[str, QuantType] = field(default_factory=dict)

    def candidate(self, graph: Graph) -> Candidate:
        """A network as a build would quantise it, without ranges; weights are rounded to the nearest, since
        others are rounded when this network is known. `stated`: codes of inputs, which are fed as such."""
        target = self.target
        placed = place(graph, target, self.least, self.stated)
        return Candidate(
            graph, placed, self.quantize, target.numerics, stated=self.stated, coded=frozenset(self.stated),
            room=target.memory.local_bytes,
            prices=Prices(Target(memory=target.memory, host=target.host), self.least),
        )


def loss(graph: Graph, truth: Sequence[Sequence[Array]], terms: QuantisationSetup) -> float:
    """Noise over signal of the outputs on the samples that judge; `truth`: the float
    network's outputs there."""
    plain, numerics = terms.candidate(graph), terms.target.numerics
    on_npu = plain.placed.on_npu
    ranges = observed_ranges(graph, on_npu, terms.fit, terms.calibrate, terms.quantize, numerics)
    made = build(plain.with_(ranges=ranges)).graph
    if terms.corrected:
        made = correct_biases(graph, made, numerics, terms.fit, (), judge=False).graph
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
