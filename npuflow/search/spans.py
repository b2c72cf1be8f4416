"""Costs groups that begin at a part, as long as longer ones promise anything."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf, prod

from npuflow.hw.target import Numerics
from npuflow.schedule import tuned
from npuflow.schedule.frame import Topology
from npuflow.schedule.groups import Cut, FusedOp, FusionGroup
from npuflow.schedule.machine import Machine
from npuflow.search.canonical import Alone, Cost, Cutting, Known, Stretches, Subgraph, SubgraphGroup, cutting
from npuflow.search.cuts import GroupCandidate
from npuflow.search.score import Scored, Scorer


class Coster:
    """Costs of groups of consecutive parts, by what scorers of one machine have found. `known`: of the
    same level and parts' tilings."""

    def __init__(
        self, topology: Topology, machine: Machine, level: int, singles: Sequence[FusionGroup],
        scorer: Scorer,
        known: Known | None = None,
    ) -> None:
        self.topology, self.machine, self.level, self.singles = topology, machine, level, singles
        self.scorer = Scorer(topology, scorer.machine, scorer.level, scorer.known, scorer.resident)
        self.stretches = Stretches(topology, singles, known if known is not None else Known())
        self.room = machine.memory.local_bytes

    def best(self, start: int, end: int) -> Scored | None:
        """The best way to run these parts as one group."""
        return self.costed(start, end)[0]

    def costed(self, start: int, end: int) -> tuple[Scored | None, int]:
        """The best way, and how many ways that takes to find; equal stretches of parts are costed once."""
        if self.singles[start].choice is None:
            found, ways = self._costed(start, end)
        else:
            found, ways = self.stretches.once(start, end, frozenset(), lambda: self._costed(start, end))
        return found[0].scored if found else None, ways

    def _costed(self, start: int, end: int) -> tuple[list[GroupCandidate], int]:
        parts = [g.parts[0].nodes for g in self.singles[start:end]]
        found: list[Scored] = []
        single = self.singles[start]
        if end == start + 1:
            found.append(
                Scored(single, single.costs, single.choice.local_bytes if single.choice else self.room // 2)
            )
            if single.choice is None:
                return [GroupCandidate(found[0])], 0
        ways = 0
        whole, bound = self._whole(parts), self._bound(start, end)
        for cores in self._cores(parts):
            fits = 0
            rest = None
            for strips in self._strips(parts, whole // cores[1], end - start > 1):
                frame = self.scorer.frame(parts, strips, cores, frozenset())
                ways += frame is not None
                scored = self.scorer.cost(frame, self.room) if frame is not None else None
                if scored is None:
                    if fits:
                        break
                    continue
                fits += 1
                found.append(scored)
                near = scored.costs.cycles <= tuned.NEAR * bound / cores[1]
                if near or (rest is not None and scored.score >= rest and fits > tuned.PATIENCE):
                    break
                rest = scored.score if rest is None else min(rest, scored.score)
        return [GroupCandidate(min(found, key=lambda s: s.score))] if found else [], ways

    def _results(self, parts: Sequence[tuple[int, ...]]) -> list[tuple[int, ...]]:
        nodes = [n for p in parts for n in p]
        return [self.topology.graph.type(v).shape for v in self.topology.needed(nodes)]

    def _cores(self, parts: Sequence[tuple[int, ...]]) -> list[Cut]:
        """One core, or all of them along rows, channels or batches."""
        return [(0, 1), *cuts_over(self.topology, parts, self.machine.compute.cores, range(3))]

    def _strips(self, parts: Sequence[tuple[int, ...]], whole: int, several: bool) -> list[tuple[Cut, ...]]:
        shapes = self._results(parts)
        found: list[tuple[Cut, ...]] = [()]
        if not several or any(len(s) < 3 for s in shapes):
            return found
        rows = max(s[2] for s in shapes) if len(shapes[0]) > 2 else 1
        least = whole / self.room * tuned.STRIPE_ROOM
        batch: tuple[Cut, ...] = ((0, shapes[0][0]),) if shapes[0][0] > 1 else ()
        if batch:
            found.append(batch)
        # as few strips as there are with so many rows each
        even = [-(-rows // -(-rows // n)) for n in (*tuned.STRIPES, rows) if n <= rows]
        counts = [n for n in even if n * max(1, prod(n for _, n in batch)) >= least and n > 1]
        return found + [(*batch, (2, n)) for n in dict.fromkeys(counts)]

    def _whole(self, parts: Sequence[tuple[int, ...]]) -> int:
        """Bytes of the largest value that the parts hand on."""
        values = [v for p in parts[:-1] for v in self.topology.needed(p)]
        return max((prod(self.topology.graph.type(v).shape) for v in values), default=0)

    def _bound(self, start: int, end: int) -> float:
        """Cycles on one core that no way of running the parts beats."""
        nodes = [n for g in self.singles[start:end] for n in g.nodes]
        graph = self.topology.graph
        made = {o for n in nodes for o in graph.nodes[n].outputs}
        read = {v for n in nodes for v in graph.nodes[n].inputs if v and v not in made}
        values = [*read, *self.topology.needed(nodes)]
        size = sum(prod(graph.type(v).shape) for v in values)
        return max(
            sum(g.costs.bound_cycles for g in self.singles[start:end]),
            size / self.machine.memory.external_bandwidth,
        )


def run_at(
    topology: Topology, singles: Sequence[FusionGroup], start: int, level: int
) -> tuple[Subgraph, Cutting] | None:
    """The run of parts that groups from one part on may hold; None where this only moves data."""
    end = start
    while end < len(singles) and end - start < reach(level) and joins(topology, singles, start, end + 1):
        end += 1
    parts = [g.parts[0] for g in singles[start:end]]
    if not parts or parts[0].choice is None:
        return None
    nodes = [p.nodes for p in parts]
    cut = cutting(topology.graph, nodes, topology.needed([n for p in nodes for n in p]))
    alone = tuple(Alone(g.choice, g.costs) for g in singles[start:end])
    size = max(0, (len(singles) - 1).bit_length() - (tuned.WAYS_PARTS - 1).bit_length())
    trials = max(4, tuned.WAYS[max(2, min(5, level))] >> size)
    return Subgraph(cut.excerpt, topology.machine.inside, level, alone, trials), cut


def reach(level: int) -> int:
    return tuned.GROUP_PARTS[max(2, min(5, level))]


def joins(topology: Topology, singles: Sequence[FusionGroup], start: int, end: int) -> bool:
    """Whether consecutive parts may be one group: all on the NPU, in one stretch, none that moves external
    memory. What joins values that the group makes may be one of its parts."""
    if end == start + 1:
        return True
    first, last = singles[start], singles[end - 1]
    if first.choice is None or topology.stretch[first.nodes[0]] != topology.stretch[last.nodes[0]]:
        return False
    made: set[int] = set()
    for single in singles[start:end]:
        if single.choice is None and not topology.joins_local(single.nodes[0], made):
            return False
        made.update(single.nodes)
    return True


class Shared:
    """Costs of runs of parts, one run after the other; what they have in common is costed once."""

    def __init__(self, numerics: Numerics) -> None:
        self.numerics = numerics
        self._known: dict[tuple[Machine, int], tuple[Scorer, Known]] = {}

    def cost(self, run: Subgraph, machine: Machine) -> Cost:
        topology = Topology(run.excerpt.graph, machine, self.numerics)
        if (machine, run.level) not in self._known:
            self._known[machine, run.level] = Scorer(topology, machine, run.level), Known()
        singles = [
            FusionGroup((FusedOp(p, a.choice),), a.costs)
            for p, a in zip(run.excerpt.parts, run.alone, strict=True)
        ]
        coster = Coster(topology, machine, run.level, singles, *self._known[machine, run.level])
        ways, asked = grown(coster, 0, len(singles), run.trials)
        groups = tuple(SubgraphGroup(end, found.group, found.used) for end, found in ways)
        return Cost(ways=groups, asked=asked)


def grown(coster: Coster, start: int, last: int, trials: int) -> tuple[list[tuple[int, Scored]], int]:
    """(groups from a part on by their ends, ways that were costed). A length is a miss where shorter groups
    and single parts do as well; after some, or so many trials, of longer ones only those are tried that end
    with what joins values: branches gain nothing before they are joined."""
    ways: list[tuple[int, Scored]] = []
    best = [0.0]                           # score of the first parts, by what has been seen
    misses = asked = 0
    for end in range(start + 1, last + 1):
        done = end > start + 2 and (misses >= tuned.GROUP_MISSES or asked >= trials)
        if done and all(g.choice is not None for g in coster.singles[end - 1 : last]):
            break
        alone = coster.best(end - 1, end)
        apart = best[-1] + (alone.score if alone is not None else inf)
        if done and coster.singles[end - 1].choice is not None:
            best.append(apart)
            continue
        found, tried = coster.costed(start, end)
        asked += tried
        if found is not None:
            ways.append((end, found))
        misses = 0 if end == start + 1 or (found is not None and found.score < apart) else misses + 1
        best.append(min(apart, found.score if found is not None else inf))
    return ways, asked


def in_subgraph(found: Scored, parts: int, cut: Cutting) -> SubgraphGroup:
    """A group of the network as a way to run the first parts of a subgraph of it."""
    return SubgraphGroup(parts, cut.own.renamed(found.group, cut.network), found.used)


def in_network(way: SubgraphGroup, cut: Cutting) -> Scored:
    """A way to run the first parts of a subgraph, in its network."""
    group = cut.network.renamed(way.group, cut.own)
    return Scored(group, group.costs, way.used)


def cuts_over(
    topology: Topology, parts: Sequence[tuple[int, ...]], cores: int, dims: Sequence[int]
) -> list[Cut]:
    """Cuts of some dimensions over all cores; of fewer rows than there are cores,
    over as many as there are rows. Of loops that each have a core of their own none."""
    if parts[0][0] in topology.core:
        return []
    shapes = {v: topology.graph.type(v).shape for v in topology.needed([n for p in parts for n in p])}
    found: list[Cut] = []
    for dim in dims if cores > 1 else ():
        own = topology.dims(tuple(parts), (dim, cores))
        sizes = [s[d] if (d := own.get(v, dim)) < len(s) else 0 for v, s in shapes.items()]
        least = min(sizes, default=0)
        if dim == 1 and not _by_channel(topology, parts, own):
            continue
        if least >= cores or (dim == 2 and least > 1):
            found.append((dim, min(cores, least)))
    return found


def _by_channel(topology: Topology, parts: Sequence[tuple[int, ...]], dims: Mapping[str, int]) -> bool:
    """Whether every part behind the first makes a channel out of the same channel of
    what parts before it make. `dims`: by value the dimension of its channels, where it is not 1."""
    made: set[str] = set()
    if any(nodes[0] in topology.joining for nodes in parts):
        return False
    for nodes in parts if len(parts) > 1 else ():
        member = topology.member(nodes, frozenset())
        outputs = member.layer.space.outputs
        at = dims.get(member.outputs[0], 1)
        if len(outputs) != 1 or len(outputs[0].maps) <= at or not member.can_split:
            return False
        axis = outputs[0].maps[at]
        for value, ref in member.inputs:
            d = dims.get(value, 1)
            if value in made and (
                len(ref.operand.maps) <= d or ref.operand.maps[d] != axis or axis.axis is None
            ):
                return False
        made.update(member.outputs)
    return True
