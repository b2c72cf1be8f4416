"""The estimated cost of a group: its parts in their windows, what is loaded once,
what every strip moves again."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from math import prod

from npuflow.ir.space import Tile, elements
from npuflow.schedule import tuned
from npuflow.schedule.allocate import aligned
from npuflow.schedule.choice import Costs, TileChoice
from npuflow.schedule.cycles import box_transfer
from npuflow.schedule.frame import Frame, Topology
from npuflow.schedule.geometry import GroupWalk, Uncuttable, piece
from npuflow.schedule.groups import Cut, FusedOp, FusionGroup
from npuflow.schedule.machine import Machine
from npuflow.schedule.model import Layer
from npuflow.schedule.passage import Passage
from npuflow.schedule.units import units_of
from npuflow.search.tilings import Solution, TilingSearch

WASTE = Costs(*[0.0] * 12)


@dataclass(frozen=True)
class Scored:
    """A group with tilings, its costs, and the most local memory it holds at once."""

    group: FusionGroup
    costs: Costs
    used: int

    @property
    def score(self) -> float:
        """Cycles, with external bytes as what they cost a neighbour that would rather have the bus."""
        return self.costs.cycles + tuned.BUS_COST * self.costs.bus


@dataclass(eq=False)
class Costed:
    """Tilings of layers on one machine."""

    tilings: dict[tuple[Layer, bool, int, str | None], TilingSearch] = field(default_factory=dict)
    solutions: dict[tuple[tuple[Layer, bool, int, str | None], int], Solution | None] = field(
        default_factory=dict
    )


class Scorer:
    """Costs of groups of parts; equal parts in equal windows are tiled once. `known`: of the same machine;
    `resident`: nodes whose constants stay in local memory over all steps of a loop."""

    def __init__(
        self, topology: Topology, machine: Machine, level: int, known: Costed | None = None,
        resident: frozenset[int] = frozenset(),
    ) -> None:
        self.topology, self.machine, self.level, self.resident = topology, machine, level, resident
        self.known = known if known is not None else Costed()

    def score(
        self,
        parts: Sequence[tuple[int, ...]],
        strips: tuple[Cut, ...],
        cores: Cut,
        kept: frozenset[str],
        room: int,
    ) -> Scored | None:
        """The group of these parts, or None where it cannot be cut so or does not fit into `room` bytes."""
        frame = self.frame(parts, strips, cores, kept)
        return self.cost(frame, room) if frame is not None else None

    def frame(
        self, parts: Sequence[tuple[int, ...]], strips: tuple[Cut, ...], cores: Cut, kept: frozenset[str]
    ) -> Frame | None:
        """The group of these parts, not yet tiled; None where its operators cannot be cut so."""
        held = self._held(parts, kept)
        fused = tuple(FusedOp(p, None) for p in parts)
        group = FusionGroup(fused, WASTE, strips, cores, tuple((v, 1) for v in held))
        frame = Frame(self.topology, group, kept, Passage())
        if group.is_split and not all(m.can_split for m in frame.unjoined):
            return None
        if stores_again(self.topology, group.nodes, kept):
            return None
        return frame

    def _held(self, parts: Sequence[tuple[int, ...]], kept: Collection[str]) -> list[str]:
        """Values with buffers: made in one part and read in another, or read in several, or staying."""
        reads: dict[str, int] = {}
        made: set[str] = set()
        graph = self.topology.graph
        for nodes in parts:
            read = dict.fromkeys(
                v for n in nodes for v in graph.nodes[n].inputs if v and graph.values[v].const is None
            )
            own = {o for n in nodes for o in graph.nodes[n].outputs}
            for value in (v for v in read if v not in own):
                reads[value] = reads.get(value, 0) + 1
            made |= set(self.topology.needed(nodes))
        found = {v: None for v, n in reads.items() if v in made or (n > 1 and v not in kept)}
        found.update({v: None for nodes in parts for v in self.topology.needed(nodes) if v in kept})
        for nodes in parts:                      # results of one part are all held, or none
            outputs = self.topology.needed(nodes)
            joins = self.topology.makes_in_place and self.topology.space(nodes[0]).joins
            if len(outputs) > 1 or (joins and not made.isdisjoint(graph.nodes[nodes[0]].inputs)):
                found.update(dict.fromkeys(outputs))
        return list(found)

    def _budget(self, room: int) -> int:
        size = self.machine.memory.local_bytes
        return next((int(size * s) for s in tuned.BUDGETS if size * s <= room), 0)

    # --- one group
    def cost(self, frame: Frame, room: int) -> Scored | None:
        """The group with the tilings that fit into `room` bytes; None where none do."""
        group = frame.group
        count = prod(n for _, n in group.strips)
        try:
            sampled, weights = self._sampled(frame, count)
        except Uncuttable:
            return None
        if sampled is None:
            return None
        frame, group = sampled, sampled.group
        alive = self._alive(frame, count)
        room = self._budget(room)
        found: list[tuple[TileChoice, Costs]] = []
        resident = scratch = 0
        turns, layers = count > 1, frame.layers
        for p, layer in enumerate(layers):
            later = sum(_const_bytes(x) for x in layers[p + 1 :]) if turns else 0
            free = room - alive[p] - resident - later
            stays = turns or not self.resident.isdisjoint(group.parts[p].nodes)
            cut = frame.dim(frame.members[p].outputs[0]), group.cores[1]
            answer = self._part(layer, free, stays, cut)
            if answer is None and stays:
                answer, stays = self._part(layer, free, False, cut), False
            if answer is None:
                return None
            small = _const_bytes(layer) * tuned.AHEAD <= self.machine.memory.local_bytes
            ahead = (
                self._part(layer, free, True, cut)
                if small and not stays and weights[p] == 1
                else None
            )
            if ahead is not None and ahead.costs.cycles < answer.costs.cycles - answer.costs.early:
                answer, stays = ahead, True
            if turns:
                own = self._scratch(layer, answer.choice)
                resident, scratch = resident + answer.choice.local_bytes - own, max(scratch, own)
            found.append(
                (answer.choice, self._times(layer, answer.costs, weights[p], stays, cut, turns))
            )
        used = (
            alive[0] + resident + scratch
            if turns
            else max(a + c.local_bytes for a, (c, _) in zip(alive, found, strict=True))
        )
        if used > room:
            return None
        costs = self._sum(frame, [c for _, c in found], count)
        moved = self._moved(frame, costs, [c for _, c in found])
        parts = tuple(FusedOp(q.nodes, c, m) for q, (c, _), m in zip(group.parts, found, moved, strict=True))
        return Scored(replace(group, parts=parts, costs=costs), costs, used)

    def _apart(self, layer: Layer, cores: Cut) -> str | None:
        """The axis of a layer that cores cut between them."""
        maps = layer.space.outputs[0].maps
        return maps[cores[0]].axis if cores[1] > 1 and cores[0] < len(maps) else None

    def _part(self, layer: Layer, free: int, stays: bool, cut: Cut) -> Solution | None:
        budget, cores = self._budget(free) if free > 0 else 0, cut[1]
        if not budget:
            return None
        together, apart = (cores if self.machine.dma.multicast else 1), self._apart(layer, cut)
        key = layer, stays, cores, apart
        tilings, solutions = self.known.tilings, self.known.solutions
        if key not in tilings:
            memory = self.machine.memory
            own = replace(
                memory,
                external_bandwidth=memory.external_bandwidth / cores,
                shared_bandwidth=memory.shared_bandwidth / cores,
            )
            one = replace(self.machine, memory=own, together=together, apart=apart)
            other = tilings.get((layer, not stays, cores, apart))
            level = min(self.level, tuned.PART_LEVEL)
            tilings[key] = TilingSearch(layer, one, level, stays, drawn=other)
        if (key, budget) not in solutions:
            solutions[key, budget] = tilings[key].best(budget)
        return solutions[key, budget]

    def _times(self, layer: Layer, c: Costs, weight: float, stays: bool, cut: Cut, turns: bool) -> Costs:
        """All strips of a part; constants that stay are loaded once."""
        cores, apart = cut[1], self._apart(layer, cut)
        size = float(_const_bytes(layer)) if stays else 0.0
        if self.machine.dma.multicast:
            size -= _bytes_along(layer, apart, False) * (1 - 1 / cores) if stays else 0.0
        once = size * cores / self.machine.memory.external_bandwidth
        front = (self.machine.dma.setup_cycles + self.machine.compute.command_cycles) * 2 if stays else 0
        first = once + front if not turns else 0.0
        return Costs(
            c.cycles * weight,
            c.load * weight + once + front,
            c.store * weight,
            c.tensor * weight,
            c.vector * weight,
            c.bus * weight + once,
            c.head + first,
            c.early * weight + first,
            c.tail,
            c.bytes * weight + size,
            c.bound_cycles,
            c.bound_bytes,
            c.compute,
            c.const,
        )

    def _scratch(self, layer: Layer, choice: TileChoice) -> int:
        units = units_of(layer, choice, layer)
        return sum(
            aligned(u.size, self.machine.memory.slot_align) * u.slots
            for u in units
            if u.home in ("acc", "inner")
        )

    def _sampled(self, frame: Frame, count: int) -> tuple[Frame | None, list[float]]:
        """The frame with the windows of its first strips, and how many of the largest
        window each part does in all."""
        group = frame.group
        held_at_most = {v: min(count, 2) for v, _ in group.held}
        walk = GroupWalk(
            frame.unjoined, frame.results, group.strips, group.cores, held_at_most, self._busiest(frame),
            dims=frame.dims,
        )
        strips = walk.run(min(count, 3))
        if count > 1:
            held: dict[str, int] = {}
            for value, _ in group.held:
                holds = [s.holds[value] for s in strips if value in s.holds]
                strip = max((elements(h.box) for h in holds), default=0)
                slots = max((h.slot for h in holds), default=0) + 1
                whole = prod(self.topology.graph.type(value).shape) // group.cores[1]
                held[value] = 1 if value in frame.kept or whole <= slots * strip else 2
            group = replace(group, held=tuple(held.items()))
            frame = Frame(self.topology, group, frame.kept, Passage())
        # the search looks at the first strips of one core only
        frame.passage.strips = (strips,)
        weights = []
        for p in range(len(frame.unjoined)):
            sizes = [_volume(w) for s in strips if (w := s.windows[p]) is not None]
            if not sizes:
                return None, []
            steady = sizes[-1] if len(sizes) == len(strips) else max(sizes)
            weights.append((sum(sizes) + (count - len(strips)) * steady) / max(sizes))
        return frame, weights

    @staticmethod
    def _busiest(frame: Frame) -> int:
        """The core with the largest piece of the results; of equal ones an inner one,
        which has borders on both sides."""
        count = frame.group.cores[1]
        if count < 3:
            return 0
        sizes = [s[d] for v, s in frame.results.items() if (d := frame.dim(v)) < len(s)]
        inner = range(1, count - 1)
        pieces = [
            b - a for a, b in (piece((0, min(sizes, default=0)), count, core, 1) for core in range(count))
        ]
        return max([*inner, 0, count - 1], key=lambda core: pieces[core])

    def _alive(self, frame: Frame, count: int) -> list[int]:
        """Bytes of held values while each part runs."""
        align, members = self.machine.memory.slot_align, frame.members
        sizes: dict[str, int] = {}
        for value, slots in ((v, n) for v, n in frame.group.held if v not in frame.joins):
            if count > 1 and slots == 1:
                whole = prod(self.topology.graph.type(value).shape) * frame.item(value)
                sizes[value] = aligned(
                    whole // frame.group.cores[1] + whole // 8 * (frame.group.cores[1] > 1), align
                )
            else:
                sizes[value] = aligned(frame.holds.get(value, 0), align) * frame.slots[value]
        if count > 1:
            return [sum(sizes.values())] * len(members)
        alive = [0] * len(members)
        for value in sizes:
            uses = frame.users(value)
            made = any(value in m.outputs for m in members)
            last = len(members) - 1 if value in frame.kept else max(uses)
            for p in range(min(uses) if made else 0, last + 1):
                alive[p] += sizes[value]
        return alive

    def _moved(self, frame: Frame, whole: Costs, parts: Sequence[Costs]) -> list[Costs]:
        """Each part's costs, with the group's own loads before the first and its stores behind the last."""
        found = [
            replace(c, compute=max(c.tensor, c.vector, c.cycles - c.early), const=float(_const_bytes(layer)))
            for c, layer in zip(parts, frame.layers, strict=True)
        ]
        load, store = (getattr(whole, n) - sum(getattr(c, n) for c in parts) for n in ("load", "store"))
        found[0] = replace(found[0], load=found[0].load + load, head=found[0].head + load)
        found[-1] = replace(found[-1], store=found[-1].store + store)
        return found

    def _transfers(self, value: str, frame: Frame, count: int) -> tuple[float, float]:
        """(cycles of set-up, bytes in whole bursts) of a value's boxes that all strips load or store, on the
        core that is looked at."""
        shape, item = self.topology.graph.type(value).shape, frame.item(value)
        holds = [s.holds[value] for s in frame.strips[0] if value in s.holds]
        moved = [box_transfer(shape, h.fresh, item, self.machine) for h in holds if h.fresh is not None]
        if not moved:
            return 0.0, 0.0
        more = count - len(frame.strips[0])              # as the last one of those that are looked at
        return (
            float(sum(m.front for m in moved) + more * moved[-1].front),
            float(sum(m.bytes for m in moved) + more * moved[-1].bytes),
        )

    def _copied(self, value: str, frame: Frame) -> int:
        """Elements that a strip has of a value from the strip before."""
        holds = [s.holds[value] for s in frame.strips[0] if value in s.holds]
        return elements(holds[-1].copied) if holds and holds[-1].copied is not None else 0

    def _sum(self, frame: Frame, parts: Sequence[Costs], count: int) -> Costs:
        c, cores = self.machine.compute, frame.group.cores[1]
        width, outside = self.machine.activation_width / cores, 0.0 if self.machine.inside else 1.0
        load, store, bus, amount = (
            sum(getattr(x, n) for x in parts) for n in ("load", "store", "bus", "bytes")
        )
        tensor, vector = sum(x.tensor for x in parts), sum(x.vector for x in parts)
        for value, _ in frame.group.held:
            made = any(value in m.outputs for m in frame.members)
            front, size = self._transfers(value, frame, count)
            if not made and value not in frame.kept:
                load, bus, amount = load + front + size / width, bus + size / width, amount + outside * size
            if made and value in frame.results and self.topology.wanted_in_data(value, frame.kept):
                store, bus, amount = store + front + size / width, bus + size / width, amount + outside * size
            if copied := self._copied(value, frame):
                vector += (copied / c.vector_lanes + c.command_cycles) * (count - 1)
        inside = sum(max(x.tensor, x.vector, x.cycles - x.early) for x in parts)
        lead, last = parts[0], parts[-1]
        cycles = max(inside, load + lead.tail * 0.5, store, bus, tensor, vector) + 0.0
        return Costs(
            cycles, load, store, tensor, vector, bus, lead.head, lead.early, last.tail, amount * cores,
            sum(x.bound_cycles for x in parts) / cores, sum(x.bound_bytes for x in parts), inside,
            float(sum(_const_bytes(x) for x in frame.layers)),
        )


def stores_again(topology: Topology, nodes: Sequence[int], kept: Collection[str]) -> bool:
    """Whether a group of these nodes stores anything that lies in the bytes of a larger value, and is or is
    part of what Slices make in local memory: there, or in an earlier group from which it stays. All of the
    larger value is in external memory, too, and another core might store or load it at the same time."""
    twice = topology.shown_twice
    local = {v for v in twice if v in kept or topology.maker[v] in nodes}
    return bool(local) and any(
        topology.wanted_in_data(v, kept) and not local.isdisjoint((v, *topology.views.owners(v)))
        for v in topology.needed(nodes)
    )


def _const_bytes(layer: Layer) -> int:
    return layer.const_bytes


def _bytes_along(layer: Layer, axis: str | None, cut: bool) -> int:
    """Bytes of constants that an axis cuts, or of those that it does not."""
    refs = [r for s in layer.streams if s.home == "const" and (axis in s.axes) == cut for r in s.refs]
    return sum(prod(r.operand.shape) * r.itemsize for r in refs)


def _volume(tile: Tile) -> int:
    return prod(b - a for a, b in tile.values())

