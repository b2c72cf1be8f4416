"""What it costs to run parts together: every group that begins at a part, as long as
longer ones promise anything."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import inf, prod
from typing import Any, Self

from npuflow.base.digest import digest
from npuflow.engine.schedule import tuned
from npuflow.engine.schedule.choice import Choice, Costs
from npuflow.engine.schedule.frame import Topology
from npuflow.engine.schedule.groups import Cut, Group, Part
from npuflow.engine.schedule.machine import Machine
from npuflow.engine.search.across import cuts_over
from npuflow.engine.search.canonical import Cutting, Excerpt, Names, Stretches, cutting
from npuflow.engine.search.packed import packed, unpacked
from npuflow.engine.search.score import Scored, Scorer
from npuflow.hw.target import Numerics


@dataclass(frozen=True)
class Alone:
    """A part's own tiling, and its cycles and bytes by itself."""

    choice: Choice
    costs: Costs


@dataclass(frozen=True)
class Span:
    """The parts that groups from one part on may hold, and how hard to look: all that their
    costs depend on, but the target."""

    excerpt: Excerpt
    alone: tuple[Alone, ...]              # by part
    inside: bool                          # activations lie in the chip's shared memory
    level: int
    trials: int

    @cached_property
    def key(self) -> str:
        return digest(self.to_json()).partition(":")[2][:16]

    @property
    def name(self) -> str:
        return self.excerpt.name.removesuffix(self.excerpt.key) + self.key

    def to_json(self) -> dict[str, Any]:
        return {
            **self.excerpt.to_json(),
            "alone": packed(self.alone),
            "inside": self.inside,
            "level": self.level,
            "trials": self.trials,
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Self:
        alone: tuple[Alone, ...] = unpacked(tuple[Alone, ...], data["alone"])
        return cls(Excerpt.from_json(data), alone, data["inside"], data["level"], data["trials"])


@dataclass(frozen=True)
class Way:
    """The best way found to run the first `parts` of a span as one group, and the local
    memory that it holds at most."""

    parts: int
    group: Group
    used: int


@dataclass(frozen=True)
class Window:
    """What the groups of a span cost."""

    ways: tuple[Way, ...]
    asked: int                            # ways to run them that were costed


@dataclass(eq=False)
class Known:
    """The best groups of stretches of parts in any network, by structure, with the
    number of ways that were tried."""

    signs: dict[object, int] = field(default_factory=dict)       # what a part is -> its number
    best: dict[object, tuple[Names, Scored | None, int]] = field(default_factory=dict)


class Coster:
    """Costs of groups of consecutive parts, by what scorers of one machine have found. `known`: of the
    same level and parts' tilings."""

    def __init__(
        self, topology: Topology, machine: Machine, level: int, singles: Sequence[Group], scorer: Scorer,
        known: Known | None = None,
    ) -> None:
        self.topology, self.machine, self.level, self.singles = topology, machine, level, singles
        self.scorer = Scorer(topology, scorer.machine, scorer.level, scorer.known)
        self.known = known if known is not None else Known()
        self.stretches = Stretches(topology, singles, self.known.signs)
        self.room = machine.memory.local_bytes

    def best(self, start: int, end: int) -> Scored | None:
        """The best way to run these parts as one group."""
        return self.costed(start, end)[0]

    def costed(self, start: int, end: int) -> tuple[Scored | None, int]:
        """The best way, and how many ways that takes to find; equal stretches of parts are costed once."""
        if any(g.choice is None for g in self.singles[start:end]):
            return self._costed(start, end)
        (key, names), known = self.stretches.key(start, end), self.known.best
        if key not in known:
            found, ways = self._costed(start, end)
            known[key] = names, found, ways
            return found, ways
        other, found, ways = known[key]
        return replace(found, group=names.renamed(found.group, other)) if found is not None else None, ways

    def _costed(self, start: int, end: int) -> tuple[Scored | None, int]:
        parts = [g.parts[0].nodes for g in self.singles[start:end]]
        found: list[Scored] = []
        single = self.singles[start]
        if end == start + 1:
            found.append(
                Scored(single, single.costs, single.choice.local_bytes if single.choice else self.room // 2)
            )
            if single.choice is None:
                return found[0], 0
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
        return min(found, key=lambda s: s.score) if found else None, ways

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
        counts = [
            n
            for n in (*tuned.STRIPES, rows)
            if n <= rows and n * max(1, prod(n for _, n in batch)) >= least and n > 1
        ]
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


def span_at(
    topology: Topology, singles: Sequence[Group], start: int, level: int
) -> tuple[Span, Cutting] | None:
    """The span from a part on; None for one that only moves data."""
    end = start
    while end < len(singles) and end - start < reach(level) and joins(topology, singles, start, end + 1):
        end += 1
    parts = [g.parts[0] for g in singles[start:end]]
    if not parts or parts[0].choice is None:
        return None
    nodes = [p.nodes for p in parts]
    cut = cutting(topology.graph, nodes, topology.needed([n for p in nodes for n in p]))
    alone = tuple(Alone(g.choice, g.costs) for g in singles[start:end] if g.choice is not None)
    size = max(0, (len(singles) - 1).bit_length() - (tuned.WAYS_PARTS - 1).bit_length())
    trials = max(4, tuned.WAYS[max(2, min(5, level))] >> size)
    return Span(cut.excerpt, alone, topology.machine.inside, level, trials), cut


def reach(level: int) -> int:
    return tuned.GROUP_PARTS[max(2, min(5, level))]


def joins(topology: Topology, singles: Sequence[Group], start: int, end: int) -> bool:
    """Whether consecutive parts may be one group: all on the NPU, in one stretch, none a mere mover."""
    if end == start + 1:
        return True
    first, last = singles[start], singles[end - 1]
    if first.choice is None or last.choice is None:
        return False
    return topology.segment[first.nodes[0]] == topology.segment[last.nodes[0]]


class Shared:
    """Windows one after the other; what they have in common is costed once."""

    def __init__(self, numerics: Numerics) -> None:
        self.numerics = numerics
        self._known: dict[tuple[Machine, int], tuple[Scorer, Known]] = {}

    def window(self, span: Span, machine: Machine) -> Window:
        topology = Topology(span.excerpt.graph, machine, self.numerics)
        if (machine, span.level) not in self._known:
            self._known[machine, span.level] = Scorer(topology, machine, span.level), Known()
        singles = [
            Group((Part(p, a.choice),), a.costs) for p, a in zip(span.excerpt.parts, span.alone, strict=True)
        ]
        coster = Coster(topology, machine, span.level, singles, *self._known[machine, span.level])
        ways, asked = grown(coster, 0, len(singles), span.trials)
        return Window(tuple(Way(end, found.group, found.used) for end, found in ways), asked)


def grown(coster: Coster, start: int, last: int, trials: int) -> tuple[list[tuple[int, Scored]], int]:
    """(groups from a part on by their ends, ways that were costed). A length is a miss where shorter groups
    and single parts do as well; after so many trials, longer ones are not tried."""
    ways: list[tuple[int, Scored]] = []
    best = [0.0]                           # score of the first parts, by what has been seen
    misses = asked = 0
    for end in range(start + 1, last + 1):
        if end > start + 2 and (misses >= tuned.GROUP_MISSES or asked >= trials):
            break
        found, tried = coster.costed(start, end)
        asked += tried
        alone = coster.best(end - 1, end) if end > start + 1 else found
        apart = best[-1] + (alone.score if alone is not None else inf)
        if found is not None:
            ways.append((end, found))
        misses = 0 if end == start + 1 or (found is not None and found.score < apart) else misses + 1
        best.append(min(apart, found.score if found is not None else inf))
    return ways, asked


def in_span(found: Scored, parts: int, cut: Cutting) -> Way:
    """A group of the network as a way to run the first parts of a span that is cut from it."""
    return Way(parts, cut.own.renamed(found.group, cut.network), found.used)


def in_network(way: Way, cut: Cutting) -> Scored:
    """A way to run the first parts of a span, in the network that it is cut from."""
    group = cut.network.renamed(way.group, cut.own)
    return Scored(group, group.costs, way.used)
