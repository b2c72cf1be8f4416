"""Loops in programs: where the commands of their rounds lie, and values that all rounds share."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from npuflow.ir.graph import ROUND, Graph, Roll
from npuflow.ir.moves import dense
from npuflow.ir.op import Node
from npuflow.ir.views import Views
from npuflow.program.codegen.core import CoreProgram
from npuflow.program.repeats import Rounds, differing, in_all_rounds
from npuflow.schedule.allocate import Lifetime
from npuflow.schedule.frame import Topology
from npuflow.schedule.geometry import Spread
from npuflow.schedule.nested import RolledLoop, by_depth, homes_together
from npuflow.schedule.rolled import parts_of

NOTHING_MOVED: Mapping[str, int] = {}


@dataclass
class LoopCommands:
    """The loops of a program while its commands are written. `lengths`: by input where DATA has how many
    steps run, and how many may. `marks`: by core, where the commands of a group begin."""

    loops: tuple[RolledLoop, ...]
    cores: tuple[CoreProgram, ...]
    lengths: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    marks: list[dict[int, int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.marks = [{} for _ in self.cores]
        self._moved: dict[int, dict[str, int]] = {}
        for loop in self.loops:
            moved = self.moved(loop)
            self._moved.update((g, self._moved.get(g, {}) | moved) for g in loop.groups[-1])

    def begin(self, group: int, cores: Iterable[int]) -> None:
        """A group begins on cores, if it has not yet."""
        for core in cores:
            self.marks[core].setdefault(group, len(self.cores[core].commands.commands))
            self.cores[core].data.moved = self._moved.get(group, NOTHING_MOVED)

    def end(self) -> None:
        """All groups of a segment are done."""
        for core in self.cores:
            core.data.moved = NOTHING_MOVED

    def moved(self, loop: RolledLoop) -> dict[str, int]:
        """By how many bytes what the second round hands on lies further when all rounds have run: where it is
        a part of a tensor of all steps."""
        found, data = {}, self.cores[0].data
        for value, twin in loop.mirror.items():
            if value in loop.passed and value in data and twin in data:
                found[value] = loop.extra * (data.address(value) - data.address(twin))
        return found

    def more(self, core: int) -> int:
        """Commands of rounds that are not written, of loops whose last step has begun."""
        found = ((loop, self._rounds(core, loop)) for loop in self.loops)
        return sum(loop.extra * rounds.size for loop, rounds in found if rounds is not None)

    def rounds(self, core: int) -> list[Rounds]:
        """Where the two rounds of each loop lie, in the order of the commands."""
        every = [found for loop in self.loops if (found := self._rounds(core, loop)) is not None]
        return sorted(every, key=lambda one: one.first) if by_depth(self.loops)[1:] else every

    def meta(self) -> dict[str, Any]:
        """What metadata says of the loops, if there are some."""
        nested = {"nested": True} if any(loop.roll.outer for loop in self.loops) else {}
        return {**nested, "loops": self.table()} if self.loops else {}

    def table(self) -> list[dict[str, Any]]:
        """The loops as metadata has them, outer ones first: see `program/meta.py`. Inner loops stand in each
        step of the outer one that the graph has, under one name."""
        order = [loop for some in by_depth(self.loops)[::-1] for loop in some]
        every, found = [self.rounds(core) for core in range(len(self.cores))], list[dict[str, Any]]()
        for loop in order:
            roll, blocks = loop.roll, list[list[int] | None]()
            for core, rounds in enumerate(every):
                own = self._rounds(core, loop)
                has = own is not None and own.length
                blocks.append([in_all_rounds(rounds, own.first), own.size] if own and has else None)
            found.append({
                "loop": roll.loop.rpartition("@")[0] if roll.outer else roll.loop,
                "numbers": list(roll.numbers), "nodes": [list(step) for step in roll.steps], "each": ROUND,
                "rounds": roll.rounds, "blocks": blocks,
                **({"outer": [one.roll.loop for one in order].index(roll.outer)} if roll.outer else {}),
                **({"late": True} if roll.counted is not None and roll.counted.last else {}),
            })
        return found

    def _rounds(self, core: int, loop: RolledLoop) -> Rounds | None:
        """None while the second round is not done, or where a core has nothing of the rounds to do."""
        marks = self.marks[core]
        first, second, end = (
            min((marks[g] for g in groups if g in marks), default=-1)
            for groups in (loop.first, loop.second, loop.groups[-1])
        )
        if end < 0 or max(first, second) < 0:
            return None
        if min(first, second) < 0 or second - first != end - second:
            raise differing(loop.roll.loop, "a round has more commands than the one before it")
        length, count = second - first, loop.roll.rounds
        inner = (self._rounds(core, one) for one in self.loops if one.roll.outer == loop.roll.loop)
        more = sum((one.count - 2) * one.length for one in inner if one and first <= one.first < second)
        return Rounds(first, length, count, self._tensors(loop), loop.roll.loop, self._read(loop.roll), more)

    def _read(self, roll: Roll) -> dict[str, int]:
        """What a REPEAT says of rounds that are read. A command of a step may lie in the round behind its
        own, with that one's words: of first steps one round more runs than needed, so that the step of
        whichever command is left over is filling; of last ones those are the steps before the first round."""
        if roll.counted is None:
            return {}
        late, size = roll.counted.last, roll.counted.size
        address, most = self.lengths[roll.counted.length]
        before = size * (1 if late else roll.lead - ROUND) - roll.counted.beyond
        # ceil(((n + more) // stride - before) / each) of n steps, as REPEAT has it: ceil((n - before) / each)
        stride, more = roll.counted.count.stride, roll.counted.count.more
        before = stride * (before + 1) - 1 - more
        each = stride * ROUND * size
        return {"most": most, "address": address, "before": before, "each": each, "late": int(late)}

    def _tensors(self, loop: RolledLoop) -> tuple[tuple[int, int, int], ...]:
        """The tensors that steps read and make parts of: first and last byte, how far a round goes."""
        data = self.cores[0].data
        graph, found = data.graph, dict[tuple[int, int, int], None]()
        for node in (graph.nodes[n] for n in loop.roll.movers if len(graph.nodes[n].inputs) > 1):
            (whole,), part = node.outputs, node.inputs[0]
            found.update(dict.fromkeys(self._ways(whole, ROUND * data.bytes(part))))
        maker, lead = graph.producer(), loop.roll.lead
        for parts in parts_of(graph, loop.roll):
            one, twin = (maker.get(parts[k]) for k in (lead, lead + ROUND))
            if one is not None and twin is not None:
                (mine,), (theirs,) = (n.op.moves(graph.site(n)) or () for n in (one, twin))
                far = (theirs.src_offset - mine.src_offset) * data.item(one.inputs[0])
                found.update(dict.fromkeys(self._ways(one.inputs[0], far)))
        found.update(dict.fromkeys(self._cut(loop.roll)))
        return tuple(found)

    def _ways(self, value: str, far: int) -> Iterator[tuple[int, int, int]]:
        data = self.cores[0].data
        if value in data:
            low = data.address(value)
            yield from ((low, low + data.bytes(value), way) for way in (far, -far))

    def _cut(self, roll: Roll) -> Iterator[tuple[int, int, int]]:
        """The same of tensors of which steps read chunks along another dimension than the first."""
        data = self.cores[0].data
        graph, steps = data.graph, (roll.steps[roll.lead], roll.steps[roll.lead + ROUND])
        if roll.counted is None or roll.counted.size == 1:
            return
        for one, twin in zip(*steps, strict=True):
            for value, far in _further(graph, graph.nodes[one], graph.nodes[twin]):
                if value in data:
                    low, size = data.address(value), data.bytes(value)
                    yield low, low + size, far * size // graph.type(value).size


def _further(graph: Graph, one: Node, twin: Node) -> Iterator[tuple[str, int]]:
    """Values of which a node of a round and that of the next read parts, and by how many elements these are
    apart: chunks along another dimension than the first."""
    places = [(graph.site(n).op.moves(graph.site(n)) or (), n.op.inner) for n in (one, twin)]
    (moves, inner), (others, further) = places
    for mine, theirs in zip(moves, others, strict=False):
        if mine.source is not None and one.inputs[mine.source] == twin.inputs[mine.source]:
            yield one.inputs[mine.source], theirs.src_offset - mine.src_offset
    for (place, begin, _, whole), (_, other, _, _) in zip(inner, further, strict=False):
        yield one.inputs[place], sum((b - a) * s for a, b, s in zip(begin, other, dense(whole), strict=True))


def same_places(
    topology: Topology, homes: Mapping[str, str], born: Mapping[str, int], loops: Sequence[RolledLoop]
) -> dict[str, str]:
    """Results that lie over others', those of a loop's second round over those of the first. In a loop no
    others do. What has no bytes of its own in both rounds lies where its owner does."""
    views, graph = topology.views, topology.graph
    inner = {o for one in loops for step in one.roll.steps for n in step for o in graph.nodes[n].outputs}
    kept = {v: home for v, home in homes.items() if v not in inner and home not in inner}
    twins = homes_together(loops)
    twins.update(pair for loop in loops for pair in _holding(views, loop, twins))
    for _ in by_depth(loops):
        twins = {v: twins.get(home, home) for v, home in twins.items()}   # of three steps' the first's place
    held = {views.root(v)[0] for v in born}      # a view of a value that no command names keeps its bytes
    alone = {v for v in twins if v in held and views.root(v) == (v, 0) and twins[v] in held}
    return kept | {v: twins[v] for v in alone if views.root(twins[v]) == (twins[v], 0)}


def _holding(views: Views, loop: RolledLoop, homes: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """What the last step makes, and what is handed to it is a part of; and where the same of a round lies."""
    for value, twin in loop.mirror.items():
        (whole, at), (other, there) = views.root(value), views.root(twin)
        if value in loop.passed and whole not in (value, *homes) and at == there and other != whole:
            yield whole, homes.get(other, other)


def same_borders(spread: Mapping[str, Spread], loops: Sequence[RolledLoop]) -> dict[str, str]:
    """What cores hand each other in the second round, by its name: in whose bytes it lies."""
    return {
        mine.name: theirs.name for value, home in homes_together(loops).items()
        if value in spread and home in spread
        for mine, theirs in zip(spread[value].borders, spread[home].borders, strict=False)
    }


def cleared(graph: Graph, loops: Sequence[RolledLoop]) -> tuple[str, ...]:
    """What loops stack whose rounds are read: parts of the steps that do not run are zeros."""
    return tuple(
        graph.nodes[n].outputs[0] for loop in loops if loop.roll.counted
        for n in loop.roll.movers if len(graph.nodes[n].inputs) > 1
    )


def together(lives: Sequence[Lifetime], homes: Mapping[str, str]) -> list[Lifetime]:
    """Lifetimes where some lie over others: those live as long as all of them do."""
    found: dict[str, Lifetime] = {}
    for life in lives:
        name = homes.get(life.name, life.name)
        known = found.get(name, life)
        found[name] = Lifetime(
            name, max(known.size, life.size), min(known.first, life.first), max(known.last, life.last)
        )
    return list(found.values())


def of_last_round(
    topology: Topology, loops: LoopCommands, values: Mapping[str, dict[str, Any]]
) -> dict[str, dict[str, Any]]:
    """Values as external memory has them when all rounds are done: what a round makes, and no tensor of all
    steps holds, is of the last round; what the last step reads as a part of what that one hands to it lies
    where it has gone on to."""
    found, graph = dict(values), topology.graph
    renamed: dict[str, list[str]] = {}    # values of inner rounds, by the names that they have as of the last
    for loop in (loop for some in by_depth(loops.loops) for loop in some):
        lead, steps = loop.roll.lead, loop.roll.steps
        moved = loops.moved(loop)
        for o in (o for n in steps[-1] for o in graph.nodes[n].outputs):
            far = next((moved[v] for v in topology.views.owners(o) if v in moved), 0)
            for name in (name for name in (o, *renamed.get(o, ())) if name in found):
                found[name] = {**found[name], "address": found[name]["address"] + far}
        own = [
            (k, o, name) for k in range(2 * ROUND) for n in steps[lead + k] for o in graph.nodes[n].outputs
            for name in (o, *renamed.get(o, ())) if name in found
        ]
        maker = {o: k for k, step in enumerate(steps) for n in step for o in graph.nodes[n].outputs}
        names = {name: loop.roll.later[name] for _, o, name in own if topology.views.root(o)[0] in maker}
        over = {home for _, home in _holding(topology.views, loop, loop.homes)}     # written by the last step
        for k, o, name in own:
            if name not in names:
                continue
            entry, root = found.pop(name), topology.views.root(o)[0]
            if loop.homes.get(root, root) in over:
                continue
            # what lies in what entered the round is written over by the round's last step
            if k < ROUND and maker[root] >= lead:
                found[names[name]] = {**entry, "owner": names.get(entry["owner"], entry["owner"])}
                renamed.setdefault(o, []).append(names[name])
    return found
