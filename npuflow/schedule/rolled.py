"""Plans of loops: both rounds are alike, and what they hold lies in the same places.

A graph with rolls (`Graph.rolls`) has some steps of each loop: those that lead in, two rounds of two steps,
and the last one. Where both rounds have the same groups and places, the commands of the first, with addresses
that go on by what the second's differ, are those of all rounds. What a step hands to the next lies in two
places in turn, so that a step never writes over what it still reads.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import reduce
from itertools import pairwise

from npuflow.base.errors import FitError
from npuflow.ir.graph import ROUND, Graph, Roll
from npuflow.ir.views import Views
from npuflow.schedule.allocate import Layout, Lifetime
from npuflow.schedule.arrange import Method
from npuflow.schedule.frame import Frame, Topology
from npuflow.schedule.groups import FusionGroup
from npuflow.schedule.jobs import Schedule
from npuflow.schedule.kept import all_moments
from npuflow.schedule.local import (
    LOOK,
    Local,
    held_slots,
    laid,
    lay_local,
    lives_of,
    shared_slots,
)
from npuflow.schedule.machine import Machine
from npuflow.schedule.nested import RolledLoop as RolledLoop
from npuflow.schedule.nested import by_depth, merged, own_groups
from npuflow.schedule.round_loads import turns_of, with_round_loads
from npuflow.schedule.staying import Staying, candidates, chosen, with_staying

USES = 4                                  # of constants in steps, from which on they may stay
APART = 2                                 # parts for which a buffer's bytes are not used again, at most


def rolled_loops(
    graph: Graph, groups: Sequence[FusionGroup], kept: Collection[str]
) -> tuple[RolledLoop, ...] | None:
    """The loops of a plan; None where the steps of a round are not alike, so that no round stands for all."""
    return _of_loops(graph, groups, frozenset(kept)) if graph.rolls else ()


def _of_loops(
    graph: Graph, groups: Sequence[FusionGroup], kept: frozenset[str]
) -> tuple[RolledLoop, ...] | None:
    where = {n: g for g, group in enumerate(groups) for n in group.nodes}
    found = []
    for roll in graph.rolls:
        if not roll.regular or _skips(graph, roll):
            return None
        by_step = tuple(tuple(sorted({where[n] for n in step if n in where})) for step in roll.steps)
        inner = range(roll.lead - 1, len(roll.steps) - 1)
        told = [_told(graph, roll, k, [groups[g] for g in by_step[k]], kept) for k in inner]
        if any(one != told[0] for one in told):
            return None
        mirror, passed = mirrored(graph, roll), frozenset(_handed(graph, roll))
        found.append(RolledLoop(roll, by_step, homes_of(graph, roll, mirror, passed), passed, mirror))
    return tuple(found)


def _told(
    graph: Graph, roll: Roll, step: int, groups: Sequence[FusionGroup], kept: Collection[str]
) -> object:
    """How the groups of a step run, by the places of its nodes and values in it, and in the step before."""
    place = {n: k for k, n in enumerate(roll.steps[step])}
    values = _places(graph, roll.steps[step])
    before = {v: ("before", *at) for v, at in _places(graph, roll.steps[step - 1]).items()}
    known = before | values | {parts[step]: ("part", k) for k, parts in enumerate(parts_of(graph, roll))}
    told = []
    for group in groups:
        parts = tuple((tuple(place.get(n, -1) for n in p.nodes), p.choice) for p in group.parts)
        held = tuple((known.get(v, v), count) for v, count in group.held)
        told.append((parts, group.strips, group.cores, held))
    return told, sorted(str(at) for v, at in values.items() if v in kept)


def parts_of(graph: Graph, roll: Roll) -> list[tuple[str, ...]]:
    """Of every tensor that steps read in parts the parts, step by step; "" where the last one reads none."""
    cut = [graph.nodes[n].outputs[0] for n in roll.movers if len(graph.nodes[n].inputs) == 1]
    count = len(roll.steps)
    if len(cut) % count == 0:
        return [tuple(cut[at : at + count]) for at in range(0, len(cut), count)]
    reader = {
        v: k for k in reversed(range(count)) for n in roll.steps[k] for v in graph.nodes[n].inputs
    }
    found: list[list[str]] = []
    before = count
    for value, step in ((v, reader[v]) for v in cut if v in reader):
        if step <= before:
            found.append([""] * count)
        found[-1][step] = value
        before = step
    return [tuple(parts) for parts in found]


def read_whole(graph: Graph, views: Views) -> dict[str, str]:
    """Parts of tensors of all steps whose loads stand for those of all rounds, by the tensor: they wait until
    all of it is stored. Steps that lead in, where the rounds' number is not read, load for themselves."""
    lead, later, tensors = set[str](), set[str](), set[str]()
    for roll in graph.rolls:
        cuts = [graph.nodes[n].inputs[0] for n in roll.movers if len(graph.nodes[n].inputs) == 1]
        tensors.update(views.root(value)[0] for value in cuts)
        for parts in parts_of(graph, roll):
            begun = 0 if roll.counted else roll.lead
            lead.update(parts[:begun])
            later.update(parts[begun:])
    found = {}
    for value in graph.values if tensors else ():
        around = {value, *views.owners(value)}
        root = views.root(value)[0]
        if root in tensors and (around.isdisjoint(lead) or not around.isdisjoint(later)):
            found[value] = root
    return found


def _skips(graph: Graph, roll: Roll) -> bool:
    """Whether a step reads what another one than itself and the one before it has made."""
    made = {o: k for k, step in enumerate(roll.steps) for n in step for o in graph.nodes[n].outputs}
    read = ((k, v) for k, step in enumerate(roll.steps) for n in step for v in graph.nodes[n].inputs)
    return any(k - made.get(v, k) > 1 for k, v in read)


def _places(graph: Graph, nodes: Sequence[int]) -> dict[str, tuple[object, ...]]:
    """Values of a step by the places of node and result."""
    return {o: (k, i) for k, n in enumerate(nodes) for i, o in enumerate(graph.nodes[n].outputs) if o}


def mirrored(graph: Graph, roll: Roll) -> dict[str, str]:
    """Values that the second round reads and makes, by those of the first at the same place."""
    pairs = ((roll.lead + 1, roll.lead - 1), (roll.lead + 2, roll.lead), (roll.lead + 3, roll.lead + 1))
    return {
        value: twin for step, other in pairs
        for mine, theirs in zip(roll.steps[step], roll.steps[other], strict=True)
        for value, twin in zip(graph.nodes[mine].outputs, graph.nodes[theirs].outputs, strict=True)
        if value and twin
    }


def last_of_rounds(graph: Graph) -> dict[str, str]:
    """Values of the last step in a round, by those of the step before it at the same place. The step behind
    may read fewer of them: nothing takes what it would hand on."""
    return {
        value: twin for roll in graph.rolls if roll.regular
        for mine, theirs in zip(roll.steps[-2], roll.steps[-3], strict=True)
        for value, twin in zip(graph.nodes[mine].outputs, graph.nodes[theirs].outputs, strict=True)
        if value and twin
    }


def depth(twins: Mapping[str, str], value: str) -> int:
    """How many values decide one after the other whether a value stays: in nested loops two may."""
    twin = twins.get(value)
    return 0 if twin is None else 1 + depth(twins, twin)


def _all_mirrored(graph: Graph, loops: Sequence[RolledLoop]) -> dict[str, str]:
    """What second rounds make, and the parts of tensors that they read, by those of the first."""
    made = {v: twin for loop in loops for v, twin in loop.mirror.items()}
    return made | {
        parts[loop.roll.lead + ROUND + k]: parts[loop.roll.lead + k]
        for loop in loops for parts in parts_of(graph, loop.roll) for k in range(ROUND)
    }


def homes_of(
    graph: Graph, roll: Roll, twins: Mapping[str, str], passed: Collection[str]
) -> dict[str, str]:
    """In whose place each value of the rounds lies. Of the first round only what is handed on from its last
    step is not in a place of its own: there lies what the last step that leads in handed on."""
    first = {o for n in roll.steps[roll.lead + 1] for o in graph.nodes[n].outputs if o}
    found = {v: twin for v, twin in twins.items() if v not in first or v in passed}
    return {v: found.get(home, home) for v, home in found.items()}


def _handed(graph: Graph, roll: Roll) -> Iterator[str]:
    for before, after in pairwise(roll.steps):
        read = {v for n in after for v in graph.nodes[n].inputs}
        yield from (o for n in before for o in graph.nodes[n].outputs if o in read)


def _in_turn(topology: Topology, loop: RolledLoop, node: int) -> bool:
    """Whether the parts that a mover joins go on by a round from one round to the next."""
    inputs, size = topology.graph.nodes[node].inputs, topology.graph.type
    at = {inputs[m.source]: m.dst_offset for m in topology.moving[node] if m.source is not None}
    pairs = ((v, twin) for v, twin in loop.mirror.items() if v in at and twin in at)
    return all(abs(at[v] - at[twin]) == ROUND * size(v).size for v, twin in pairs)


def place_local(
    frames: Sequence[Frame], kept: Collection[str], machine: Machine, method: Method = "greedy",
    early: bool = False, ahead: int = 0,
) -> tuple[Local, tuple[RolledLoop, ...]]:
    """Addresses of a plan, and its loops; a FitError where there is no room, or no round of a loop that
    stands for all. `early`: rounds load constants of what follows their loop. `ahead`: in plans without loops
    jobs are reordered, and buffers lie apart from those of so many parts behind."""
    topology = frames[0].topology if frames else None
    if topology is None or not topology.graph.rolls:
        laid = lay_local(frames, kept, machine, method=method, ahead=ahead)
        return replace(laid, reordered=ahead > 0), ()
    graph, views = topology.graph, topology.views
    movers = [n for roll in graph.rolls for n in roll.movers]
    loops = rolled_loops(graph, [f.group for f in frames], kept)
    local = lay_rolled(frames, kept, machine, loops, method, early) if loops is not None else None
    why = ""
    if not all((n, m) in views.saved for n in movers for m in range(len(topology.moving[n]))):
        why = "what its steps read or make is moved"
    elif not all(_in_turn(topology, loop, n) for loop in loops or () for n in loop.roll.movers):
        why = "the parts of a tensor are not made in turn"
    elif local is None:
        why = "its steps run in different ways" if loops is None else "there is no room for it"
    if why or local is None or loops is None:
        raise FitError(f"no plan of a loop: {why}", code="NF-FIT-012")
    return local, loops


def alike(schedule: Schedule, loops: Sequence[RolledLoop]) -> bool:
    """Whether both rounds of every loop have the same jobs in the same places of local memory, with the same
    other cores, and cores meet in the same places."""
    return all(_jobs(schedule, loop.first) == _jobs(schedule, loop.second) for loop in loops)


def _jobs(schedule: Schedule, groups: Sequence[int]) -> list[tuple[object, ...]]:
    place, found = {g: k for k, g in enumerate(groups)}, list[tuple[object, ...]]()
    for phase in schedule.phases:
        if phase.barrier is not None and phase.barrier.group in place:
            found.append((place[phase.barrier.group],))
        cores = {n: sorted(phase.jobs[m].core for m in every) for every in phase.shared for n in every}
        found += [
            (
                place[job.group], job.core, job.queue, type(job.what), job.cycles, job.bytes, job.tile,
                cores.get(n), *((a.low, a.size, box) for a, box in (*job.reads, *job.writes)),
            )
            for n, job in enumerate(phase.jobs) if job.group in place
        ]
    return found


def lay_rolled(
    frames: Sequence[Frame], kept: Collection[str], machine: Machine, loops: Sequence[RolledLoop],
    method: Method = "greedy", early: bool = False,
) -> Local | None:
    """Addresses in local memory, the same for both rounds; None where there is no room."""
    (lives, movable), moments = lives_of(frames, kept, machine), all_moments(frames)
    limit, align = machine.memory.local_bytes, machine.memory.slot_align
    own, home = list(lives), list[Callable[[str], str]]()
    for some in by_depth(loops):
        home.append(_home(frames[0].topology.graph, some))
        own = merged(own, home[-1], frozenset(v for loop in some for v in loop.passed))
    places = {life.name: reduce(lambda name, to: to(name), home, life.name) for life in lives}
    at = _starts(moments, loops)
    starts = {life.name: life.first for life in own}
    free = {name: max(first, at(starts[name])) for name, first in movable.items() if name in starts}
    longer = _longer(frames, own, moments, loops, early)
    uneven = any(_uneven(frames[0].topology.graph, loop.roll) for loop in loops)
    tried = candidates(frames, moments, USES, uneven)
    staying = _staying(tried, own, free, longer, at, (limit, align), method)
    found, every, sooner = staying or (laid(own, free, limit, align, LOOK, method), own, free)
    if found is None:
        return None
    steps = [(one.roll, one.groups) for one in loops if early and not one.roll.outer]
    for turns in turns_of(frames, steps, moments, machine):
        found, every = with_round_loads(found, (every, sooner), frames, turns, machine, method)
    addresses = dict(found.layout.addresses)
    addresses |= {name: addresses[place] for name, place in places.items() if place in addresses}
    if any(v.name not in addresses and v.name.rpartition("/")[0] not in found.shared for v in lives):
        return None
    rounds = {g for loop in loops for g in (*loop.first, *loop.second)}
    # several cores load a block together, which a cut one could not be
    cutting = frozenset(range(len(frames))) - rounds if early and machine.compute.cores == 1 else ()
    layout = Layout(addresses, found.layout.total, found.layout.bound)
    return replace(found, layout=layout, cutting=cutting)


def _home(graph: Graph, loops: Sequence[RolledLoop]) -> Callable[[str], str]:
    """In the place of which item one lies, in loops none of which is nested in another of them."""
    twins = {g: twin for loop in loops for g, twin in loop.twins.items()}
    homes = {v: home for loop in loops for v, home in loop.homes.items()}
    mirror = _all_mirrored(graph, loops)

    def home(name: str) -> str:
        item, _, slot = name.rpartition("/")
        if item.startswith("kept."):
            value = item.removeprefix("kept.")
            return f"kept.{homes.get(value, value)}/{slot}"
        number, _, rest = item.partition(".")
        group = twins.get(int(number), int(number))
        if rest.startswith("held."):
            value = rest.removeprefix("held.")
            rest = f"held.{mirror.get(value, value) if group != int(number) else value}"
        return f"{group}.{rest}/{slot}"

    return home


def _staying(
    tried: Sequence[Staying], own: Sequence[Lifetime], free: Mapping[str, int],
    tries: Sequence[tuple[Sequence[Lifetime], int]], at: Callable[[int], int], room: tuple[int, int],
    method: Method,
) -> tuple[Local, Sequence[Lifetime], Mapping[str, int]] | None:
    """Addresses where constants that steps share stay, with the lives and constants as they are then. Other
    buffers lie apart from those of the next parts as far as there is room: the array may then begin while the
    vector unit still reads its last sums.
    `tried`: what may stay; `free`: constants, and from when on they may come; `tries`: lives, and for how
    many parts more buffers lie apart; `room`: bytes, and how these are aligned."""
    least = len(chosen(tried, own, *room))
    for lives, longer in tries:
        apart = [
            v if v.name.startswith("kept.") or v.name in free else replace(v, last=v.last + longer)
            for v in lives
        ]
        staying = chosen(tried, apart, *room)
        if len(staying) < least:
            continue
        every, sooner = with_staying(apart, free, staying)
        sooner |= {life.name: at(life.first) for one in staying for life in one.lives}
        found = laid(every, sooner, *room, LOOK, method)
        if found is not None:
            return replace(found, shared=shared_slots(staying)), every, sooner
    return None


def _longer(
    frames: Sequence[Frame], own: Sequence[Lifetime], moments: Sequence[Sequence[int]],
    loops: Sequence[RolledLoop], early: bool,
) -> list[tuple[Sequence[Lifetime], int]]:
    """Lives that are tried, and for how many parts more buffers lie apart: the most room first."""
    found = [(own, n) for n in range(APART, -1, -1)]
    ways = (True, False) if early else (False,)
    return [*((_loaded_early(frames, own, moments, loops, ahead), APART) for ahead in ways), *found]


def _uneven(graph: Graph, roll: Roll) -> bool:
    """Whether the first or the last chunk of a loop has values of other shapes than those between."""
    if roll.counted is None or roll.counted.size == 1:
        return False
    kinds = [[graph.type(o) for n in roll.steps[k] for o in graph.nodes[n].outputs if o]
             for k in (roll.lead, 0, -1)]
    return any(one != kinds[0] for one in kinds)


def _loaded_early(
    frames: Sequence[Frame], lives: Sequence[Lifetime], moments: Sequence[Sequence[int]],
    loops: Sequence[RolledLoop], ahead: bool = False,
) -> list[Lifetime]:
    """The lives where what a round loads has bytes of its own in the whole round: it is loaded as soon as the
    round before has read it, and nobody waits for it. `ahead`: so has what its first parts make, which the
    next round may make while the last parts of this one run."""
    ends = [
        (own, moments[loop.first[0]][0], moments[loop.first[-1]][-1])
        for loop, own in zip(loops, own_groups(loops), strict=True)
    ]
    spans = {g: (first, last) for groups, first, last in ends for g in groups}
    loaded = dict[str, int]()
    for g, frame in ((g, frames[g]) for g in spans if not frames[g].moves):
        made = {o for member in frame.members for o in member.outputs}
        loaded.update((held_slots(g, value), g) for value, _ in frame.group.held if value not in made)
        for p, units in enumerate(frame.units):
            begins = ahead and p < APART and any(g == loop.first[0] for loop in loops)
            loaded.update(
                (f"{g}.{p}.{u}", g) for u, unit in enumerate(units)
                if unit.home == "input" or (begins and unit.home != "const")
            )
            results = frame.members[p].outputs if begins else ()
            loaded.update((held_slots(g, value), g) for value, _ in frame.group.held if value in results)
    found = []
    for life in lives:
        first, last = spans.get(loaded.get(life.name.rpartition("/")[0], -1), (life.first, life.last))
        found.append(replace(life, first=min(first, life.first), last=max(last, life.last)))
    return found


def _starts(moments: Sequence[Sequence[int]], loops: Sequence[RolledLoop]) -> Callable[[int], int]:
    """From when on a constant that is used at a moment may come: not before its loop's rounds begin, and not
    before the loop is done where it is used behind it."""
    edges = sorted(
        moments[g][0] for loop in loops
        for g in (loop.first[0], loop.groups[-1][0] if loop.groups[-1] else loop.second[-1])
    )

    def at(moment: int) -> int:
        return max((edge for edge in edges if edge <= moment), default=0)

    return at
