"""Plans a network: tiles every integer node for local memory, with costs and lower bounds."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from math import inf

from npuflow.base.errors import FitError, TargetError
from npuflow.hw.target import Memory, Numerics
from npuflow.ir.graph import Graph
from npuflow.ir.views import views_of
from npuflow.place.partition import is_npu
from npuflow.schedule import tuned
from npuflow.schedule.allocate import Lifetime, place
from npuflow.schedule.arrange import Method
from npuflow.schedule.bounds import LowerBounds, bounds_of
from npuflow.schedule.frame import Topology
from npuflow.schedule.groups import FusionGroup
from npuflow.schedule.machine import Machine
from npuflow.schedule.moves import moves_of
from npuflow.search.coarse import end_of
from npuflow.search.finalists import Finalist, hopeless, overlapping, rounds, scheduled, worth
from npuflow.search.fuse import Fuser
from npuflow.search.memory import SearchMemory
from npuflow.search.parts import Planner
from npuflow.search.pinned import NO_PINS, Pins, part_named, with_tiles
from npuflow.search.pins import check
from npuflow.search.score import Scorer
from npuflow.search.strategies import Form, Result, TilingStrategy, Tried, usable
from npuflow.search.tilings import DEFAULT_LEVEL
from npuflow.search.whole_rows import WholeRows, whole_rows

FUSING = 2                                # from this level on, parts are joined


@dataclass(frozen=True)
class TilingPlan:
    groups: tuple[FusionGroup, ...]
    bounds: LowerBounds
    solved: int               # different layers searched; the others repeat one of them
    # values that stay in local memory from the group that makes them to the last that reads them
    kept: tuple[str, ...] = ()
    asked: int = 0            # ways to run groups that were costed
    spans: int = 0            # parts at which groups may begin
    different: int = 0        # of them, those with different parts behind them: the others repeat one
    room: float = 0.0         # bytes of local memory that constants of later groups may fill
    allocation: Method = "greedy"   # how addresses are found, in local and in external memory

    replayed: float = 0.0     # schedule time of the whole plan; 0: its estimate has to do
    origin: str = ""          # how the plan was found
    tried: tuple[Tried, ...] = ()   # what came of each strategy
    moved: float = 0.0        # bytes of external traffic as scheduled; 0: the estimate has to do
    rolled: bool = False      # of a graph that has some steps of its loops, which stand for all
    paired: bool = False      # of one with pairs of loops as one
    apart: int = 1            # of one with such loops each on one of so many cores
    early: bool = False       # whether a loop's rounds load constants of what follows it
    by_step: tuple[str, ...] = ()   # products in front of loops, by their results, that loops make
    nested: bool = False      # of one that has some steps of loops in some steps of others
    chunk: int = 0            # of one with layers of a free length as loops over so many steps each; 0: none
    ahead: int = 0            # above 0: jobs are reordered, and buffers of so many parts lie apart

    @property
    def cycles(self) -> float:
        """As scheduled; else all groups one after the other, constants coming in while groups before run."""
        return self.replayed or end_of([c for g in self.groups for c in g.pieces], self.room)

    @property
    def bytes(self) -> float:
        """Of external traffic: as scheduled, constants that stay counted once; else the sum of the groups."""
        return self.moved or sum(g.costs.bytes for g in self.groups)

    @property
    def loops(self) -> str:
        """In which form its loops won, in words; "": as they are, written out, or there are none."""
        forms = {
            "some steps of loops in some steps of others": self.nested,
            f"products made in them: {', '.join(self.by_step)}": self.by_step,
            "pairs of loops as one": self.paired,
            f"each on one of {self.apart} cores": self.apart > 1,
            f"over chunks of {self.chunk} steps": self.chunk,
        }
        return "; ".join(text for text, has in forms.items() if has)

    @property
    def gap(self) -> float:
        return self.cycles / self.bounds.cycles if self.bounds.cycles else 1.0


def plan_network(
    graph: Graph, machine: Machine, numerics: Numerics, level: int = DEFAULT_LEVEL, pins: Pins = NO_PINS,
    allocation: Method = "greedy", memory: SearchMemory | None = None, without: Collection[str] = (),
) -> TilingPlan:
    """Group and tile every integer node of a quantised graph; equal layers and equal
    runs of them are costed once.

    `memory`: what searches before this one have found; `without`: names of strategies that are left out.
    """
    without, memory = frozenset(without), memory or SearchMemory()
    planner, groups = _tiled(graph, machine, numerics, level, memory)
    machine = planner.machine
    check(planner, groups, pins)
    groups = with_tiles(planner, groups, pins.tiles)
    bounds = bounds_of(graph, machine, numerics)
    contest = Contest(Topology(graph, machine, numerics), machine, allocation, level, without, bounds.cycles)
    pinned = {groups[part_named(graph, groups, name)].nodes for name, _ in pins.tiles}
    contest.rows = whole_rows(contest.topology, level, pinned)
    grouping = level >= FUSING or pins != NO_PINS
    fusers = [
        Fuser(contest.topology, machine, groups, each, pins, memory)
        for each in levels(level)
        if grouping
    ]
    _enter_others(contest, graph, numerics, pins)
    contest.run(fusers)
    if not grouping:
        contest.offer([Finalist(tuple(groups), origin="every layer alone")])
    _enter_beside(contest, fusers, groups, pins, bounds)
    best = contest.best
    if best is None:
        hint = "[tiling] without leaves strategies out: fewer of them" if without else ""
        raise FitError("no plan of the network fits local memory", hint=hint, code="NF-FIT-005")
    starts, windows = sum(f.starts for f in fusers), sum(len(f.windows) for f in fusers)
    return TilingPlan(
        best.groups,
        bounds,
        len(planner.solved),
        best.kept,
        sum(f.asked for f in fusers),
        starts,
        windows,
        tuned.CONSTANT_ROOM * machine.memory.local_bytes,
        allocation,
        best.cycles if best.replayed else 0.0,
        best.origin,
        tuple(contest.tried),
        best.moved if best.replayed else 0.0,
        bool(graph.rolls),
        early=best.early,
        ahead=best.ahead,
    )


def layers_alone(
    graph: Graph, machine: Machine, numerics: Numerics, level: int = DEFAULT_LEVEL
) -> list[FusionGroup]:
    """Every layer with what follows it point by point as a group, at the costs of its best tiling: what each
    takes by itself, without a plan of the network. A TargetError where one has no tile."""
    return _tiled(graph, machine, numerics, level, None)[1]


def _tiled(
    graph: Graph, machine: Machine, numerics: Numerics, level: int, memory: SearchMemory | None
) -> tuple[Planner, list[FusionGroup]]:
    planner = Planner(
        graph, replace(machine, inside=fits_shared(graph, machine.memory)), numerics, level, memory
    )
    groups = planner.groups()
    if planner.faults:
        raise _together(planner.faults)
    return planner, groups


@dataclass
class Contest:
    """What strategies propose, one after the other, and the best of it."""

    topology: Topology
    machine: Machine
    allocation: Method
    level: int
    without: frozenset[str]
    bound: float = inf                    # cycles that no plan can beat; inf: none is known
    best: Finalist | None = None
    tried: list[Tried] = field(default_factory=list)
    rows: WholeRows | None = None         # of caches, which tiles do not cut

    def uses(self, form: Form) -> list[TilingStrategy]:
        return [s for s in usable(self.machine.compute.cores, self.level, self.without) if s.form == form]

    def open(self, least: float) -> bool:
        """Whether a plan that takes at least so many cycles could be the best; any, where bytes count."""
        return self.best is None or least < self.best.cycles or self.machine.byte_cost > 0

    def enter(self, other: Finalist | None) -> None:
        """A plan whose cycles are known: it is the best if it is worth less than any before. Those
        that cut no rows of caches come first."""
        if other is None:
            return
        cut = self.rows is not None and self.rows.cut(other)
        other, best, machine = replace(other, cut=cut), self.best, self.machine
        if best is None or (cut, worth(other, machine)) < (best.cut, worth(best, machine)):
            self.best = other

    def enough(self, tiles: int) -> bool:
        """Whether no other plan is scheduled behind so many tiles: in a large network the first few take them
        all, and one that is far from its bound may have a much better one behind it."""
        if self.best is None:
            return False
        far = self.best.cycles > tuned.FAR * self.bound
        return tiles >= (tuned.FAR_TILES if far else tuned.SCHEDULED_TILES)

    def offer(
        self, finalists: Iterable[Finalist], rival: Finalist | None = None, limited: bool = False
    ) -> None:
        """Take the plan whose schedule has the fewest cycles; of equal ones the first. `rival`: another plan,
        which the one taken has to beat; `limited`: only until `enough` tiles are scheduled."""
        spent, machine = 0, self.machine
        for finalist in finalists:
            tiles = rounds(finalist, self.topology)
            others = [other for other in (self.best, rival) if other is not None]
            if tiles > tuned.SURELY_SCHEDULED and any(hopeless(finalist, machine, o) for o in others):
                self.tried.append(Tried(finalist.origin, 0.0, "cannot win"))
                continue
            replay = tiles <= tuned.NEVER_SCHEDULED
            found = self._fitting(finalist, replay)
            spent += tiles if replay and not finalist.mended else 0
            if found is None:
                self.tried.append(Tried(finalist.origin, 0.0, "does not fit"))
            else:
                how: Result = "scheduled" if found.replayed else "estimated"
                self.tried.append(Tried(finalist.origin, found.cycles, how))
                self.enter(found)
            if limited and self.enough(spent):
                break

    def _fitting(self, finalist: Finalist, replay: bool) -> Finalist | None:
        """A plan with its cycles, of the ways in which it cuts no rows of caches the first that fits."""
        for way in (finalist,) if self.rows is None else self.rows.ways(finalist):
            found = scheduled(way, self.topology, self.machine, self.allocation, replay)
            if found is not None:
                return found
        return None

    def run(self, fusers: Sequence[Fuser], rival: Finalist | None = None) -> None:
        """Level by level, the higher one's parts in shorter groups first. `rival`: a plan to be beaten."""
        for fuser in fusers:
            before = self.best
            limited = fuser.level <= DEFAULT_LEVEL
            self.offer(fuser.finalists(self.without, self.tried), rival, limited)
            found = self.best
            if self.uses("overlapping") and found is not None and found is not before and found.replayed:
                fixed = [fuser.singles[i].nodes for i in sorted(fuser.tiled)]
                other = overlapping(found, self.topology, self.machine, fixed)
                self.offer([other] if other.groups != found.groups else [])
            found = self.best
            if found is not before and found is not None and found.replayed:
                self._reordered(found)
            found = self.best
            if self.uses("under loops") and found is not before and found is not None and found.replayed:
                self._under_loops(found)

    def _reordered(self, found: Finalist) -> None:
        """The same plan with jobs in another order, where array and vector unit may run in turn. Rounds of
        loops, and commands over some rows of caches, keep their order."""
        graph = self.topology.graph
        if graph.rolls or graph.state or found.in_turn < tuned.IN_TURN * found.cycles:
            return
        most = max(1, tuned.AHEAD_TILES // max(1, rounds(found, self.topology)))
        self.offer(
            replace(found, origin=f"{found.origin}, {way.name}", ahead=way.ahead)
            for way in self.uses("reordered")[:most]
        )

    def _under_loops(self, found: Finalist) -> None:
        """The same plan whose loops load constants of what follows them. None does whose number of rounds is
        read."""
        if not found.early and any(roll.counted is None for roll in self.topology.graph.rolls):
            self.offer([replace(found, origin=f"{found.origin}, under loops", early=True)])

    def beside(self, fusers: Sequence[Fuser], how: str) -> Finalist | None:
        """The best plan of the same strategies by other means, as where the other cores are idle."""
        alone = replace(self, best=None, tried=[], bound=inf)      # the bound is that of the other means
        alone.run(fusers, self.best)
        self.tried += [replace(t, origin=f"{t.origin}, {how}") for t in alone.tried]
        return None if alone.best is None else replace(alone.best, origin=f"{alone.best.origin}, {how}")


def _enter_beside(
    contest: Contest, fusers: Sequence[Fuser], groups: Sequence[FusionGroup], pins: Pins, bounds: LowerBounds
) -> None:
    """The best plans of the same strategies with parts in few sizes, with resident weights of loops, and on
    one core."""
    topology, machine = contest.topology, contest.machine
    if contest.uses("few sizes") and topology.graph.rolls:
        small = tuned.STAY_LEVEL
        own = [
            Fuser(
                topology, machine, groups, f.level, pins, f.memory,
                Scorer(topology, machine, small, f.memory.tilings(machine, small)),
            )
            for f in fusers
        ]
        contest.enter(contest.beside(own, "few sizes"))
    if contest.uses("weights stay") and (resident := resident_in_loops(topology.graph, machine)):
        own = [
            Fuser(
                topology, machine, groups, f.level, pins, f.memory,
                Scorer(topology, machine, f.level, f.memory.tilings(machine, f.level), resident),
            )
            for f in fusers
        ]
        contest.enter(contest.beside(own, "weights stay"))
    if contest.uses("one core") and contest.open(_least_on_one_core(groups, bounds)):
        single = replace(machine, all_cores=replace(machine.compute, cores=1))
        own = [Fuser(topology, single, groups, f.level, pins, f.memory, f.scorer) for f in fusers]
        contest.enter(contest.beside(own, "on one core"))


def resident_in_loops(graph: Graph, machine: Machine) -> frozenset[int]:
    """Nodes of loops whose constants may be resident in local memory over all steps: the largest constants of
    a step first, as long as there is room. The costs of a single step do not show this: there, weights in two
    double-buffered halves cost the same as weights that are loaded whole."""
    found: set[int] = set()
    for roll in graph.rolls:
        step = roll.steps[roll.lead]
        held = [
            {name for i in graph.nodes[n].inputs if i and (name := graph.values[i].const)} for n in step
        ]
        sizes = {name: graph.consts[name].nbytes for some in held for name in some}
        room, chosen = machine.memory.local_bytes, set[str]()
        for name in sorted(sizes, key=lambda name: (-sizes[name], name)):
            if sizes[name] <= room:
                room -= sizes[name]
                chosen.add(name)
        stay = [k for k, some in enumerate(held) if some and some <= chosen]
        found.update(own[k] for own in roll.steps if len(own) == len(step) for k in stay)
    return frozenset(found)


def _enter_others(contest: Contest, graph: Graph, numerics: Numerics, pins: Pins) -> None:
    """The plans that this one is never worse than: that of the next lower level, and where bytes count that
    of bytes that cost nothing, which may move fewer all the same."""
    machine, more = contest.machine, (pins, contest.allocation, contest.without)
    if contest.uses("lower level"):
        lower = _planned(graph, machine, numerics, DEFAULT_LEVEL, *more)
        contest.enter(lower and replace(lower, origin=f"{lower.origin}, at level {DEFAULT_LEVEL}"))
    if machine.byte_cost:
        contest.enter(_planned(graph, replace(machine, byte_cost=0.0), numerics, contest.level, *more))


def _planned(
    graph: Graph,
    machine: Machine,
    numerics: Numerics,
    level: int,
    pins: Pins,
    allocation: Method,
    without: frozenset[str],
) -> Finalist | None:
    """The plan, if there is any."""
    try:
        plan = plan_network(graph, machine, numerics, level, pins, allocation, without=without)
    except TargetError:
        return None
    return Finalist(
        plan.groups, plan.kept, plan.origin, plan.cycles, plan.moved, replayed=bool(plan.replayed),
        early=plan.early, ahead=plan.ahead,
    )


def _least_on_one_core(groups: Sequence[FusionGroup], bounds: LowerBounds) -> float:
    """Cycles below which the strategies hardly come with one core: each layer by its best tiling."""
    return max(sum(g.costs.bound_cycles for g in groups), bounds.traffic)


def levels(level: int) -> tuple[int, ...]:
    """Levels whose groups are costed: a higher one finds what the default finds, and more."""
    return (level,) if level <= DEFAULT_LEVEL else (DEFAULT_LEVEL, level)


def _together(faults: Sequence[TargetError]) -> TargetError:
    if len(faults) == 1:
        return faults[0]
    first = faults[0]
    names = ", ".join(f.where.node or "?" for f in faults[1:6])
    more = f"{first.because}; {len(faults) - 1} more layers do not fit: {names}" + (
        ", ..." if len(faults) > 6 else ""
    )
    return first.with_(because=more, hint=first.hint)


def fits_shared(graph: Graph, memory: Memory) -> bool:
    """Whether all activations find room in the memory that the cores share on the
    chip, every layer being alone."""
    if not memory.shared_bytes:
        return False
    nodes = [(i, n) for i, n in enumerate(graph.nodes) if is_npu(n)]
    views = views_of(graph, nodes, moves_of(graph))
    spans: dict[str, list[int]] = {}
    for step, node in nodes:
        for value_id in (*node.inputs, *node.outputs):
            if value_id and graph.values[value_id].const is None:
                spans.setdefault(views.root(value_id)[0], [step, step])[1] = step
    lives = [Lifetime(name, max(1, views.bytes(name)), a, b) for name, (a, b) in spans.items()]
    return place(lives, memory.burst).total <= memory.shared_bytes if lives else False
