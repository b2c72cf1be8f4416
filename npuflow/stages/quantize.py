"""The integer graph: weights and biases as codes, multipliers fixed, explicit boundaries to the float parts."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Annotated, Any, Self

from npuflow.engine.correct.trial import Trial, summary
from npuflow.engine.partition import npu_share
from npuflow.engine.quantize import graph as quantising
from npuflow.engine.quantize.config import Quantize
from npuflow.engine.quantize.stated import moved
from npuflow.flow.artifact import Artifact, Reader, Writer
from npuflow.flow.stage import Uses, log, stage
from npuflow.hw.target import Numerics
from npuflow.ir.graph import Graph
from npuflow.ir.persist import load_graph, operators, save_graph
from npuflow.stages.parse import Parsed
from npuflow.stages.placement import Placement
from npuflow.stages.thresholds import Thresholds


@dataclass(frozen=True)
class Quantized(Artifact):
    """The quantised graph, the nodes that stayed in float for their numbers, with the reason, and what corrections did."""

    graph: Graph
    notes: tuple[quantising.Note, ...] = ()
    trials: tuple[Trial, ...] = ()

    def save(self, folder: Writer) -> None:
        save_graph(self.graph, folder)
        folder.json("notes", [[n.node, n.reason, n.on_host] for n in self.notes])
        if self.trials:
            folder.json("corrections", [asdict(t) for t in self.trials])

    @classmethod
    def load(cls, folder: Reader) -> Self:
        trials = folder.json("corrections") if "corrections" in folder.names() else []
        notes = tuple(quantising.Note(*n) for n in folder.json("notes"))
        return cls(load_graph(folder), notes, tuple(Trial(**t) for t in trials))

    def uses(self) -> dict[str, tuple[str, ...]]:
        return {"ops": operators(self.graph)}

    def summary(self) -> dict[str, Any]:
        integer, refused = sum(n.is_integer for n in self.graph.nodes), sum(n.on_host for n in self.notes)
        found: dict[str, Any] = {
            "integer_nodes": integer, "float_nodes": len(self.graph.nodes) - integer, "refused": refused,
            "npu_macs": round(npu_share(self.graph), 4),
        }  # fmt: skip
        return {**found, **summary(self.trials)}


@stage
def quantize(
    graph: Annotated[Parsed, Uses("prepare", "role", "channel_axis", "output_range", "shares_scale", "f")],
    placement: Placement,
    thresholds: Thresholds,
    quantize: Quantize,
    numerics: Numerics,
) -> Quantized:
    """Choose scales from the thresholds and turn every node that the target runs into integers."""
    stated = {**graph.stated, **thresholds.codes}
    done = quantising.quantize_graph(graph.graph, placement.placed.on_npu, thresholds.ranges, quantize, numerics, stated)
    notes = (*done.notes, *(quantising.Note(name, what, on_host=False) for name, what in moved(stated, done.graph)))
    for note in notes:
        log(f"{'float' if note.on_host else 'note'}: {note.node}: {note.reason}")
    return Quantized(done.graph, notes)
