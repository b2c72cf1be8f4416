"""Groups whose activations stay where they are made: every core keeps its rows, and cores exchange halos.

A group is costed by what nobody else can hide: its computation, what it waits for, the bus's share.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from itertools import pairwise
from math import inf

from npuflow.base.errors import TargetError
from npuflow.ir.space import elements
from npuflow.schedule import tuned
from npuflow.schedule.allocate import aligned
from npuflow.schedule.borders import classes, kept_over, spreads
from npuflow.schedule.frame import Frame
from npuflow.schedule.geometry import Uncuttable, piece
from npuflow.schedule.kept import all_moments, spans_of
from npuflow.schedule.local import lay_local, lives_of
from npuflow.schedule.machine import Machine
from npuflow.schedule.passage import Passage
from npuflow.search.canonical import Stretches
from npuflow.search.cuts import STATES, GroupCandidate, Options, cheapest
from npuflow.search.score import Scored, Scorer
from npuflow.search.spans import cuts_over
from npuflow.search.states import State

Parts = tuple[tuple[int, ...], ...]       # the nodes of a group's parts


class ResidencySearch:
    """`best`: the best way found to run parts as one group that loads what it reads
    and stores what it makes."""

    def __init__(
        self, machine: Machine, stretches: Stretches, scorer: Scorer,
        best: Callable[[int, int], Scored | None], share: float = tuned.STAY_ROOM,
    ) -> None:
        self.topology, self.singles, self.stretches = stretches.topology, stretches.singles, stretches
        self.machine, self.scorer, self._best = machine, scorer, best
        self.room = int(share * machine.memory.local_bytes)
        self.can = [g.choice is not None or g.nodes[0] in self.topology.joining for g in self.singles]
        self._known: dict[tuple[int, int, bool, bool], list[GroupCandidate]] = {}
        self._scores: dict[object, Scored | None] = {}
        self._shares: dict[Parts, float] = {}     # of local memory, of groups that need less
        self.repaired = True                      # whether the plan is not what the costs promise
        self._place = {g.parts[0].nodes: at for at, g in enumerate(self.singles)}
        # cores that cut matrices by rows read all weights of the product, each for itself without multicast
        self.matrices = machine.compute.cores > 1 and machine.dma.multicast

    def plan(self, weight: float) -> tuple[list[Scored], set[str]] | None:
        """Groups, and the values that stay between them; None if nothing does.
        `weight`: of a cycle of the bus."""
        chosen = cheapest(
            len(self.singles), self._proposals, lambda before, g: before + _price(g, weight),
            tuned.STAY_MISSES,
        )
        found: State = [g.scored for g in chosen or ()], self._kept(chosen or ())
        self.repaired, limit = bool(found[1]), float(self.machine.memory.local_bytes)
        for turn in range(tuned.STAY_REPAIRS):
            groups, kept = found
            again = self._again(groups, kept) if kept else None
            if again is None:
                break
            if not isinstance(again, list):
                found = again
            elif self._fits(again, kept):
                self.repaired = turn > 0
                return again, kept
            else:
                removed, smaller = self._crowded(again, kept, limit)
                self._shares.update((p, self._shares.get(p, 1.0) * tuned.SMALLER[0]) for p in smaller)
                limit *= 1.0 if removed or smaller else tuned.SMALLER[0]      # it is the addresses
                found = groups, kept - removed
        return None

    def _crowded(
        self, groups: Sequence[Scored], kept: set[str], limit: float
    ) -> tuple[set[str], list[Parts]]:
        """(values that leave local memory, parts of groups that find no room even so): where too much is
        there at once, the smallest value goes that is large enough, or the largest."""
        frames = [Frame(self.topology, g.group, frozenset(kept)) for g in groups]
        align = self.machine.memory.slot_align
        lives, _ = lives_of(frames, kept, self.machine)
        alike, spans = {own[0]: own for own in classes(kept_over(frames))}, spans_of(frames, kept)
        removed, smaller = set[str](), list[Parts]()
        for g, moments in enumerate(all_moments(frames)):
            for moment in moments:
                there = [v for v in lives if v.first <= moment <= v.last]
                stay = {v.name.removeprefix("kept.").removesuffix("/0"): aligned(v.size, align)
                        for v in there if v.name.startswith("kept.")}
                over = sum(aligned(v.size, align) for v in there) - limit
                # of what lies in the same bytes one after the other, what is there now
                now = {v: [o for o in alike.get(v, (v,)) if spans[o][0] <= moment <= spans[o][1]]
                       for v in stay}
                over -= sum(n for v, n in stay.items() if removed.issuperset(now[v]))
                left = sorted((n, v) for v, n in stay.items() if not removed.issuperset(now[v]))
                while over > 0 and left:
                    at = next((i for i, (n, _) in enumerate(left) if n >= over), len(left) - 1)
                    size, value = left.pop(at)
                    removed.update(now[value])
                    over -= size
                if over > 0:
                    smaller.append(tuple(p.nodes for p in groups[g].group.parts))
        return removed, list(dict.fromkeys(smaller))

    def _fits(self, groups: Sequence[Scored], kept: set[str]) -> bool:
        try:
            frames = [Frame(self.topology, g.group, frozenset(kept)) for g in groups]
            lay_local(frames, kept, self.machine, look=0)
        except TargetError:
            return False
        return True

    def _proposals(self, start: int, before: bool) -> Iterator[tuple[int, Options]]:
        for end in range(start + 1, min(len(self.singles), start + tuned.STAY_PARTS) + 1):
            if end > start + 1 and not self._together(start, end - 1):
                break
            yield end, [
                (after, group)
                for after in (STATES if end < len(self.singles) else (False,))
                for group in self._ways(start, end, before, after)
            ]

    def _ways(self, start: int, end: int, before: bool, after: bool) -> list[GroupCandidate]:
        """Ways to run parts as a group between cuts in these states; of equal
        stretches, those of the first."""
        key = start, end, before, after
        if key not in self._known:
            self._known[key] = list(self._found(start, end, before, after))
        return self._known[key]

    def _found(self, start: int, end: int, before: bool, after: bool) -> Iterator[GroupCandidate]:
        parts = [g.parts[0].nodes for g in self.singles[start:end]]
        read, made = self._crossing(parts, before, after) if self.can[start] else ([], [])
        if not (read or made):
            found = self._best(start, end)
            if found is not None:
                yield GroupCandidate(found)
            return
        kept = frozenset((*read, *made))
        if not self._joins(parts, kept):
            return

        def find() -> tuple[list[GroupCandidate], int]:
            dims = (2, 1, 0) if self.matrices else (2, 1)
            cuts = cuts_over(self.topology, parts, self.machine.compute.cores, dims) or [(0, 1)]
            scored = [self.scorer.score(parts, (), cut, kept, self.room) for cut in cuts]
            return [
                GroupCandidate(s, kept, self._exchange(s, read, made, kept)) for s in scored if s is not None
            ], len(cuts)

        yield from self.stretches.once(start, end, kept, find)[0]

    def _together(self, start: int, last: int) -> bool:
        """Whether two parts may be in one group."""
        stretch = self.topology.stretch
        first, other = self.singles[start].nodes[0], self.singles[last].nodes[0]
        return self.can[start] and self.can[last] and stretch[first] == stretch[other]

    def _joins(self, parts: Sequence[tuple[int, ...]], kept: Collection[str]) -> bool:
        """Whether what parts join is made by those before, or kept."""
        made: set[int] = set()
        for nodes in parts:
            if nodes[0] in self.topology.joining and not self.topology.joins_local(nodes[0], made, kept):
                return False
            made.update(nodes)
        return True

    def _stays(self, value: str) -> bool:
        """Whether a value may stay: made and read by parts that compute or join, in one segment."""
        t = self.topology
        maker = t.maker.get(value)
        if maker is None or not self._local(maker) or maker not in t.segment:
            return False
        readers = t.readers.get(value, [])
        return bool(readers) and all(
            self._local(r) and t.segment.get(r) == t.segment[maker] for r in readers
        )

    def _local(self, node: int) -> bool:
        return node not in self.topology.moving or node in self.topology.joining

    def _crossing(
        self, parts: Sequence[tuple[int, ...]], before: bool, after: bool
    ) -> tuple[list[str], list[str]]:
        """Values that the parts read and make which may stay, where what crosses the cuts
        before and behind them does."""
        nodes = [n for p in parts for n in p]
        graph, own = self.topology.graph, {o for n in nodes for o in self.topology.graph.nodes[n].outputs}
        inputs = (
            dict.fromkeys(v for n in nodes for v in graph.nodes[n].inputs if v and v not in own)
            if before
            else {}
        )
        return [v for v in inputs if self._stays(v)], [
            v for v in self.topology.needed(nodes) if self._stays(v)
        ] if after else []

    def _exchange(
        self, scored: Scored, read: Collection[str], made: Collection[str], kept: frozenset[str]
    ) -> float:
        """Cycles of taking over what an inner core reads and others have made.
        Before and behind, rows are cut."""
        c, d, memory = self.machine.compute, self.machine.dma, self.machine.memory
        frame, core, others = (
            Frame(self.topology, scored.group, kept, Passage()),
            scored.group.cores[1] // 2,
            c.cores - 1,
        )
        rows, moved = _by_rows(frame), 0.0
        try:
            frame.passage.strips = tuple(w.run(1) if w.core == core else [] for w in frame.walks)
            for value in read:
                wants = frame.wants(value, core) or ()
                dim, there = _row(len(wants)), 0
                if rows:
                    dim = frame.dims.get(value, dim)
                if dim < len(wants) and (self.matrices or dim == 2):
                    own = piece((0, self.topology.graph.type(value).shape[dim]), c.cores, core, 1)
                    mine = max(own[0], wants[dim][0]), min(own[1], wants[dim][1])
                    there = max(0, elements((*wants[:dim], mine, *wants[dim + 1 :])))
                moved += self._handed(value, (elements(wants) - there) * frame.item(value) * c.cores)
        except Uncuttable:
            return inf
        if not rows:
            moved += sum(self._handed(v, self.topology.bytes(v) / c.cores * others) for v in made)
        if not moved:
            return 0.0
        front = (2 if rows else others) * (d.setup_cycles + c.command_cycles)
        return (front + c.command_cycles) * (
            1 if rows else 1 + bool(made)
        ) + moved / memory.external_bandwidth

    def _handed(self, value: str, missing: float) -> float:
        """Bytes stored and loaded where cores miss so many: what several miss is stored
        once, and may be loaded once."""
        once = min(missing, self.topology.bytes(value))
        return once + (once if self.machine.dma.multicast else missing)

    # --- what really stays
    def _kept(self, chosen: Sequence[GroupCandidate]) -> set[str]:
        """Values that the group which makes them and all that read them take to be in local memory."""
        where = {n: g for g, way in enumerate(chosen) for n in way.scored.group.nodes}
        found: set[str] = set()
        for g, way in enumerate(chosen):
            for value in way.local & set(self.topology.needed(way.scored.group.nodes)):
                later = {where[r] for r in self.topology.readers.get(value, ())} - {g}
                if later and all(value in chosen[u].local for u in later):
                    found.add(value)
        return found

    def _again(self, chosen: Sequence[Scored], kept: set[str]) -> list[Scored] | State | None:
        """The groups costed with what really stays; or other groups and fewer values, where these cannot be;
        None where there is no way."""
        found: list[Scored] = []
        moving = [tuple(p.nodes for p in c.group.parts) for c in chosen if c.group.parts[0].choice is None]
        if outside := kept & frozenset[str]().union(*map(self._touched, moving)):
            return list(chosen), kept - outside
        fits, less = True, set(kept)
        for c in chosen:
            if c.group.parts[0].choice is None:
                found.append(c)
                continue
            parts = [p.nodes for p in c.group.parts]
            if not self._joins(parts, kept):
                pieces, removed = self._outside(c, kept)
            elif (scored := self._scored(c, parts, frozenset(kept))) is not None:
                found.append(scored)
                continue
            else:
                first = self._place[parts[0]]
                pieces = self._cut(range(first, first + len(parts) + 1))
                removed = self._touched(parts) if len(parts) == 1 else frozenset()
            fits, less = False, less - removed
            if not pieces or (len(pieces) == 1 and not removed & kept):
                return None
            found += pieces
        if not fits:
            return found, less
        try:
            spreads(
                [Frame(self.topology, c.group, frozenset(kept)) for c in found],
                kept,
                self.machine.compute.cores,
            )
        except Uncuttable:
            return None
        return found

    def _cut(self, cuts: Sequence[int]) -> list[Scored]:
        """The best groups of the parts between cuts; single parts where there are none; nothing where one
        cannot be."""
        found: list[Scored] = []
        for start, end in pairwise(cuts):
            whole = self._best(start, end) if end > start else None
            alone = [self._best(at, at + 1) for at in range(start, end)] if whole is None else [whole]
            if any(one is None for one in alone):
                return []
            found += [one for one in alone if one is not None]
        return found

    def _scored(self, old: Scored, parts: Sequence[tuple[int, ...]], kept: frozenset[str]) -> Scored | None:
        group, own, share = old.group, kept & self._touched(parts), self._shares.get(tuple(parts), 1.0)
        key = tuple(parts), group.strips, group.cores, own, share
        if key not in self._scores:
            room = int(share * self.machine.memory.local_bytes)
            self._scores[key] = self.scorer.score(parts, group.strips, group.cores, kept, room)
        return self._scores[key]

    def _touched(self, parts: Sequence[tuple[int, ...]]) -> frozenset[str]:
        nodes = [self.topology.graph.nodes[n] for p in parts for n in p]
        return frozenset(v for n in nodes for v in (*n.inputs, *n.outputs))

    def _outside(self, old: Scored, kept: set[str]) -> tuple[list[Scored], frozenset[str]]:
        """The group in pieces, around what joins values that are not all there, and the values that this
        reads and makes in external memory."""
        first = self._place[old.group.parts[0].nodes]
        made: set[int] = set()
        cuts, removed = [first], frozenset[str]()
        for at in range(first, first + len(old.group.parts)):
            nodes = self.singles[at].parts[0].nodes
            if nodes[0] in self.topology.joining and not self.topology.joins_local(nodes[0], made, kept):
                cuts += [at, at + 1]
                removed |= self._touched([nodes])
                made = set()
            else:
                made.update(nodes)
        return self._cut([*cuts, first + len(old.group.parts)]), removed


def _row(rank: int) -> int:
    """The dimension of the rows of a value of this rank."""
    return 2 if rank > 2 else 0


def _by_rows(frame: Frame) -> bool:
    """Whether cores cut a group along rows: most of its values, since Reshapes and Transposes move them."""
    if frame.group.cores[1] == 1:
        return False
    found = [d == _row(len(frame.topology.graph.type(v).shape)) for v, d in frame.dims.items()]
    return 2 * sum(found) > len(found)


def _price(group: GroupCandidate, weight: float) -> float:
    """Computation, what it waits for that constants ahead cannot hide, the last store, and the bus."""
    c = group.scored.costs
    inside = max(c.compute, c.tensor, c.vector) if c.compute else c.cycles - c.early
    return (
        inside + max(0.0, c.head - c.early) + (c.tail if c.store else 0.0) + group.exchange + weight * c.bus
    )
