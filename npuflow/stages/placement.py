"""Who runs each node on this target, with the reason where it is the host."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Self

from npuflow.engine import place as placing
from npuflow.flow.artifact import Artifact, Reader, Writer
from npuflow.flow.stage import Uses, log, stage
from npuflow.hw.target import Compute, Dma, Limits, Memory, Numerics, Target
from npuflow.stages.parse import Parsed


@dataclass(frozen=True)
class Placement(Artifact):
    """Places in the order of the graph's nodes."""

    placed: placing.Placement

    def save(self, folder: Writer) -> None:
        folder.json("places", [[p.node, p.op, p.reason, p.macs] for p in self.placed.places])

    @classmethod
    def load(cls, folder: Reader) -> Self:
        return cls(placing.Placement(tuple(placing.Placed(*p) for p in folder.json("places"))))

    def summary(self) -> dict[str, Any]:
        on_npu = sum(p.on_npu for p in self.placed.places)
        return {"npu_nodes": on_npu, "host_nodes": len(self.placed.places) - on_npu, "npu_macs": round(self.placed.share, 4)}


@stage(quick=True)
def placement(
    graph: Annotated[Parsed, Uses("infer", "accepts", "moves")],
    numerics: Numerics, limits: Limits, memory: Memory, compute: Compute, dma: Dma,
) -> Placement:  # fmt: skip
    """Ask every operator whether the target runs its node."""
    found = placing.place(graph.graph, Target(numerics=numerics, limits=limits, memory=memory, compute=compute, dma=dma))
    for (op, reason), count in found.reasons().most_common():
        log(f"host: {op} ({count}): {reason}")
    return Placement(found)
