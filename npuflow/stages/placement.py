"""Who runs each node on this target, with the reason where it is the host."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from npuflow.flow.artifact import Artifact
from npuflow.flow.stage import log, stage
from npuflow.place import place as placing
from npuflow.place.islands import PlacementTable
from npuflow.stages._targets import WholeTarget
from npuflow.stages.parse import Parsed


@dataclass(frozen=True)
class Placement(Artifact, spread=("placed",), rows=("places",)):
    """Places in the order of the graph's nodes."""

    placed: placing.NodePlacement

    def summary(self) -> dict[str, Any]:
        on_npu, host = sum(p.on_npu for p in self.placed.places), self.placed.host
        nodes = {"npu_nodes": on_npu, "host_nodes": len(self.placed.places) - on_npu}
        return {**nodes, "npu_macs": round(self.placed.share, 4), "host_macs": host.macs}


@stage(quick=True, minor=True)
def placement(
    graph: Parsed,
    whole: WholeTarget,
    placement: PlacementTable,
) -> Placement:
    """Ask every operator whether the target runs its node, and leave to the host
    what is not worth the way."""
    target = whole.target
    found = placing.place(graph.graph, target, placement, graph.stated)
    for (op, reason), count in found.reasons().most_common():
        log(f"host: {op} ({count}): {reason}")
    if found.host:
        log(f"host, codes of 8 bits: {found.host.described(target)}")
    return Placement(found)
