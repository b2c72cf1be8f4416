"""Stretches of parts by their structure: what has been found for one is taken for its equals, under their names."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace

from npuflow.engine.schedule.frame import Topology
from npuflow.engine.schedule.groups import Group
from npuflow.engine.search.score import Scored


@dataclass
class Answers:
    """What has been found for stretches of any network on one machine, by their keys, and how many ways were costed for it."""

    signs: dict[object, int] = field(default_factory=dict)       # what a part is -> its number
    best: dict[object, tuple[Stretch, Scored | None, int]] = field(default_factory=dict)
    repeated: int = 0


@dataclass(frozen=True)
class Stretch:
    """`key`: all that the costs of consecutive parts depend on; `values`: theirs, by the numbers that the key calls them."""

    key: object
    nodes: tuple[tuple[int, ...], ...]
    values: tuple[str, ...]

    def renamed(self, scored: Scored, other: Stretch) -> Scored:
        """What was found for an equal stretch, as a group of this one."""
        if other is self:
            return scored
        names = dict(zip(other.values, self.values, strict=True))
        parts = tuple(replace(p, nodes=n) for p, n in zip(scored.group.parts, self.nodes, strict=True))
        held = tuple((names[v], n) for v, n in scored.group.held)
        return replace(scored, group=replace(scored.group, parts=parts, held=held))


class Alike:
    """The stretches of a network's parts that compute."""

    def __init__(self, topology: Topology, singles: Sequence[Group], answers: Answers) -> None:
        self.topology, self.singles, self.signs = topology, singles, answers.signs
        self._parts: dict[int, tuple[int, tuple[str, ...]]] = {}

    def stretch(self, start: int, end: int, kept: Collection[str] = ()) -> Stretch:
        """`kept`: values that are in local memory before, or stay there."""
        numbers: dict[str, int] = {}
        found: list[object] = []
        for index in range(start, end):
            sign, values = self._part(index)
            found.append((sign, tuple(numbers.setdefault(v, len(numbers)) for v in values)))
        nodes = tuple(g.parts[0].nodes for g in self.singles[start:end])
        results = set(self.topology.needed([n for part in nodes for n in part]))
        flags = tuple((v in results, v in kept, v in results and self.topology.wanted_in_data(v, kept)) for v in numbers)
        return Stretch((tuple(found), flags), nodes, tuple(numbers))

    def _part(self, index: int) -> tuple[int, tuple[str, ...]]:
        """The number of what a part is, and the values that it reads and makes."""
        if index not in self._parts:
            single = self.singles[index]
            member = self.topology.member(single.parts[0].nodes, frozenset())
            sign = member.layer, member.spaces, single.parts[0].choice, single.costs
            values = *(v for v, _ in member.inputs), *member.outputs
            self._parts[index] = self.signs.setdefault(sign, len(self.signs)), values
        return self._parts[index]

