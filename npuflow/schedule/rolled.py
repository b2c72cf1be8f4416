"""Plans of loops: both rounds are alike, and what they hold lies in the same places.

A graph with rolls (`Graph.rolls`) has some steps of each loop: those that lead in, two rounds of two steps (A and
B), and the last one. Where A and B have the same groups and places, the commands of A, with addresses that go on
by what B's differ, are those of all rounds. What a step hands to the next lies in two places in turn, so that a
step never writes over what it still reads.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from npuflow.base.errors import FitError
from npuflow.ir.graph import Graph, Roll
from npuflow.schedule.allocate import Layout, Lifetime
from npuflow.schedule.arrange import Method
from npuflow.schedule.frame import Frame
from npuflow.schedule.groups import FusionGroup
from npuflow.schedule.local import LOOK, Local, all_moments, laid, lay_local, lives_of, shared_slots
from npuflow.schedule.machine import Machine
from npuflow.schedule.staying import candidates, chosen, with_staying

ROUND = 2                                 # steps of a round
USES = 4                                  # of constants in steps, from which on they may stay


@dataclass(frozen=True)
class RolledLoop:
    """A loop in a plan: the groups of each step that the graph has, by number. `homes`: values of the second
    round by those of the first in whose places they lie; what the first hands on lies where the step that leads
    in put it. `passed`: values that a step hands to the next."""

    roll: Roll
    groups: tuple[tuple[int, ...], ...]
    homes: Mapping[str, str]
    passed: frozenset[str]

    @property
    def extra(self) -> int:
        """Rounds that are run beside the two that the graph has."""
        return self.roll.rounds - 2

    @property
    def first(self) -> tuple[int, ...]:
        """The groups of the first round."""
        return self._round(0)

    @property
    def second(self) -> tuple[int, ...]:
        return self._round(1)

    def _round(self, k: int) -> tuple[int, ...]:
        at = self.roll.lead + ROUND * k
        return tuple(g for step in self.groups[at : at + ROUND] for g in step)

    @property
    def twins(self) -> Mapping[int, int]:
        """Groups of the second round by those of the first."""
        return dict(zip(self.second, self.first, strict=True))


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
        if not roll.regular:
            return None
        by_step = tuple(tuple(sorted({where[n] for n in step if n in where})) for step in roll.steps)
        inner = range(roll.lead - 1, len(roll.steps) - 1)
        told = [_told(graph, roll.steps[k], [groups[g] for g in by_step[k]], kept) for k in inner]
        if any(one != told[0] for one in told):
            return None
        found.append(RolledLoop(roll, by_step, homes_of(graph, roll), frozenset(_handed(graph, roll))))
    return tuple(found)


def _told(
    graph: Graph, nodes: Sequence[int], groups: Sequence[FusionGroup], kept: Collection[str]
) -> object:
    """How the groups of a step run, by the places of its nodes and values in it."""
    place = {n: k for k, n in enumerate(nodes)}
    values = {o: (k, i) for k, n in enumerate(nodes) for i, o in enumerate(graph.nodes[n].outputs) if o}
    told = []
    for group in groups:
        parts = tuple((tuple(place.get(n, -1) for n in p.nodes), p.choice) for p in group.parts)
        held = tuple((values.get(v, v), count) for v, count in group.held)
        told.append((parts, group.strips, group.cores, held))
    return told, sorted(at for v, at in values.items() if v in kept)


def homes_of(graph: Graph, roll: Roll) -> dict[str, str]:
    """In whose place each value of the rounds lies. Of the first round only what is handed on from its last
    step is not in a place of its own."""
    lead, found = roll.lead, dict[str, str]()
    passed = _passed(graph, roll)

    def twins(step: int, other: int, only: Collection[tuple[int, int]] | None = None) -> None:
        for k, (mine, theirs) in enumerate(zip(roll.steps[step], roll.steps[other], strict=True)):
            pairs = zip(graph.nodes[mine].outputs, graph.nodes[theirs].outputs, strict=True)
            for i, (value, home) in enumerate(pairs):
                if value and home and (only is None or (k, i) in only):
                    found[value] = found.get(home, home)

    twins(lead + 1, lead - 1, passed)
    twins(lead + 2, lead)
    twins(lead + 3, lead + 1)
    return found


def _passed(graph: Graph, roll: Roll) -> set[tuple[int, int]]:
    """Results of a step that the next one reads, by the places of node and result."""
    after = {v for n in roll.steps[roll.lead] for v in graph.nodes[n].inputs}
    return {
        (k, i) for k, n in enumerate(roll.steps[roll.lead - 1])
        for i, o in enumerate(graph.nodes[n].outputs) if o in after
    }


def _handed(graph: Graph, roll: Roll) -> Iterator[str]:
    for before, after in pairwise(roll.steps):
        read = {v for n in after for v in graph.nodes[n].inputs}
        yield from (o for n in before for o in graph.nodes[n].outputs if o in read)


def place_local(
    frames: Sequence[Frame], kept: Collection[str], machine: Machine, method: Method = "greedy"
) -> tuple[Local, tuple[RolledLoop, ...]]:
    """Addresses of a plan, and its loops; a FitError where there is no room, or no round of a loop that
    stands for all."""
    graph = frames[0].topology.graph if frames else None
    if graph is None or not graph.rolls:
        return lay_local(frames, kept, machine, method=method), ()
    loops = rolled_loops(graph, [f.group for f in frames], kept)
    local = lay_rolled(frames, kept, machine, loops, method) if loops is not None else None
    if loops is None or local is None:
        why = "its steps run in different ways" if loops is None else "there is no room for it"
        raise FitError(f"no plan of a loop: {why}", code="NF-FIT-012")
    return local, loops


def lay_rolled(
    frames: Sequence[Frame], kept: Collection[str], machine: Machine, loops: Sequence[RolledLoop],
    method: Method = "greedy",
) -> Local | None:
    """Addresses in local memory, the same for both rounds; None where there is no room."""
    lives, movable = lives_of(frames, kept, machine)
    moments = all_moments(frames)
    limit, align = machine.memory.local_bytes, machine.memory.slot_align
    twins = {g: twin for loop in loops for g, twin in loop.twins.items()}
    homes = {v: home for loop in loops for v, home in loop.homes.items()}
    passed = frozenset(v for loop in loops for v in loop.passed)

    def home(name: str) -> str:
        """The item in whose place one lies."""
        item, _, slot = name.rpartition("/")
        if item.startswith("kept."):
            value = item.removeprefix("kept.")
            return f"kept.{homes.get(value, value)}/{slot}"
        number, _, rest = item.partition(".")
        group = twins.get(int(number), int(number))
        if rest.startswith("held."):
            value = rest.removeprefix("held.")
            rest = f"held.{homes.get(value, value) if group != int(number) else value}"
        return f"{group}.{rest}/{slot}"

    merged: dict[str, Lifetime] = {}
    for life in lives:
        name = home(life.name)
        known = merged.get(name)
        if known is None:
            merged[name] = replace(life, name=name)
        elif life.name.removeprefix("kept.").rpartition("/")[0] in passed:
            merged[name] = replace(
                known, size=max(known.size, life.size), first=min(known.first, life.first),
                last=max(known.last, life.last),
            )
    at = _starts(moments, loops)
    own = list(merged.values())
    free = {name: max(first, at(merged[name].first)) for name, first in movable.items() if name in merged}
    found = None
    if staying := chosen(candidates(frames, moments, USES), own, limit, align):
        found = laid(*with_staying(own, free, staying), limit, align, LOOK, method)
        if found is not None:
            found = replace(found, shared=shared_slots(staying))
    found = found or laid(own, free, limit, align, LOOK, method)
    if found is None:
        return None
    addresses = dict(found.layout.addresses)
    addresses |= {v.name: addresses[home(v.name)] for v in lives if home(v.name) in addresses}
    return replace(found, layout=Layout(addresses, found.layout.total, found.layout.bound))


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
