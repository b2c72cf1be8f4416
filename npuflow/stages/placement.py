"""Who runs each node on this target, with the reason where it is the host."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from npuflow.base.wording import counted
from npuflow.flow.artifact import Artifact
from npuflow.flow.stage import log, stage
from npuflow.place import place as placing
from npuflow.place.islands import PlacementTable
from npuflow.stages._targets import WholeTarget
from npuflow.stages.parse import Parsed

LEAST = 0.5                               # share of the multiply-accumulates below which a build warns
REASONS = "npuflow inspect MODEL lists every reason; another --target may run these nodes"


@dataclass(frozen=True)
class Placement(Artifact, spread=("placed",), rows=("places",)):
    """Places in the order of the graph's nodes."""

    placed: placing.NodePlacement

    def summary(self) -> dict[str, Any]:
        on_npu, host = sum(p.on_npu for p in self.placed.places), self.placed.host
        nodes = {"npu_nodes": on_npu, "host_nodes": len(self.placed.places) - on_npu}
        found = {**nodes, "npu_macs": round(self.placed.share, 4), "host_macs": host.macs}
        return found | self._warning(on_npu)

    def _warning(self, on_npu: int) -> dict[str, Any]:
        """Where most of the work is left to the host: who would build for that, does not know of it."""
        share, reasons = self.placed.share, self.placed.reasons().most_common(1)
        if not reasons or (on_npu and share >= LEAST):
            return {}
        unit = "multiply-accumulates" if self.placed.total_macs else "nodes"
        what = f"{100 * (1 - share):.0f} % of the {unit} run" if on_npu else "all nodes run"
        ((op, reason), count), = reasons
        said = f"{what} on the host; the most frequent reason, {counted(count, 'node')} of {op}: {reason}"
        return {"warning": said, "warning_hint": REASONS}


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
