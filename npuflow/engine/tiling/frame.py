"""Groups in their graph: members, geometry on every core, units, and where each lies in local memory over time."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod

import numpy as np

from npuflow.base.errors import TargetError
from npuflow.engine.allocate import Layout, Life, aligned, check_layout
from npuflow.engine.arrange import Method, arrange
from npuflow.engine.partition import is_npu, segments
from npuflow.engine.tiling.ahead import go_round
from npuflow.engine.tiling.borders import spreads
from npuflow.engine.tiling.columns import gathered
from npuflow.engine.tiling.cost import Machine
from npuflow.engine.tiling.geometry import Member, Strip, Walk, hull
from npuflow.engine.tiling.groups import Group
from npuflow.engine.tiling.model import Layer, describe, space_of
from npuflow.engine.tiling.moves import piece_bytes
from npuflow.engine.tiling.units import Unit, units_of, windowed
from npuflow.engine.tiling.views import Views, views_of
from npuflow.hw.target import Numerics
from npuflow.ir.graph import Graph
from npuflow.ir.op import Move, Site
from npuflow.ir.space import Box, Space, elements

LOOK = 1 << 30                            # parts ahead of its own that a constant may come to local memory
WIDE = 0.85                               # of local memory may be taken by constants that need not be there at once


class Topology:
    """What groups must know of the graph around them, looked up once."""

    def __init__(self, graph: Graph, machine: Machine, numerics: Numerics) -> None:
        self.graph, self.machine, self.numerics = graph, machine, numerics
        self.readers: dict[str, list[int]] = {}
        self.maker: dict[str, int] = {}
        for index, node in enumerate(graph.nodes):
            for value in node.inputs:
                self.readers.setdefault(value, []).append(index)
            self.maker.update({o: index for o in node.outputs if o})
        self.moving = moves_of(graph)
        self._outputs = frozenset(graph.outputs)
        self._sites: dict[int, Site] = {}
        self._spaces: dict[int, Space] = {}
        self._members: dict[tuple[tuple[int, ...], frozenset[str]], Member] = {}

    def site(self, index: int) -> Site:
        if index not in self._sites:
            self._sites[index] = self.graph.site(self.graph.nodes[index])
        return self._sites[index]

    def space(self, index: int) -> Space:
        if index not in self._spaces:
            self._spaces[index] = space_of(self.site(index), self.numerics)
        return self._spaces[index]

    @cached_property
    def segment(self) -> dict[int, int]:
        index = {id(n): i for i, n in enumerate(self.graph.nodes)}
        return {index[id(n)]: k for k, part in enumerate(segments(self.graph)) for n in part.nodes}

    @cached_property
    def order(self) -> list[int]:
        """Integer nodes as they run: segment by segment."""
        index = {id(n): i for i, n in enumerate(self.graph.nodes)}
        return [index[id(n)] for part in segments(self.graph) if part.kind == "npu" for n in part.nodes]

    def needed(self, nodes: Collection[int]) -> list[str]:
        """Values made by some nodes that others read, or that are results."""
        members = set(nodes)
        return [
            o for n in nodes for o in self.graph.nodes[n].outputs
            if o and (o in self._outputs or any(r not in members for r in self.readers.get(o, ())))
        ]  # fmt: skip

    def bytes(self, value: str) -> int:
        return prod(self.graph.type(value).shape) * np.dtype(self.graph.values[value].dtype).itemsize

    def wanted_in_data(self, value: str, kept: Collection[str]) -> bool:
        """Whether somebody looks for the value in external memory: the host, a mover, a reader that is not told of it."""
        if value not in kept or value in self._outputs:
            return True
        return any(r in self.moving or not is_npu(self.graph.nodes[r]) for r in self.readers.get(value, ()))

    @cached_property
    def views(self) -> Views:
        order = [(i, self.graph.nodes[i]) for i in self.order]
        return views_of(self.graph, [(i, n) for i, n in order if i in self.moving], self.moving)

    def staging(self, index: int, machine: Machine) -> int:
        """Bytes of each staging slot of a mover: those of its largest piece; hardly any where nothing is left to move."""
        moves = [m for n, m in enumerate(self.moving[index]) if (index, n) not in self.views.saved]
        outputs = self.site(index).outputs
        return max((piece_bytes(m, np.dtype(outputs[m.output].dtype).itemsize, machine) for m in moves), default=1)

    def member(self, nodes: tuple[int, ...], kept: Collection[str]) -> Member:
        touched = {v for n in nodes for v in (*self.graph.nodes[n].inputs, *self.graph.nodes[n].outputs)}
        key = nodes, frozenset(touched & set(kept))
        if key not in self._members:
            sites = tuple(self.site(n) for n in nodes)
            layer = describe(sites, self.numerics, self.needed(nodes), key[1])
            layer = gathered(layer, self.machine.compute, self.machine.memory)
            self._members[key] = Member(nodes, sites, tuple(self.space(n) for n in nodes), layer)
        return self._members[key]


def moves_of(graph: Graph) -> dict[int, tuple[Move, ...]]:
    """Moves of every integer node that only moves data."""
    found = {}
    for index, node in enumerate(graph.nodes):
        if is_npu(node):
            moves = node.op.moves(graph.site(node))
            if moves is not None:
                found[index] = moves
    return found


@dataclass(frozen=True)
class Frame:
    """A group laid over its graph. `kept`: values that stay in local memory between groups."""

    topology: Topology
    group: Group
    kept: frozenset[str]

    @cached_property
    def moves(self) -> bool:
        return self.group.parts[0].choice is None and self.group.nodes[0] in self.topology.moving

    @cached_property
    def members(self) -> tuple[Member, ...]:
        local = {v for v, _ in self.group.held} | self.kept
        return tuple(self.topology.member(p.nodes, local) for p in self.group.parts)

    @cached_property
    def results(self) -> dict[str, tuple[int, ...]]:
        return {v: self.topology.graph.type(v).shape for v in self.topology.needed(self.group.nodes)}

    @cached_property
    def walks(self) -> tuple[Walk, ...]:
        g = self.group
        return tuple(Walk(self.members, self.results, g.strips, g.cores, dict(g.held), c) for c in range(g.cores[1]))

    @cached_property
    def strips(self) -> tuple[list[Strip], ...]:
        return tuple(w.run() for w in self.walks)

    @cached_property
    def layers(self) -> tuple[Layer, ...]:
        """Each part's layer in the largest window of any strip and core."""
        found = []
        for p, member in enumerate(self.members):
            windows = [w for strips in self.strips for s in strips if (w := s.windows[p]) is not None]
            axes = {a.name: max(w[a.name][1] - w[a.name][0] for w in windows) for a in member.layer.axes} if windows else {}
            found.append(windowed(member.layer, {a: (0, n) for a, n in axes.items()}) if windows else member.layer)
        return tuple(found)

    @cached_property
    def units(self) -> tuple[list[Unit], ...]:
        return tuple(
            units_of(layer, part.choice, member.layer) if part.choice is not None else []
            for layer, part, member in zip(self.layers, self.group.parts, self.members, strict=True)
        )

    @cached_property
    def holds(self) -> dict[str, int]:
        """Bytes of each buffer of a held value."""
        found: dict[str, int] = {}
        for strips in self.strips:
            for strip in strips:
                for value, hold in strip.holds.items():
                    found[value] = max(found.get(value, 0), elements(hold.box) * self.item(value))
        return found

    def item(self, value: str) -> int:
        return np.dtype(self.topology.graph.values[value].dtype).itemsize

    def there(self, value: str, core: int) -> Box | None:
        """What a core's buffer of a result surely contains when the group is done: halos of several strips may leave gaps."""
        holds = [s.holds[value] for s in self.strips[core] if value in s.holds]
        if not holds:
            return None
        return holds[0].box if len(self.strips[core]) == 1 else self.walks[core].own(value)

    def wants(self, value: str, core: int) -> Box | None:
        """What the parts on a core read of a value."""
        box: Box | None = None
        for strip in self.strips[core]:
            for member, window in zip(self.members, strip.windows, strict=True):
                for name, ref in member.inputs:
                    if window is not None and name == value and elements(found := ref.operand.box(window)):
                        box = hull(box, found)
        return box


@dataclass(frozen=True)
class Local:
    """Local memory over the whole program: lives by item, and their addresses."""

    lives: tuple[Life, ...]
    layout: Layout

    def slots(self, name: str, count: int) -> list[int]:
        return [self.layout.addresses[f"{name}/{k}"] for k in range(count)]

    @property
    def total(self) -> int:
        return self.layout.total


def lay_local(
    frames: Sequence[Frame], kept: Collection[str], machine: Machine, look: int = LOOK, method: Method = "greedy"
) -> Local:
    """Addresses for all that local memory holds at any time; constants come early where there is room."""
    lives, movable = _lives(frames, kept, machine)
    limit, align = machine.memory.local_bytes, machine.memory.slot_align
    base = arrange(lives, align, method)
    if base.total > limit:
        raise TargetError(
            f"{base.total} bytes of local memory are needed at once, there are {limit}: {base.total - limit} too few",
            because=f"{base.bound} bytes are alive at once in the worst step", code="does-not-fit",
        )  # fmt: skip
    best, chosen = base, list(lives)
    ring = go_round(lives, movable, limit, align, method) if look else None
    if ring is not None:
        chosen, best = ring
    for share in (1.0, 0.9, 0.75, 0.5) if look and ring is None else ():
        early = _early(lives, movable, int(limit * share), align, look)
        layout = arrange(early, align, method)
        if layout.total <= limit:
            best, chosen = layout, early
            break
    check_layout(chosen, best.addresses, limit, align)
    return Local(tuple(chosen), best)


def widened(frames: Sequence[Frame], kept: Collection[str], machine: Machine) -> list[Group]:
    """Constants get a slot for every tile where there is room: they come in early, and none comes in twice."""
    lives, _ = _lives(frames, kept, machine)
    align = machine.memory.slot_align
    use = [0] * (max((v.last for v in lives), default=0) + 1)
    for v in lives:
        for t in range(v.first, v.last + 1):
            use[t] += aligned(v.size, align)
    found, now = [], 0
    for frame in frames:
        if frame.moves:
            found.append(frame.group)
            now += 1
            continue
        parts, moments = list(frame.group.parts), _moments(frame, now)
        for p, (layer, part) in enumerate(zip(frame.layers, parts, strict=True)):
            assert part.choice is not None
            sizes = dict(part.choice.sizes)
            slots = tuple(
                prod(-(-layer.space.axis(a).size // sizes[a]) for a in s.axes) if s.home == "const" else n
                for s, n in zip(layer.streams, part.choice.slots, strict=True)
            )
            if slots == part.choice.slots:
                continue
            wider = replace(part.choice, slots=slots)
            more, less = (
                sum(aligned(u.size, align) * u.slots for u in units_of(layer, c, frame.members[p].layer))
                for c in (wider, part.choice)
            )
            if use[moments[p]] + more - less <= WIDE * machine.memory.local_bytes:
                use[moments[p]] += more - less
                parts[p] = replace(part, choice=replace(wider, local_bytes=part.choice.local_bytes + more - less))
        found.append(replace(frame.group, parts=tuple(parts)))
        now = moments[-1] + 1
    return found


def _early(lives: Sequence[Life], movable: Mapping[str, int], cap: int, align: int, look: int) -> list[Life]:
    """Constants live longer to the front, nearest first, as long as the sum of all lives stays under the cap."""
    use = [0] * (max((v.last for v in lives), default=0) + 1)
    for v in lives:
        for t in range(v.first, v.last + 1):
            use[t] += aligned(v.size, align)
    found = {v.name: v for v in lives}
    for name in sorted(movable, key=lambda n: (found[n].first, n)):
        life = found[name]
        first, size = life.first, aligned(life.size, align)
        while first > max(movable[name], life.first - look) and use[first - 1] + size <= cap:
            first -= 1
            use[first] += size
        found[name] = replace(life, first=first)
    return [found[v.name] for v in lives]


def _lives(frames: Sequence[Frame], kept: Collection[str], machine: Machine) -> tuple[list[Life], dict[str, int]]:
    """(lives, constants that may come earlier -> the first moment of their segment)."""
    lives: list[Life] = []
    movable: dict[str, int] = {}
    spans: dict[str, list[int]] = {}
    now, align, segment, start = 0, machine.memory.slot_align, -1, 0
    for g, frame in enumerate(frames):
        own = frame.topology.segment[frame.group.nodes[0]]
        if own != segment:
            segment, start = own, now
        if frame.moves:
            lives += [Life(f"{g}.move/{k}", frame.topology.staging(frame.group.nodes[0], machine), now, now) for k in range(2)]
            now += 1
            continue
        at = _moments(frame, now)
        for value in frame.holds:
            if value in kept:
                spans.setdefault(value, [at[0], at[0]])
        for p, member in enumerate(frame.members):
            for value in {v for v, _ in member.inputs} | set(member.outputs):
                if value in kept:
                    span = spans.setdefault(value, [at[p], at[p]])
                    span[0], span[1] = min(span[0], at[p]), max(span[1], at[p])
        lives += _held(frame, g, at, kept)
        for name, size, moment, fixed in _parts(frame, g, at, align):
            lives.append(Life(name, size, moment, moment))
            if not fixed:
                movable[name] = start
        now = at[-1] + 1
    for value, spread in sorted(spreads(frames, kept, machine.compute.cores).items()):
        size = max((elements(b) for b in spread.boxes if b is not None), default=0) * frames[spread.maker].item(value)
        lives.append(Life(f"kept.{value}/0", max(1, size), *spans[value]))
    return lives, movable


def _moments(frame: Frame, now: int) -> list[int]:
    """When each part runs: all at once when they take turns strip by strip."""
    turns = len(frame.strips[0]) > 1
    return [now + (0 if turns else p) for p in range(len(frame.members))]


def _held(frame: Frame, g: int, at: Sequence[int], kept: Collection[str]) -> Iterator[Life]:
    for value, slots in frame.group.held:
        if value in kept or value not in frame.holds:
            continue
        uses = [at[p] for p, m in enumerate(frame.members) if value in m.outputs or any(value == v for v, _ in m.inputs)]
        made = any(value in m.outputs for m in frame.members)
        for k in range(slots):
            yield Life(f"{g}.{value}/{k}", max(1, frame.holds[value]), min(uses) if made else at[0], max(uses))


def _parts(frame: Frame, g: int, at: Sequence[int], align: int) -> Iterator[tuple[str, int, int, bool]]:
    """(name, bytes, moment, whether it cannot come early) of every slot; turns share one scratch area for sums."""
    turns = len(frame.strips[0]) > 1
    scratch = 0
    for p, units in enumerate(frame.units):
        own = 0
        for u, unit in enumerate(units):
            if turns and unit.home in ("acc", "inner"):
                own += aligned(unit.size, align) * unit.slots
                continue
            for k in range(unit.slots):
                yield f"{g}.{p}.{u}/{k}", max(1, unit.size), at[p], unit.home != "const"
        scratch = max(scratch, own)
    if scratch:
        yield f"{g}.scratch/0", scratch, at[0], True


def scratch_offsets(units: Sequence[Unit], align: int) -> list[int]:
    """Where the units of a part that share the scratch area begin in it."""
    found, at = [], 0
    for unit in units:
        found.append(at)
        if unit.home in ("acc", "inner"):
            at += aligned(unit.size, align) * unit.slots
    return found
