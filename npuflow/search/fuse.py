"""Which parts run together: dynamic programming over cuts of their order, then
values that stay between groups."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from math import prod

from npuflow.base.errors import FitError, TargetError
from npuflow.schedule import tuned
from npuflow.schedule.frame import Frame, Topology
from npuflow.schedule.geometry import Uncuttable, inside
from npuflow.schedule.groups import FusionGroup
from npuflow.schedule.local import lay_local, widened
from npuflow.schedule.machine import Machine
from npuflow.schedule.rolled import depth, last_of_rounds
from npuflow.search.canonical import Cost, Cutting, Known, Stretches, Subgraph
from npuflow.search.cuts import GroupCandidate, cheapest
from npuflow.search.finalists import Finalist
from npuflow.search.memory import SearchMemory
from npuflow.search.pinned import NO_PINS, Pins, part_named
from npuflow.search.pins import stretches
from npuflow.search.refuse import PinnedGroups, refusal
from npuflow.search.score import Scored, Scorer
from npuflow.search.spans import Coster, grown, in_network, in_subgraph, joins, reach, run_at
from npuflow.search.states import State, States
from npuflow.search.stay import ResidencySearch
from npuflow.search.strategies import Result, TilingStrategy, Tried, usable


class Fuser:
    """Joins the parts of one network. `memory`: of searches before; `scorer`: of the same network, with what
    it has found, where groups are not scored as usual."""

    exact = False                         # tests set it: every cut is tried, however little it promises

    def __init__(
        self, topology: Topology, machine: Machine, singles: Sequence[FusionGroup], level: int,
        pins: Pins = NO_PINS, memory: SearchMemory | None = None, scorer: Scorer | None = None,
    ) -> None:
        self.topology, self.machine, self.level = topology, machine, level
        self.singles: Sequence[FusionGroup] = list(singles)
        self.tiled = frozenset(part_named(topology.graph, self.singles, name) for name, _ in pins.tiles)
        self.pinned: Sequence[tuple[int, int]] = stretches(topology.graph, self.singles, pins, self.tiled)
        self.forced, self.twins = frozenset(pins.keep), last_of_rounds(topology.graph)
        self.memory = memory or SearchMemory()
        self.known = self.memory if scorer is None else SearchMemory()
        usual = Scorer(topology, machine, level, self.memory.tilings(machine, level))
        self.coster = Coster(topology, machine, level, self.singles, scorer or usual)
        self.scorer, self.room = self.coster.scorer, machine.memory.local_bytes
        self.windows: dict[str, Cost] = {}
        self._ends: dict[int, list[tuple[int, Scored]]] = {}
        self._cuts: dict[tuple[float, bool], list[Scored]] = {}
        self._kept: dict[tuple[float, bool], States] = {}
        self._stayers: dict[str, ResidencySearch] = {}

    def finalists(
        self, without: Collection[str] = (), tried: list[Tried] | None = None
    ) -> Iterator[Finalist]:
        """Plans worth a schedule, the most promising first. `without`: strategies that are left out; `tried`:
        takes those that find no plan, or one that another has found."""
        seen: set[object] = set()
        joins = self.topology.joins_rows
        for strategy in usable(self.machine.compute.cores, self.level, without, joins):
            found: State | None
            if strategy.form == "rows stay" and not self.forced and not self.pinned:
                found = self._staying(strategy)
            elif strategy.form == "groups":
                found = self._cut(strategy.bus, strategy.joins), set()
            else:
                continue
            key = (
                (strategy.form, strategy.keeps, tuple(c.group for c in found[0]), frozenset(found[1]))
                if found
                else None
            )
            result: Result = "same plan" if key in seen else "no plan"
            if found is not None and key not in seen:
                seen.add(key)
                proposed = self._proposed(strategy, found)
                if proposed is not None:
                    stayer = self._stayers.get(strategy.name)
                    mended = stayer is not None and stayer.repaired
                    yield replace(self._finished(*proposed, strategy.name), mended=mended)
                    continue
            if tried is not None:
                tried.append(Tried(strategy.name, 0.0, result))

    def _proposed(self, strategy: TilingStrategy, found: State) -> State | None:
        """Groups with the values that stay; None where a strategy has nothing of its own to propose."""
        if strategy.form == "rows stay":
            return found
        key = strategy.bus, strategy.joins
        if key not in self._kept:
            self._kept[key] = self._keep(list(found[0]))
        states = self._kept[key]
        if strategy.keeps:
            return self._settled(states)
        return self._settled(States(states.at(0)[0])) if len(states) > 1 and not self.forced else None

    def _staying(self, strategy: TilingStrategy) -> State | None:
        """A plan whose rows stay; with less room only where one with more was not what its costs promise."""
        if any(not s.repaired for s in self._stayers.values()):
            return None
        known = Stretches(self.topology, self.singles, Known()) if self._stayers else self.coster.stretches
        found = self.memory.tilings(self.machine, tuned.STAY_LEVEL)
        scorer = Scorer(self.topology, self.machine, tuned.STAY_LEVEL, found)
        own = self._stayers[strategy.name] = ResidencySearch(
            self.machine, known, scorer, self._known_best, strategy.room
        )
        return own.plan(strategy.bus)

    def _cut(self, bus: float, joins: bool) -> list[Scored]:
        if (bus, joins) not in self._cuts:
            self._cuts[bus, joins] = self.cuts(bus, joins)
        return self._cuts[bus, joins]

    def _known_best(self, start: int, end: int) -> Scored | None:
        return dict(self._from(start)).get(end)

    def _finished(self, chosen: list[Scored], kept: set[str], origin: str) -> Finalist:
        chosen = self._widened(chosen, kept)
        return Finalist(tuple(c.group for c in chosen), tuple(sorted(kept)), origin)

    @property
    def asked(self) -> int:
        """Ways to run groups that were costed."""
        return sum(w.asked for w in self.windows.values())

    def _best_within(self, local_bytes: int, start: int, end: int) -> Scored | None:
        """The best way to run a group on a machine with this much local memory, nothing pinned."""
        machine = replace(self.machine, memory=replace(self.machine.memory, local_bytes=local_bytes))
        topology = Topology(self.topology.graph, machine, self.topology.numerics)
        return Fuser(topology, machine, self.singles, self.level).best(start, end)

    def cuts(self, weight: float = tuned.BUS_COST, joins: bool = True) -> list[Scored]:
        """The cheapest cuts of the order into groups. `weight`: of a cycle of the bus; `joins`: groups may
        join values in local memory."""

        def total(before: float, group: GroupCandidate) -> float:
            costs = group.scored.costs
            return before + self.machine.worth(costs.cycles, costs.bytes) + weight * costs.bus

        chosen = cheapest(
            len(self.singles),
            lambda start, _: (
                (end, [(False, GroupCandidate(s))])
                for end, s in self._from(start)
                if joins or end == start + 1 or all(g.choice is not None for g in self.singles[start:end])
            ),
            total,
        )
        if chosen is None:
            local = self.machine.memory.local_bytes
            raise refusal(PinnedGroups(
                self.topology, local, self.singles, self.pinned, self.joins, self.best, self._best_within,
            ))
        return [group.scored for group in chosen]

    def best(self, start: int, end: int) -> Scored | None:
        return self.coster.best(start, end)

    def joins(self, start: int, end: int) -> bool:
        return joins(self.topology, self.singles, start, end)

    @property
    def starts(self) -> int:
        """Parts at which a group of several may begin."""
        return sum(g.choice is not None for g in self.singles)

    def _from(self, start: int) -> list[tuple[int, Scored]]:
        """Groups that begin at a part and may be, by their ends."""
        if start not in self._ends:
            self._ends[start] = self._found(start)
        return self._ends[start]

    def _found(self, start: int) -> list[tuple[int, Scored]]:
        # in the tiles that the recipe states, whatever groups would cost
        if start in self.tiled:
            single = self.singles[start]
            found = [
                (
                    start + 1,
                    Scored(single, single.costs, single.choice.local_bytes if single.choice else self.room),
                )
            ]
        elif self.exact:
            found = self._all(start)
        elif self.singles[start].choice is None:
            found = [(start + 1, moved)] if (moved := self.best(start, start + 1)) is not None else []
        else:
            found = self._window(start)
        ends = {end for end, _ in found}
        for a, b in self.pinned:
            if a == start and b not in ends and self.joins(a, b) and (pinned := self.best(a, b)) is not None:
                found.append((b, pinned))
        return [(end, scored) for end, scored in found if self._pinned(start, end)]

    def _all(self, start: int) -> list[tuple[int, Scored]]:
        ends = range(start + 1, min(len(self.singles), start + reach(self.level)) + 1)
        return [(e, s) for e in ends if self.joins(start, e) and (s := self.best(start, e)) is not None]

    def _window(self, start: int) -> list[tuple[int, Scored]]:
        found = run_at(self.topology, self.singles, start, self.level)
        assert found is not None
        run, cut = found
        alone = self.singles[start].nodes[0] in self.topology.core
        key = f"{run.key} on one core" if alone else run.key
        if key not in self.windows:
            self.windows[key] = self.known.once(key, lambda: self._costed(start, run, cut))
        return [(start + way.parts, in_network(way, cut)) for way in self.windows[key].ways]

    def _costed(self, start: int, run: Subgraph, cut: Cutting) -> Cost:
        ways, asked = grown(self.coster, start, start + len(run.alone), run.trials)
        return Cost(ways=tuple(in_subgraph(found, end - start, cut) for end, found in ways), asked=asked)

    def _pinned(self, start: int, end: int) -> bool:
        """Whether no pinned group is cut through."""
        return all((start, end) == (a, b) or end <= a or b <= start for a, b in self.pinned)

    # --- values that stay between groups
    def _keep(self, chosen: list[Scored], without: Collection[str] = ()) -> States:
        """Each value that crosses a cut, the largest first, stays in local memory if that saves
        cycles: all states on the way. `without`: values that do not."""
        kept: set[str] = set()
        states = States(chosen)
        held: list[list[str]] = [[] for _ in chosen]     # by group what was kept and is there while it runs
        where = {n: g for g, c in enumerate(chosen) for n in c.group.nodes}
        crossing: list[tuple[int, str, int, int]] = []
        for g, scored in enumerate(chosen):
            if scored.group.parts[0].choice is None:
                continue
            for value in self.topology.needed(scored.group.nodes):
                users = [where.get(r, -1) for r in self.topology.readers.get(value, ())]
                later = [u for u in users if u > g and chosen[u].group.parts[0].choice is not None]
                same = [u for u in later if self._segment(chosen[u]) == self._segment(scored)]
                outside = any(u >= 0 and chosen[u].group.nodes[0] in self.topology.joining for u in users)
                if same and len(same) == len(later) and not outside and value not in without:
                    size = prod(self.topology.graph.type(value).shape)
                    crossing.append((size * (1 + len(set(same))), value, g, max(same)))
        lost = sorted(self.forced - {c[1] for c in crossing} - self._inner(chosen))
        keys = {v: (v not in self.forced, -size, v) for size, v, _, _ in crossing}
        # one of a round's last step comes behind that of the step before it, which decides for both
        turns = {v: max(own, keys.get(self.twins.get(v, v), own)) for v, own in keys.items()}
        for _, value, first, last in sorted(crossing, key=lambda c: (turns[c[1]], depth(self.twins, c[1]))):
            trial = self._with(chosen, frozenset(kept | {value}), value, first, held[first : last + 1])
            if trial is None and value in self.forced:
                lost.append(value)
            if trial is not None:
                kept.add(value)
                chosen[first : last + 1] = trial
                states.keep(value, first, trial)
                for there in held[first : last + 1]:
                    there.append(value)
        if lost:
            raise FitError(
                f"these cannot stay in local memory: {', '.join(lost)}",
                because="they do not fit next to the tiles, or a reader is the host, a data-layout operator "
                "or another core",
                hint="[tiling] keep without them",
                code="NF-FIT-003",
            )
        return states

    def _inner(self, chosen: Sequence[Scored]) -> set[str]:
        """Values that never leave their group."""
        return {v for c in chosen for v, _ in c.group.held}

    def _segment(self, scored: Scored) -> int:
        return self.topology.segment[scored.group.nodes[0]]

    def _with(
        self,
        chosen: Sequence[Scored],
        kept: frozenset[str],
        value: str,
        first: int,
        held: Sequence[Sequence[str]],
    ) -> list[Scored] | None:
        """The groups from a value's maker to its last reader, when it stays; None if that is impossible or no
        gain. `held`: by group what else is there while it runs."""
        graph, found = self.topology.graph, []
        for old, there in zip(chosen[first : first + len(held)], held, strict=True):
            if old.group.parts[0].choice is None:
                return None
            others = sum(self._bytes(v, old.group.cores[1]) for v in (*there, value))
            touched = any(value in (*graph.nodes[n].inputs, *graph.nodes[n].outputs) for n in old.group.nodes)
            size = self._bytes(value, old.group.cores[1])
            if not touched and old.used + others <= self.room:
                found.append(old)
                continue
            inside_own = size if any(value in graph.nodes[n].outputs for n in old.group.nodes) else 0
            parts = [p.nodes for p in old.group.parts]
            if any(self.singles[i].parts[0].nodes in parts for i in self.tiled):
                return None  # another choice of buffers would be another tile
            scored = self.scorer.score(
                parts, old.group.strips, old.group.cores, kept, self.room - others + inside_own
            )
            if scored is None:
                return None
            found.append(scored)
        before = sum(c.score for c in chosen[first : first + len(held)])
        gain = sum(c.score for c in found) < before
        if (twin := self.twins.get(value)) is not None:
            gain = twin in kept                          # else no round stands for all
        if not (gain or value in self.forced) or not self._legal(found, kept, value):
            return None
        return found

    def _bytes(self, value: str, cores: int) -> int:
        size = self.topology.bytes(value)
        return size if cores == 1 else size // cores + size // 8

    def _legal(self, groups: Sequence[Scored], kept: frozenset[str], value: str) -> bool:
        """Whether every core finds in its own memory what it reads."""
        try:
            source = Frame(self.topology, groups[0].group, kept)
            for scored in groups[1:]:
                frame = Frame(self.topology, scored.group, kept)
                same = len(source.cores) == 1 and frame.cores == source.cores
                if same or not any(value == v for m in frame.members for v, _ in m.inputs):
                    continue
                for core in frame.cores:
                    wants = frame.wants(value, core)
                    there = source.there(value, core) if core in source.cores else None
                    if wants is not None and (there is None or not inside(wants, there)):
                        return False
        except Uncuttable:
            return False
        return True

    def _settled(self, states: States) -> State:
        """The last state that a real allocation can place, found by halving, then the same without the value
        that did not fit; groups that never fit run as single parts."""
        if self._placed(*(last := states.at(-1))):
            return last
        groups, low, without = states.at(0)[0], 0, set[str]()
        if not self._placed(groups, set()):
            groups = self._apart(groups)
            if self.forced or not self._placed(groups, set()):
                return groups, set()
            states = self._keep(list(groups))
            if self._placed(*(last := states.at(-1))):
                return last
        for _ in range(tuned.KEEP_TRIALS):
            high = len(states) - 1
            while high - low > 1:
                middle = (low + high) // 2
                low, high = (middle, high) if self._placed(*states.at(middle)) else (low, middle)
            without |= states.between(low, high)
            if without & self.forced:
                break
            states = self._keep(list(groups), without)
            if len(states) == low + 1 or self._placed(*states.at(-1)):
                return states.at(-1)
        return states.at(low)

    def _widened(self, chosen: list[Scored], kept: set[str]) -> list[Scored]:
        frames = [Frame(self.topology, c.group, frozenset(kept)) for c in chosen]
        wide = [replace(c, group=g) for c, g in zip(chosen, widened(frames, kept, self.machine), strict=True)]
        return wide if self._placed(wide, kept) else chosen

    def _placed(self, chosen: Sequence[Scored], kept: set[str]) -> bool:
        try:
            lay_local(
                [Frame(self.topology, c.group, frozenset(kept)) for c in chosen], kept, self.machine, look=0
            )
        except TargetError:
            return False
        return True

    def _apart(self, chosen: list[Scored]) -> list[Scored]:
        """Groups that the allocation cannot place run with smaller tiles, or as single parts."""
        found: list[Scored] = []
        by_nodes: Mapping[tuple[int, ...], FusionGroup] = {g.parts[0].nodes: g for g in self.singles}
        for c in chosen:
            if self._placed([c], set()):
                found.append(c)
                continue
            singles = [by_nodes[part.nodes] for part in c.group.parts]
            alone = [Scored(g, g.costs, g.choice.local_bytes if g.choice else 0) for g in singles]
            smaller = self._smaller(c)
            less = smaller is not None and smaller.score < sum(one.score for one in alone)
            found += [smaller] if smaller is not None and less else alone
        return found

    def _smaller(self, old: Scored) -> Scored | None:
        """A group in less local memory, as its allocation needs more than its costs say."""
        parts, group = [p.nodes for p in old.group.parts], old.group
        if any(self.singles[i].parts[0].nodes in parts for i in self.tiled):
            return None
        for share in tuned.SMALLER:
            found = self.scorer.score(parts, group.strips, group.cores, frozenset(), int(share * self.room))
            if found is not None and self._placed([found], set()):
                return found
        return None
