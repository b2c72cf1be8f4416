"""Plans whose tiles do not cut the rows of caches that a run attends to.

A run at an index attends to the start of these rows. Tiles that cut them are more commands at some indices
than at others: such a program reads all rows in every run.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field, replace

from npuflow.schedule.choice import TileChoice
from npuflow.schedule.frame import Frame, Topology
from npuflow.schedule.groups import FusedOp, FusionGroup
from npuflow.schedule.machine import Machine
from npuflow.schedule.model import Layer
from npuflow.schedule.partial import ValidPart
from npuflow.schedule.valid import valid_part
from npuflow.search.finalists import Finalist
from npuflow.search.tilings import TilingSearch


def whole_rows(
    topology: Topology, level: int, fixed: Collection[tuple[int, ...]] = ()
) -> WholeRows | None:
    """None where a network has no rows that follow an index, or loops, which no index goes with. `fixed`:
    nodes of parts whose tiles the recipe says."""
    part = None if topology.graph.rolls else valid_part(topology, proved=False)
    return None if part is None else WholeRows(topology, topology.machine, part, level, fixed)


@dataclass
class WholeRows:
    """`part`: the rows, and by node the axis along them; `fixed`: as in `whole_rows`."""

    topology: Topology
    machine: Machine
    part: ValidPart
    level: int
    fixed: Collection[tuple[int, ...]] = ()
    _known: dict[object, TileChoice | None] = field(default_factory=dict)

    def ways(self, finalist: Finalist) -> Iterator[Finalist]:
        """The plan with other tiles for the parts that cut rows: first in as much room as their pieces would
        need with all rows, then in the room that they have. The last one is as it was."""
        kept, before = frozenset(finalist.kept), finalist.groups
        for roomy in (True, False):
            groups = tuple(self._group(g, kept, roomy) for g in finalist.groups)
            if groups not in (before, finalist.groups):
                yield replace(finalist, groups=groups)
            before = groups
        yield finalist

    def cut(self, finalist: Finalist) -> bool:
        """Whether parts of a plan cut rows: it is not the same commands at all indices."""
        return any(self._cuts(p) and not self._added(p) for g in finalist.groups for p in g.parts)

    def _group(self, group: FusionGroup, kept: frozenset[str], roomy: bool) -> FusionGroup:
        if not any(self._cuts(p) for p in group.parts):
            return group
        layers = Frame(self.topology, group, kept).layers
        parts = tuple(
            self._part(p, layer, bool(group.strips), roomy) if self._cuts(p) else p
            for p, layer in zip(group.parts, layers, strict=True)
        )
        return replace(group, parts=parts)

    def _cuts(self, part: FusedOp) -> bool:
        axis = self.part.axes.get(part.nodes[0])
        return axis is not None and part.choice is not None and dict(part.choice.sizes)[axis] < self.part.rows

    def _added(self, part: FusedOp) -> bool:
        """Whether a run makes new rows alone, so that it does not matter how many pieces all rows have."""
        made = (o for n in part.nodes for o in self.topology.graph.nodes[n].outputs)
        return all(o in self.part.added for o in made)

    def _part(self, part: FusedOp, layer: Layer, stays: bool, roomy: bool) -> FusedOp:
        """`stays`: constants are there for all strips."""
        axis, choice, rows = self.part.axes[part.nodes[0]], part.choice, self.part.rows
        assert choice is not None
        if part.nodes in self.fixed or layer.space.axis(axis).size < rows:      # strips or cores cut it
            return part
        if not any(choice.slots):                                # nothing streams: pieces save no room
            sizes = tuple((name, rows if name == axis else size) for name, size in choice.sizes)
            return replace(part, choice=replace(choice, sizes=sizes))
        if self._added(part):
            return part
        room = choice.local_bytes * (-(-rows // dict(choice.sizes)[axis]) if roomy else 1)
        key = layer, axis, stays, min(room, self.machine.memory.local_bytes)
        if key not in self._known:
            tilings = TilingSearch(layer, self.machine, self.level, stays or None, {axis: rows})
            found = tilings.best(key[-1])
            self._known[key] = None if found is None else found.choice
        other = self._known[key]
        return part if other is None else replace(part, choice=other)
