"""The weights that are rounded by moments, where held-out samples or a named method say so."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Self

from npuflow.engine.correct.error import split
from npuflow.engine.correct.trial import Trial, summary
from npuflow.engine.place import op_name
from npuflow.engine.quantize.config import Quantize
from npuflow.engine.quantize.names import names_of
from npuflow.engine.quantize.types import weight_type
from npuflow.engine.rounding.config import Counting, Round, rounds
from npuflow.engine.rounding.judge import judged, to_nearest, trials
from npuflow.flow.artifact import Artifact, Reader, Writer
from npuflow.flow.stage import Items, log, stage
from npuflow.hw.target import Numerics
from npuflow.ir.rounding import RoundedWeight
from npuflow.ir.types import quant_of
from npuflow.stages.parse import Parsed
from npuflow.stages.picked import Picked
from npuflow.stages.rounding import Rounding
from npuflow.stages.samples import feeds


@dataclass(frozen=True)
class Rounded(Artifact):
    """By value id; what was tried, layer by layer and over the whole network."""

    weights: Mapping[str, RoundedWeight] = field(default_factory=dict)
    trials: tuple[Trial, ...] = ()

    def save(self, folder: Writer) -> None:
        names = list(self.weights)
        about = [{"value": v, "bias": one.bias, "quant": asdict(one.quant)} for v, one in self.weights.items()]
        folder.json("weights", about)
        folder.json("corrections", [asdict(t) for t in self.trials])
        folder.arrays("codes", {f"{i:04}": self.weights[v].codes for i, v in enumerate(names)})
        shifts = {f"{i:04}": self.weights[v].shift for i, v in enumerate(names)}
        folder.arrays("shifts", {i: one for i, one in shifts.items() if one is not None})

    @classmethod
    def load(cls, folder: Reader) -> Self:
        codes, shifts = folder.arrays("codes"), folder.arrays("shifts")
        weights = {
            row["value"]: RoundedWeight(codes[f"{i:04}"], quant_of(row["quant"]), row["bias"], shifts.get(f"{i:04}"))
            for i, row in enumerate(folder.json("weights"))
        }
        return cls(weights, tuple(Trial(**t) for t in folder.json("corrections")))

    def summary(self) -> dict[str, Any]:
        return {"weights": len(self.weights), **summary(self.trials)}


@stage(when="round", wanted=rounds, cpu="native", memory="1GB", floats=True)
def rounded(
    rounding: Items[Rounding],
    graph: Parsed,
    picked: Items[Picked],
    table: Round,
    counting: Counting,
    quantize: Quantize,
    numerics: Numerics,
) -> Rounded:
    """A method that judges itself by no sample is obeyed. Else all layers together are compared with rounding to the nearest."""
    source, done = graph.graph, {one.layer.name: one.done for one in rounding.values()}
    layers = {one.layer.weight: one for one in rounding.values() if one.done.used}
    told = trials(done.items())
    weights = {name: one.done.weight for name, one in layers.items()}
    if table.rounder.judged and weights:
        nearest = {}
        for name, one in layers.items():
            node, real = source.nodes[one.layer.node], source.const(name)
            assert real is not None
            axis = node.op.channel_axis(source.site(node), node.inputs.index(name))
            scheme = quantize.weights_of(names_of(node), op_name(node))
            quant = weight_type(real, axis, scheme, numerics)
            nearest[name] = to_nearest(source, name, quant, one.layer.bias, one.done.plain)
        _, held = split(list(feeds(picked, source, counting.samples)), counting.held_out)
        trial = judged(source, weights, nearest, held)
        told.append(trial)
        weights = weights if trial.kept else {}
    for line in told:
        log(line.line())
    return Rounded(weights, tuple(told))
