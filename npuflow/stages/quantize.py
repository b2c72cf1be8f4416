"""The integer graph: weights and biases as codes, multipliers fixed, explicit
boundaries to the float parts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import isqrt
from typing import Any

from npuflow.base.errors import ModelError
from npuflow.checkpoints.ports import is_cache
from npuflow.flow.artifact import Artifact
from npuflow.flow.stage import log, stage
from npuflow.input.pixels.pixels import Pixels
from npuflow.ir.graph import Graph
from npuflow.ir.inner import reading_caches
from npuflow.ir.macs import graph_macs
from npuflow.ir.text import operators
from npuflow.ir.unroll import rolled, unnested, written_out
from npuflow.place.host import host_work, total_work
from npuflow.place.partition import npu_share
from npuflow.quantise import graph as quantising
from npuflow.quantise.border import bordered
from npuflow.quantise.stated import moved
from npuflow.rules.spell_groupquery import PLACES
from npuflow.stages._chosen import ChosenCandidate
from npuflow.stages._entries import GraphEntry
from npuflow.tune.correct.caches import no_cache
from npuflow.tune.improve import Trial, summary


def to_plan(
    graph: Graph, whole: bool = False, paired: bool = False, cores: int = 1, nested: bool = False
) -> Graph:
    """The form of a quantised graph that is planned and becomes commands: of loops the steps that stand for
    all, or `whole` all steps. `paired`: loops that may run beside each other are one; `cores`: each is on one
    of so many; `nested`: of nested loops some steps of both, where that is possible. Caches are read where
    they lie."""
    return reading_caches(written_out(graph) if whole else rolled(graph, paired, cores, nested))


@dataclass(frozen=True)
class Quantized(
    Artifact, rows=("notes",), optional=("pixels", "corrections"), corrections="trials",
    pixels={"inputs": "pixels", "border": "border"}, codecs={"graph": GraphEntry},
):
    """The quantised graph, the nodes that stayed in float for their numbers, with the reason, what
    corrections did, and the inputs that take pixels. `float_macs`: multiply-accumulates of the float
    network, which the NPU's share is a share of. `border`: the largest error of padding with whole
    pixels, in codes of a layer's output.
    """

    graph: Graph
    notes: tuple[quantising.Note, ...] = ()
    trials: tuple[Trial, ...] = ()
    float_macs: int = 0
    pixels: Mapping[str, Pixels] = field(default_factory=dict)
    border: float = 0.0

    def straight(self) -> Graph:
        """The graph with its loops written out: what commands are compared with."""
        return written_out(self.graph)

    def flat(self) -> Graph:
        """The graph without nested loops: one of two is written out."""
        return unnested(self.graph)

    @property
    def share(self) -> float:
        """Part of the network's multiply-accumulates that the NPU does."""
        return npu_share(self.graph, self.float_macs)

    @property
    def host_macs(self) -> int:
        """Multiply-accumulates that the host does."""
        return total_work(host_work(self.graph)).macs

    def uses(self) -> dict[str, tuple[str, ...]]:
        return {"ops": operators(self.graph)}

    def summary(self) -> dict[str, Any]:
        integer, refused = sum(n.is_integer for n in self.graph.nodes), sum(n.on_host for n in self.notes)
        found: dict[str, Any] = {
            "integer_nodes": integer, "float_nodes": len(self.graph.nodes) - integer, "refused": refused,
            "npu_macs": round(self.share, 4), "host_macs": self.host_macs,
        }
        if self.border:
            found["border_codes"] = float(f"{self.border:.2g}")
        return {**found, **summary(self.trials)}


def _need_places(graph: Graph, mode: str) -> None:
    """A ModelError for a cache of more tokens than floats tell apart, where no table has them either."""
    rings = {one.rows for one in graph.rings}
    held = (graph.type(given).shape for _, given in graph.state if is_cache(given))
    rows = max((shape[2] for shape in held if shape[2] not in rings), default=0)
    if mode != "int" and rows * rows > PLACES:
        raise ModelError(
            f"a cache of {rows:,} tokens is too long for {mode}",
            because=f"positions beyond {isqrt(PLACES):,} would be numbers of this type, which tells whole "
            "ones apart to some hundreds alone",
            hint=f"[model] dims = {{ context = {isqrt(PLACES)} }} or less, or [quantize] activations = "
            "{ bits = 16 } on a target of 16-bit integers", code="NF-MODEL-551",
        )


@stage
def quantize(
    chosen: ChosenCandidate,
) -> Quantized:
    """Choose scales from the thresholds and turn every node that the target runs into integers."""
    candidate, graph = chosen.candidate, chosen.placed.graph
    if candidate.scheme.cache is not None and not candidate.caches:
        raise no_cache(candidate.scheme.cache)
    _need_places(graph.graph, candidate.scheme.mode)
    done, pixels = quantising.build(candidate), graph.pixels
    borders = tuple(bordered(done.graph, graph.graph, graph.borders))
    said = (*moved(candidate.stated, done.graph), *((one.node, one.text) for one in borders))
    notes = (*done.notes, *(quantising.Note(name, what, on_host=False) for name, what in said))
    for note in notes:
        log(f"{'float' if note.on_host else 'note'}: {note.node}: {note.reason}")
    worst = max((one.codes for one in borders), default=0.0)
    macs = graph_macs(graph.graph)
    return Quantized(done.graph, notes, chosen.codes.trials, macs, pixels, worst)
