"""How the results of a group may be cut over cores."""

from __future__ import annotations

from collections.abc import Sequence

from npuflow.engine.schedule.frame import Topology
from npuflow.engine.schedule.groups import Cut


def cuts_over(
    topology: Topology, parts: Sequence[tuple[int, ...]], cores: int, dims: Sequence[int]
) -> list[Cut]:
    """Cuts of some dimensions over all cores; of fewer rows than there are cores,
    over as many as there are rows."""
    shapes = [topology.graph.type(v).shape for v in topology.needed([n for p in parts for n in p])]
    rank, found = min((len(s) for s in shapes), default=0), []
    for dim in dims if cores > 1 else ():
        least = min(s[dim] for s in shapes) if dim < rank else 0
        if dim == 1 and len(parts) > 1 and not _by_channel(topology, parts):
            continue
        if least >= cores or (dim == 2 and least > 1):
            found.append((dim, min(cores, least)))
    return found


def _by_channel(topology: Topology, parts: Sequence[tuple[int, ...]]) -> bool:
    """Whether every part behind the first makes a channel out of the same channel of
    what parts before it make."""
    made: set[str] = set()
    for nodes in parts:
        member = topology.member(nodes, frozenset())
        outputs = member.layer.space.outputs
        if len(outputs) != 1 or len(outputs[0].maps) < 2 or not member.can_split:
            return False
        axis = outputs[0].maps[1]
        for value, ref in member.inputs:
            if value in made and (
                len(ref.operand.maps) < 2 or ref.operand.maps[1] != axis or axis.axis is None
            ):
                return False
        made.update(member.outputs)
    return True
