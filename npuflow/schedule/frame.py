"""Groups in their graph: members, geometry on every core, and the units of their parts."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod

import numpy as np

from npuflow.hw.target import Numerics
from npuflow.ir.graph import Graph, LoopCore, core_of, step_of
from npuflow.ir.op import OpContext
from npuflow.ir.space import Box, IterationDomain, elements
from npuflow.ir.views import Views, views_of
from npuflow.place.partition import is_npu, segments
from npuflow.schedule.columns import gathered
from npuflow.schedule.cut_dims import cut_dims
from npuflow.schedule.dense_rows import with_whole_rows
from npuflow.schedule.geometry import GroupWalk, Member, Stripe, hull
from npuflow.schedule.groups import Cut, FusionGroup
from npuflow.schedule.joined import (
    JoinedPart,
    Joins,
    copies_nothing,
    joined_values,
    places,
    whole_place,
    without_copies,
)
from npuflow.schedule.machine import Machine
from npuflow.schedule.model import Layer, describe, space_of
from npuflow.schedule.moves import moves_of, staging
from npuflow.schedule.partial import WHOLE, PartialRun
from npuflow.schedule.passage import Passage
from npuflow.schedule.shown import shown_twice
from npuflow.schedule.taken import over_operands
from npuflow.schedule.units import SlotUnit, in_windows, units_of


class Topology:
    """What groups must know of the graph around them, looked up once."""

    def __init__(self, graph: Graph, machine: Machine, numerics: Numerics, part: PartialRun = WHOLE) -> None:
        self.graph, self.machine, self.numerics, self.part = graph, machine, numerics, part
        self.readers: dict[str, list[int]] = {}
        self.maker: dict[str, int] = {}
        for index, node in enumerate(graph.nodes):
            for value in node.inputs:
                self.readers.setdefault(value, []).append(index)
            self.maker.update({o: index for o in node.outputs if o})
        self.moving = moves_of(graph)
        self._outputs = frozenset(graph.outputs)
        self._sites: dict[int, OpContext] = {}
        self._spaces: dict[int, IterationDomain] = {}
        self._needed: dict[tuple[int, ...], Sequence[str]] = {}
        self._touched: dict[tuple[int, ...], frozenset[str]] = {}
        self._members: dict[tuple[tuple[int, ...], frozenset[str], frozenset[str]], Member] = {}
        self._layers: dict[Layer, Layer] = {}
        self._passages: dict[object, Passage] = {}
        self._dims: dict[tuple[tuple[tuple[int, ...], ...], Cut], Mapping[str, int]] = {}

    def site(self, index: int) -> OpContext:
        if index not in self._sites:
            self._sites[index] = self.graph.site(self.graph.nodes[index])
        return self._sites[index]

    def space(self, index: int) -> IterationDomain:
        if index not in self._spaces:
            space = space_of(self.site(index), self.numerics)
            if cut := self.part.axes.get(index):
                axes = (replace(a, size=cut.get(a.name, a.size)) for a in space.axes)
                space = replace(space, axes=tuple(axes))
            self._spaces[index] = space
        return self._spaces[index]

    def extent(self, value: str) -> tuple[int, ...]:
        """How far a value is made."""
        shape, node = self.graph.type(value).shape, self.maker.get(value, -1)
        if node not in self.part.axes:
            return shape
        space, place = self.space(node), self.graph.nodes[node].outputs.index(value)
        return tuple(high for _, high in space.outputs[place].box(space.full))

    @cached_property
    def segment(self) -> dict[int, int]:
        return {n: k for k, part in enumerate(segments(self.graph)) for n in part.numbers}

    @cached_property
    def stretch(self) -> dict[int, tuple[int, int]]:
        """By node its segment, and which step of a loop it is of: nodes of several steps are in no group."""
        steps = step_of(self.graph)
        return {n: (segment, steps.get(n, 0)) for n, segment in self.segment.items()}

    @cached_property
    def core(self) -> dict[int, LoopCore]:
        """Of nodes of loops that one core runs beside others, this core; nothing where there are fewer cores
        than the graph was made for."""
        found, cores = core_of(self.graph), self.machine.compute.cores
        return found if all(one.core < cores for one in found.values()) else {}

    @cached_property
    def everything(self) -> list[int]:
        """All nodes as they run, the host's too."""
        return list(self.segment)

    @cached_property
    def order(self) -> list[int]:
        """Integer nodes as they run: segment by segment."""
        return [n for part in segments(self.graph) if part.kind == "npu" for n in part.numbers]

    @cached_property
    def place(self) -> dict[int, int]:
        """Of integer nodes in that order."""
        return {node: at for at, node in enumerate(self.order)}

    def needed(self, nodes: Collection[int]) -> Sequence[str]:
        """Values made by some nodes that others read, or that are results."""
        key = tuple(nodes)
        if key not in self._needed:
            members = set(key)
            self._needed[key] = [
                o for n in key for o in self.graph.nodes[n].outputs
                if o and (o in self._outputs or any(r not in members for r in self.readers.get(o, ())))
            ]
        return self._needed[key]

    def bytes(self, value: str) -> int:
        return prod(self.graph.type(value).shape) * np.dtype(self.graph.values[value].dtype).itemsize

    def wanted_in_data(self, value: str, kept: Collection[str]) -> bool:
        """Whether somebody looks for the value in external memory: the host, a mover, a
        reader that does not know of it. Who joins a value that is kept does so in local memory."""
        if value not in kept or value in self._outputs:
            return True
        return any(
            (r in self.moving and r not in self.joining) or not is_npu(self.graph.nodes[r])
            for r in self.readers.get(value, ())
        )

    @cached_property
    def joining(self) -> Collection[int]:
        """Nodes that move data, and may do so in local memory. None of them cuts a tensor of all steps: a
        plan has some steps alone, and the others' parts must be there, too. None shows all of a value that is
        wanted in external memory anyway, on several cores: that costs nothing there."""
        cut = {n for roll in self.graph.rolls for n in roll.movers}
        local = {i for i in self.moving.keys() - cut if self.site(i).op.local_space(self.site(i)) is not None}
        twice = self._twice(local).items()
        return local - {self.maker[o] for o, whole in twice if self.bytes(o) == self.bytes(whole)}

    @cached_property
    def makes_in_place(self) -> bool:
        """Whether parts may write into their place in a joined value. Not where values stay from run to run:
        commands over some of their rows have other boxes."""
        return not self.graph.state

    @cached_property
    def joins_rows(self) -> bool:
        """Whether one of them moves more than a single row."""
        return any(sum(n > 1 for n in self.site(i).out_shape) > 1 for i in self.joining)

    @cached_property
    def shown_twice(self) -> Mapping[str, str]:
        """Their results in bytes that are wanted, too; none on one core, which stores them in turn."""
        return self._twice(self.joining)

    def _twice(self, nodes: Collection[int]) -> dict[str, str]:
        several = self.machine.compute.of_one_inference.cores > 1
        return shown_twice(self.graph, self.views, self.readers, nodes) if several else {}

    def joins_local(self, index: int, made: Collection[int], kept: Collection[str] = ()) -> bool:
        """Whether a node that moves data may do so in local memory: what it reads is made by these nodes, or
        kept."""
        read = self.graph.nodes[index].inputs
        return index in self.joining and all(self.maker.get(v) in made or v in kept for v in read)

    @cached_property
    def views(self) -> Views:
        order = [(i, self.graph.nodes[i]) for i in self.order]
        return views_of(self.graph, [(i, n) for i, n in order if i in self.moving], self.moving)

    def staging(self, index: int, machine: Machine) -> int:
        """Bytes of each staging slot of a mover: those of its largest piece; hardly any
        where nothing is left to move."""
        moves = [m for n, m in enumerate(self.moving[index]) if (index, n) not in self.views.saved]
        return staging(moves, [np.dtype(o.dtype).itemsize for o in self.site(index).outputs], machine)

    def touched(self, nodes: tuple[int, ...]) -> frozenset[str]:
        """Values that some nodes read or make."""
        if nodes not in self._touched:
            found = (v for n in nodes for v in (*self.graph.nodes[n].inputs, *self.graph.nodes[n].outputs))
            self._touched[nodes] = frozenset(found)
        return self._touched[nodes]

    def member(self, nodes: tuple[int, ...], kept: Set[str], loaded: Set[str] = frozenset()) -> Member:
        """`kept`: values that have a buffer in local memory; `loaded`: those of them that come there from
        external memory."""
        touched = self.touched(nodes)
        key = nodes, frozenset(touched & kept), frozenset(touched & loaded)
        if key not in self._members:
            sites = tuple(self.site(n) for n in nodes)
            spaces = tuple(self.space(n) for n in nodes)
            layer = describe(sites, self.numerics, self.needed(nodes), key[1], spaces)
            layer = gathered(layer, self.machine.compute, self.machine.memory)
            if not self.graph.state:                # commands over some rows of these have other boxes
                reads = sites[0].inputs
                layer = with_whole_rows(
                    layer, self.machine, lambda r: (v := reads[int(r.key)]) is not None and v.id in loaded
                )
            # equal ones are one: what is looked up by them is found at once
            layer = self._layers.setdefault(layer, layer)
            self._members[key] = Member(nodes, sites, spaces, layer)
        return self._members[key]

    def dims(self, parts: tuple[tuple[int, ...], ...], cut: Cut) -> Mapping[str, int]:
        """By value the dimension that a cut of some parts' results over cores cuts (`cut_dims.py`)."""
        if (parts, cut) not in self._dims:
            members = [self.member(p, frozenset()) for p in parts]
            self._dims[parts, cut] = cut_dims(members, self.needed([n for p in parts for n in p]), cut)
        return self._dims[parts, cut]

    def passage(self, group: FusionGroup, kept: frozenset[str]) -> Passage:
        """Of all frames in this graph with the same parts, cuts and buffers."""
        nodes, touched = tuple(p.nodes for p in group.parts), kept & self.touched(group.nodes)
        key = nodes, group.strips, group.cores, group.held, touched
        if key not in self._passages:
            self._passages[key] = Passage()
        return self._passages[key]


@dataclass(frozen=True)
class Frame:
    """A group laid over its graph. `kept`: values that stay in local memory between groups; `sampled`: holds
    the strips that stand for all of them, where a search looks at some only."""

    topology: Topology
    group: FusionGroup
    kept: frozenset[str]
    sampled: Passage | None = None

    @cached_property
    def moves(self) -> bool:
        return self.group.parts[0].choice is None and self.group.nodes[0] in self.topology.moving

    @cached_property
    def cores(self) -> range:
        """The cores on which the group runs."""
        own, count = self.topology.core.get(self.group.nodes[0]), self.group.cores[1]
        return range(count) if own is None else range(own.core, own.core + count)

    @cached_property
    def unjoined(self) -> tuple[Member, ...]:
        """The parts, each value in a buffer of its own."""
        local = {v for v, _ in self.group.held} | self.kept
        graph = self.topology.graph
        made = {o for n in self.group.nodes for o in graph.nodes[n].outputs} if self.group.held else set()
        loaded = {v for v, _ in self.group.held} - made - self.kept
        return tuple(self.topology.member(p.nodes, local, loaded) for p in self.group.parts)

    @cached_property
    def members(self) -> tuple[Member, ...]:
        joins = self.joins
        return tuple(without_copies(m, joins) for m in self.unjoined) if joins else self.unjoined

    @cached_property
    def joins(self) -> Joins:
        """Values that lie in the buffer of another one: in their place in it, or over it."""
        if not self.topology.makes_in_place:
            return {}
        passage = self.passage
        if passage.joins is None:
            found: dict[str, JoinedPart] = {}
            if len(self.group.parts) > 1 and any(m.spaces[0].joins for m in self.unjoined):
                found = joined_values(self.unjoined, self.strips, dict(self.group.held), self.kept)
            graph, cut = self.topology.graph, any(n > 1 for _, n in self.group.strips)
            # rounds of a loop need the same buffers
            if not cut and not graph.rolls and any(graph.nodes[n].op.sums for n in self.group.nodes):
                found |= over_operands(self.unjoined, found, self.kept, self._gone)
            passage.joins = found
        return passage.joins

    def _gone(self, value: str) -> bool:
        """Whether no group behind this one reads a value. Only groups before it begin before it."""
        place, own = self.topology.place, self.group.nodes
        return all(r in own or place.get(r, -1) < place[own[0]] for r in self.topology.readers[value])

    def fills_itself(self, value: str) -> bool:
        """Whether all parts of a joined value are made in their place."""
        return any(value in m.outputs and copies_nothing(m.spaces[0]) for m in self.members)

    def owner(self, value: str) -> str:
        """The value in whose buffer a value lies."""
        place = whole_place(self.joins, value)
        return value if place is None else place.value

    def users(self, value: str) -> list[int]:
        """Parts that read or write a buffer: what lies in it, too."""
        mine = {value, *(v for v in self.joins if any(p.value == value for p in places(self.joins, v)))}
        return [
            p for p, m in enumerate(self.members)
            if not mine.isdisjoint(m.outputs) or any(v in mine for v, _ in m.inputs)
        ]

    @cached_property
    def results(self) -> dict[str, tuple[int, ...]]:
        return {v: self.topology.extent(v) for v in self.topology.needed(self.group.nodes)}

    @cached_property
    def walks(self) -> tuple[GroupWalk, ...]:
        g, rows = self.group, self.topology.part.rows
        every = self.unjoined, self.results, g.strips, g.cores, dict(g.held)
        return tuple(GroupWalk(*every, c, {}, rows, self.dims) for c in range(g.cores[1]))

    @cached_property
    def dims(self) -> Mapping[str, int]:
        """By value the dimension that cores cut, where that of the last result leads to it."""
        return self.topology.dims(tuple(p.nodes for p in self.group.parts), self.group.cores)

    def dim(self, value: str) -> int:
        """The dimension of a value that cores cut."""
        return self.dims.get(value, self.group.cores[0])

    @cached_property
    def passage(self) -> Passage:
        if self.sampled is not None:
            return self.sampled
        return self.topology.passage(self.group, self.kept)

    @property
    def strips(self) -> tuple[list[Stripe], ...]:
        if self.passage.strips is None:
            self.passage.strips = tuple(w.run() for w in self.walks)
        return self.passage.strips

    def walk_on(self, core: int) -> GroupWalk:
        return self.walks[core - self.cores[0]]

    def strips_on(self, core: int) -> list[Stripe]:
        return self.strips[core - self.cores[0]]

    @property
    def layers(self) -> tuple[Layer, ...]:
        """Each part's layer in the largest window of any strip and core."""
        passage = self.passage
        if passage.layers is None:
            passage.layers = in_windows(self.members, self.strips)
        return passage.layers

    @cached_property
    def units(self) -> tuple[list[SlotUnit], ...]:
        return tuple(
            units_of(layer, part.choice, member.layer) if part.choice is not None else []
            for layer, part, member in zip(self.layers, self.group.parts, self.members, strict=True)
        )

    @property
    def holds(self) -> Mapping[str, int]:
        """Bytes of each buffer of a held value."""
        passage = self.passage
        if passage.holds is None:
            found: dict[str, int] = {}
            for strip in (strip for strips in self.strips for strip in strips):
                for value, hold in strip.holds.items():
                    found[value] = max(found.get(value, 0), elements(hold.box) * self.item(value))
            passage.holds = found
        return passage.holds

    @property
    def slots(self) -> Mapping[str, int]:
        """How many slots the buffer of each held value has: a second one where strips need it."""
        passage = self.passage
        if passage.slots is None:
            turns = {v: 0 for v, count in self.group.held if count > 1}
            for strip in (strip for strips in self.strips for strip in strips):
                turns.update({v: max(k, strip.holds[v].slot) for v, k in turns.items() if v in strip.holds})
            passage.slots = {v: turns.get(v, 0) + 1 for v, _ in self.group.held}
        return passage.slots

    def item(self, value: str) -> int:
        return np.dtype(self.topology.graph.values[value].dtype).itemsize

    def there(self, value: str, core: int) -> Box | None:
        """What a core's buffer of a result surely contains when the group is done: halos of
        several strips may leave gaps."""
        strips = self.strips_on(core)
        holds = [s.holds[value] for s in strips if value in s.holds]
        if not holds:
            return None
        return holds[0].box if len(strips) == 1 else self.walk_on(core).own(value)

    def wants(self, value: str, core: int) -> Box | None:
        """What the parts on a core read of a value."""
        box: Box | None = None
        for strip in self.strips_on(core):
            for member, window in zip(self.members, strip.windows, strict=True):
                for name, ref in member.inputs:
                    if window is not None and name == value and elements(found := ref.operand.box(window)):
                        box = hull(box, found)
        return box
