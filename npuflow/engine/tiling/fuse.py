"""Which parts run together: dynamic programming over cuts of their order, then values that stay between groups."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf, prod

from npuflow.base.errors import TargetError
from npuflow.engine.tiling.cost import Machine
from npuflow.engine.tiling.frame import Frame, Topology, lay_local, widened
from npuflow.engine.tiling.geometry import Uncuttable, inside
from npuflow.engine.tiling.groups import Cut, Group
from npuflow.engine.tiling.refuse import Search, refusal
from npuflow.engine.tiling.score import Scored, Scorer

LENGTHS = {2: 6, 3: 9, 4: 12, 5: 16}      # parts of a group, by level
STRIPS = (2, 3, 4, 6, 8, 10, 12, 14, 16, 20, 24, 28, 32, 40, 48, 56, 64, 80, 96, 112)
MISSES = 3                                # lengths in a row that are no gain: longer ones are not tried
NEAR = 1.04                               # of its lower bound: no further way to run a group is tried
TRIALS = {2: 400, 3: 800, 4: 4000, 5: 16000}   # different groups costed for a network, by level, and more for what cannot wait
PATIENCE = 1                              # strip counts beyond the first that fits, while they gain


@dataclass(frozen=True)
class Fused:
    groups: tuple[Group, ...]
    kept: tuple[str, ...]
    asked: int                            # groups costed
    repeated: int                         # of them, equal to an earlier one


@dataclass(frozen=True)
class Pins:
    """What the recipe fixes: values that stay in local memory, and nodes that form a group, by their names."""

    keep: tuple[str, ...] = ()
    groups: tuple[tuple[str, ...], ...] = ()


NO_PINS = Pins()


class Fuser:
    """Joins the parts of one network. `exact`: every cut is tried, however little it promises."""

    def __init__(
        self, topology: Topology, machine: Machine, singles: Sequence[Group], level: int, pins: Pins = NO_PINS,
        exact: bool = False,
    ) -> None:  # fmt: skip
        self.topology, self.machine, self.level = topology, machine, level
        self.singles: Sequence[Group] = list(singles)
        self.pinned: Sequence[tuple[int, int]] = self._pins(pins)
        self.forced, self.exact = frozenset(pins.keep), exact
        self.scorer = Scorer(topology, machine, level)
        self.room = machine.memory.local_bytes

    def run(self) -> Fused:
        _, chosen = self.cuts()
        chosen, kept = self._settled(self._keep(chosen))
        chosen = self._widened(chosen, kept)
        return Fused(tuple(c.group for c in chosen), tuple(sorted(kept)), self.scorer.asked, self.scorer.repeated)

    def with_machine(self, machine: Machine) -> Search:
        """The same parts on another machine, nothing pinned."""
        return Fuser(Topology(self.topology.graph, machine, self.topology.numerics), machine, self.singles, self.level)

    def cuts(self) -> tuple[float, list[Scored]]:
        """The cheapest cuts of the order into groups, with their score."""
        best: list[tuple[float, int, Scored | None]] = [(0.0, 0, None)]
        best += [(inf, 0, None)] * len(self.singles)
        longest = LENGTHS[max(2, min(5, self.level))]
        for start in range(len(self.singles)):
            misses, base, fair = 0, best[start][0], self.scorer.costed + self._share(start)
            reach = max([start + longest, *(b for a, b in self.pinned if a == start)])
            for end in range(start + 1, min(len(self.singles), reach) + 1):
                allowed = self._pinned(start, end)
                tired = misses >= MISSES or (self.scorer.costed >= fair and end > start + 2)
                if (tired and not self.exact) or allowed is None or not self.joins(start, end):
                    break
                if not allowed:
                    continue
                found = self.best(start, end)
                if found is not None and base + found.score < best[end][0]:
                    best[end], misses = (base + found.score, start, found), 0
                else:
                    misses += 1
        if best[-1][0] == inf:
            raise refusal(self)
        chosen: list[Scored] = []
        at = len(self.singles)
        while at:
            _, at, scored = best[at]
            assert scored is not None
            chosen.append(scored)
        return best[-1][0], chosen[::-1]

    def _share(self, start: int) -> int:
        """Groups that may be costed from one start: twice an even share of what is left."""
        left = TRIALS[max(2, min(5, self.level))] - self.scorer.costed
        return max(0, 2 * left // (len(self.singles) - start))

    def _pins(self, pins: Pins) -> list[tuple[int, int]]:
        """Stretches of parts that the recipe joins."""
        names = {n: i for i, g in enumerate(self.singles) for k in g.nodes for n in self._names(k)}
        values = set(self.topology.graph.values)
        unknown = [n for group in pins.groups for n in group if n not in names] + [v for v in pins.keep if v not in values]
        if unknown:
            raise TargetError(
                f"[tiling] names what does not run on the NPU: {', '.join(unknown)}",
                hint="names of layers in groups, of tensors in keep; `npuflow show` lists both", code="unknown-name",
            )  # fmt: skip
        found = []
        for group in pins.groups:
            members = sorted({names[n] for n in group})
            if members != list(range(members[0], members[-1] + 1)):
                raise TargetError(f"the layers of a group do not follow each other: {', '.join(group)}", code="not-consecutive")
            found.append((members[0], members[-1] + 1))
        return found

    def _names(self, index: int) -> set[str]:
        node = self.topology.graph.nodes[index]
        return {node.name, *node.origin}

    def _pinned(self, start: int, end: int) -> bool | None:
        """True: may be a group; False: not yet, a pinned one goes on; None: it cuts through one."""
        for a, b in self.pinned:
            if (start, end) != (a, b) and start < b and a < end:
                return False if start == a and end < b else None
        return True

    def joins(self, start: int, end: int) -> bool:
        group, last = self.singles[start], self.singles[end - 1]
        if end == start + 1:
            return True
        if any(g.choice is None for g in (group, last)):
            return False
        segment = self.topology.segment
        return segment[group.nodes[0]] == segment[last.nodes[0]]

    def best(self, start: int, end: int) -> Scored | None:
        """The best way to run these parts as one group."""
        parts = [g.parts[0].nodes for g in self.singles[start:end]]
        found: list[Scored] = []
        single = self.singles[start]
        if end == start + 1:
            found.append(Scored(single, single.costs, single.choice.local_bytes if single.choice else self.room // 2))
            if single.choice is None:
                return found[0]
        whole, bound = self._whole(parts), self._bound(start, end)
        for cores in self._cores(parts):
            fits = 0
            rest = None
            for strips in self._strips(parts, whole // cores[1], end - start > 1):
                scored = self.scorer.score(parts, strips, cores, frozenset(), self.room)
                if scored is None:
                    if fits:
                        break
                    continue
                fits += 1
                found.append(scored)
                near = scored.costs.cycles <= NEAR * bound / cores[1]
                if near or (rest is not None and scored.score >= rest and fits > PATIENCE):
                    break
                rest = scored.score if rest is None else min(rest, scored.score)
        return min(found, key=lambda s: s.score) if found else None

    def _results(self, parts: Sequence[tuple[int, ...]]) -> list[tuple[int, ...]]:
        nodes = [n for p in parts for n in p]
        return [self.topology.graph.type(v).shape for v in self.topology.needed(nodes)]

    def _cores(self, parts: Sequence[tuple[int, ...]]) -> list[Cut]:
        """One core, or all of them along rows, channels or batches."""
        count = self.machine.compute.cores
        found: list[Cut] = [(0, 1)]
        shapes = self._results(parts)
        rank = min((len(s) for s in shapes), default=0)
        for dim in range(min(rank, 3)) if count > 1 else ():
            if min(s[dim] for s in shapes) >= count and (dim != 1 or len(parts) == 1):
                found.append((dim, count))
        return found

    def _strips(self, parts: Sequence[tuple[int, ...]], whole: int, several: bool) -> list[tuple[Cut, ...]]:
        shapes = self._results(parts)
        found: list[tuple[Cut, ...]] = [()]
        if not several or any(len(s) < 3 for s in shapes):
            return found
        rows = max(s[2] for s in shapes) if len(shapes[0]) > 2 else 1
        least = whole / self.room * 0.8
        batch: tuple[Cut, ...] = ((0, shapes[0][0]),) if shapes[0][0] > 1 else ()
        if batch:
            found.append(batch)
        counts = [n for n in (*STRIPS, rows) if n <= rows and n * max(1, prod(n for _, n in batch)) >= least and n > 1]
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
        return max(sum(g.costs.bound_cycles for g in self.singles[start:end]), size / self.machine.memory.external_bandwidth)

    # --- values that stay between groups
    def _keep(self, chosen: list[Scored]) -> list[tuple[list[Scored], set[str]]]:
        """Each value that crosses a cut, the largest first, stays in local memory if that saves cycles: all states on the way."""
        kept: set[str] = set()
        states = [(list(chosen), set(kept))]
        where = {n: g for g, c in enumerate(chosen) for n in c.group.nodes}
        crossing: list[tuple[int, str, int, int]] = []
        for g, scored in enumerate(chosen):
            if scored.group.parts[0].choice is None:
                continue
            for value in self.topology.needed(scored.group.nodes):
                users = [where.get(r, -1) for r in self.topology.readers.get(value, ())]
                later = [u for u in users if u > g and chosen[u].group.parts[0].choice is not None]
                same = [u for u in later if self._segment(chosen[u]) == self._segment(scored)]
                if same and len(same) == len(later):
                    size = prod(self.topology.graph.type(value).shape)
                    crossing.append((size * (1 + len(set(same))), value, g, max(same)))
        lost = sorted(self.forced - {c[1] for c in crossing} - self._inner(chosen))
        for _, value, first, last in sorted(crossing, key=lambda c: (c[1] not in self.forced, -c[0], c[1])):
            trial = self._with(chosen, frozenset(kept | {value}), value, first, last)
            if trial is None and value in self.forced:
                lost.append(value)
            if trial is not None:
                kept.add(value)
                chosen[first : last + 1] = trial
                states.append((list(chosen), set(kept)))
        if lost:
            raise TargetError(
                f"these cannot stay in local memory: {', '.join(lost)}",
                because="they do not fit beside the tiles, or a reader is on the host, a data mover, or another core",
                hint="[tiling] keep without them", code="does-not-fit",
            )  # fmt: skip
        return states

    def _inner(self, chosen: Sequence[Scored]) -> set[str]:
        """Values that never leave their group."""
        return {v for c in chosen for v, _ in c.group.held}

    def _segment(self, scored: Scored) -> int:
        return self.topology.segment[scored.group.nodes[0]]

    def _with(self, chosen: Sequence[Scored], kept: frozenset[str], value: str, first: int, last: int) -> list[Scored] | None:
        """The groups from a value's maker to its last reader, when it stays; None if that is impossible or no gain."""
        graph, found = self.topology.graph, []
        for g in range(first, last + 1):
            old = chosen[g]
            if old.group.parts[0].choice is None:
                return None
            others = sum(self._bytes(v, old.group.cores[1]) for v in kept if self._spans(v, chosen, g))
            touched = any(value in graph.nodes[n].inputs or value in graph.nodes[n].outputs for n in old.group.nodes)
            size = self._bytes(value, old.group.cores[1])
            if not touched and old.used + others <= self.room:
                found.append(old)
                continue
            inside_own = size if touched and any(value in graph.nodes[n].outputs for n in old.group.nodes) else 0
            parts = [p.nodes for p in old.group.parts]
            scored = self.scorer.score(parts, old.group.strips, old.group.cores, kept, self.room - others + inside_own)
            if scored is None:
                return None
            found.append(scored)
        before = sum(c.score for c in chosen[first : last + 1])
        gain = value in self.forced or sum(c.score for c in found) < before
        if not gain or not self._legal(found, kept, value):
            return None
        return found

    def _bytes(self, value: str, cores: int) -> int:
        item = 2 if self.topology.graph.values[value].dtype.endswith("16") else 1
        size = prod(self.topology.graph.type(value).shape) * item
        return size if cores == 1 else size // cores + size // 8

    def _spans(self, value: str, chosen: Sequence[Scored], g: int) -> bool:
        readers = set(self.topology.readers.get(value, ()))
        made = next(i for i, c in enumerate(chosen) if self.topology.maker[value] in c.group.nodes)
        last = max((i for i, c in enumerate(chosen) if readers & set(c.group.nodes)), default=made)
        return made <= g <= last

    def _legal(self, groups: Sequence[Scored], kept: frozenset[str], value: str) -> bool:
        """Whether every core finds in its own memory what it reads."""
        try:
            source = Frame(self.topology, groups[0].group, kept)
            cores = groups[0].group.cores
            for scored in groups[1:]:
                frame = Frame(self.topology, scored.group, kept)
                if not any(value == v for m in frame.members for v, _ in m.inputs):
                    continue
                if cores[1] == 1 and scored.group.cores[1] == 1:
                    continue
                for core in range(scored.group.cores[1]):
                    wants = frame.wants(value, core)
                    there = source.there(value, core) if core < cores[1] else None
                    if wants is not None and (there is None or not inside(wants, there)):
                        return False
        except Uncuttable:
            return False
        return True

    def _settled(self, states: list[tuple[list[Scored], set[str]]]) -> tuple[list[Scored], set[str]]:
        """The last state that a real allocation can place, found by halving; groups that never fit run as single parts."""
        if self._placed(*states[-1]):
            return states[-1]
        if not self._placed(*states[0]):
            return self._apart(states[0][0]), set()
        low, high = 0, len(states) - 1
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self._placed(*states[middle]) else (low, middle)
        return states[low]

    def _widened(self, chosen: list[Scored], kept: set[str]) -> list[Scored]:
        frames = [Frame(self.topology, c.group, frozenset(kept)) for c in chosen]
        wide = [replace(c, group=g) for c, g in zip(chosen, widened(frames, kept, self.machine), strict=True)]
        return wide if self._placed(wide, kept) else chosen

    def _placed(self, chosen: Sequence[Scored], kept: set[str]) -> bool:
        try:
            lay_local([Frame(self.topology, c.group, frozenset(kept)) for c in chosen], kept, self.machine, look=0)
        except TargetError:
            return False
        return True

    def _apart(self, chosen: list[Scored]) -> list[Scored]:
        """Groups that the allocation cannot place run as single parts."""
        found: list[Scored] = []
        by_nodes: Mapping[tuple[int, ...], Group] = {g.parts[0].nodes: g for g in self.singles}
        for c in chosen:
            try:
                lay_local([Frame(self.topology, c.group, frozenset())], (), self.machine, look=0)
                found.append(c)
            except TargetError:
                for part in c.group.parts:
                    single = by_nodes[part.nodes]
                    found.append(Scored(single, single.costs, 0))
        return found


def fuse(topology: Topology, machine: Machine, singles: Sequence[Group], level: int, pins: Pins = NO_PINS) -> Fused:
    return Fuser(topology, machine, singles, level, pins).run()


