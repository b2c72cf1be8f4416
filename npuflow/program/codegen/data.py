"""Where integer tensors live in DATA: lifetimes, addresses, who has touched which bytes, and which stay."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from npuflow.base.errors import FitError
from npuflow.hw.target import Memory
from npuflow.ir.graph import Graph
from npuflow.ir.moves import reach
from npuflow.ir.space import DimMap, Interval, elements
from npuflow.ir.views import Views
from npuflow.program.codegen.commands import DataRange
from npuflow.program.meta import WORD
from npuflow.program.repeats import INDEXED
from npuflow.schedule.accesses import merge
from npuflow.schedule.allocate import Layout, Lifetime, check_layout
from npuflow.schedule.arrange import Method, arrange
from npuflow.schedule.build import in_turn
from npuflow.schedule.frame import Frame, Topology
from npuflow.schedule.geometry import Member, Spread
from npuflow.schedule.jobs import Places
from npuflow.schedule.model import Ref
from npuflow.schedule.partial import ValidPart
from npuflow.schedule.rolled import read_whole
from npuflow.search.plan import TilingPlan


class DataStorage:
    """Storage of every integer value, opened in program order so that reused bytes are waited for."""

    def __init__(
        self, views: Views, layout: Layout, lives: Sequence[Lifetime], homes: Mapping[str, str] | None = None
    ) -> None:
        self._views, self.layout, self.lives, self.homes = views, layout, tuple(lives), dict(homes or {})
        self._storages = {v.name: DataRange(layout.addresses[v.name], v.size) for v in lives}
        # of values, by how many bytes they lie further than there; see `generate.py`
        self.moved: Mapping[str, int] = {}
        self._whole = read_whole(self.graph, views)
        by_start = sorted(lives, key=lambda v: v.first)
        self._older: dict[str, list[str]] = {}
        for i, life in enumerate(by_start):
            a = layout.addresses[life.name]
            self._older[life.name] = [
                o.name
                for o in by_start[:i]
                if o.last < life.first
                and layout.addresses[o.name] < a + life.size
                and a < layout.addresses[o.name] + o.size
            ]

    def of(self, value_id: str) -> tuple[DataRange, int]:
        """Storage and byte address of a value, or of a border between cores by its name."""
        root, offset = self._root(value_id)
        storage = self._storages[root]
        return storage, storage.address + offset + self._further(value_id)

    def _further(self, value_id: str) -> int:
        """By how much a value lies further: what is a part of another one goes with it."""
        if not self.moved:
            return 0
        known = (value_id, *self._views.owners(value_id))
        return next((self.moved[value] for value in known if value in self.moved), 0)

    def _root(self, value_id: str) -> tuple[str, int]:
        root, offset = self._views.root(value_id)
        return self.homes.get(root, root), offset

    @property
    def graph(self) -> Graph:
        return self._views.graph

    def bytes(self, value_id: str) -> int:
        return self._views.bytes(value_id)

    def item(self, value_id: str) -> int:
        return self._views.item(value_id)

    def seen_as(self, value_id: str) -> str:
        """The value whose boxes identify an access; of a result in place, the value that owns its bytes."""
        return self.homes.get(value_id, value_id)

    def address(self, value_id: str) -> int:
        return self.of(value_id)[1]

    def cut(self, value_id: str) -> Interval | None:
        """First and last byte of the tensor of all steps that a value is a part of, where a load of it waits
        for that whole tensor; None of others."""
        root = self._whole.get(value_id)
        if root is None:
            return None
        low = self.address(root)
        return low, low + self.bytes(root)

    def open(self, value_id: str) -> tuple[DataRange, int]:
        """As `of`, for writing: the first write waits for what was done to the bytes before."""
        storage, address = self.of(value_id)
        if not storage.opened:
            storage.opened = True
            for name in self._older[self._root(value_id)[0]]:
                merge(storage.before, self._storages[name].last)
        return storage, address

    def places(self) -> Places:
        """Of all values, and of borders, as a schedule asks for them."""
        whole = {v: (self._views.root(v)[0], self.address(v)) for v in self._views.graph.values if v in self}
        names = {v.name: (v.name, self.layout.addresses[v.name]) for v in self.lives if v.name not in whole}
        names |= {
            name: (home, self.layout.addresses[home]) for name, home in self.homes.items()
            if name not in whole and home in self.layout.addresses
        }
        cuts = {v: cut for v in self._whole if v in self and (cut := self.cut(v)) is not None}
        return Places({**whole, **names}, self._views.saved, cuts)

    def __contains__(self, value_id: str) -> bool:
        return self._root(value_id)[0] in self._storages


def lay_out(
    views: Views, born: Mapping[str, int], dies: Mapping[str, int], borders: Sequence[Lifetime],
    memory: Memory,
    method: Method = "greedy", homes: Mapping[str, str] | None = None,
) -> tuple[list[Lifetime], Layout]:
    """Addresses for all values, checked by the independent sweep; refused with numbers
    when external memory is too small.
    `homes`: results that take over another value's bytes."""
    spans: dict[str, list[int]] = {}
    for value_id, first in born.items():
        root, _ = views.root(value_id)
        root = (homes or {}).get(root, root)
        span = spans.setdefault(root, [first, dies.get(value_id, first)])
        span[0], span[1] = min(span[0], first), max(span[1], dies.get(value_id, first))
    lives = [Lifetime(name, max(1, views.bytes(name)), a, b) for name, (a, b) in spans.items()]
    lives += borders
    layout = arrange(lives, memory.burst, method)
    if layout.total > memory.external_bytes:
        raise FitError(
            f"activations need {layout.total} bytes of external memory, the target has "
            f"{memory.external_bytes}:"
            f" {layout.total - memory.external_bytes} too few",
            because=f"{layout.bound} bytes are live at once in the worst step",
            hint=f"memory.external_bytes >= {layout.total}; a smaller input; fewer activation bits",
            code="NF-FIT-001",
        )
    check_layout(lives, layout.addresses, memory.external_bytes, memory.burst)
    return lives, layout


def values_in_data(graph: Graph, frames: Sequence[Frame]) -> frozenset[str]:
    """Values that live in external memory: all but those that only local memory ever holds."""
    gone: set[str] = set()
    for frame in frames:
        if frame.moves:
            continue
        for n in frame.group.nodes:
            for o in graph.nodes[n].outputs:
                if o and (o not in frame.results or not frame.topology.wanted_in_data(o, frame.kept)):
                    gone.add(o)
    return frozenset(v for v in graph.values if v not in gone)


def writers_of(topology: Topology, frames: Sequence[Frame]) -> dict[str, int]:
    """Which node's stores complete each value: of a view, the last one that stored
    into its own bytes, if any did."""
    views, written = topology.views, dict[str, int]()
    # bytes that values share, by owner -> (first, end, node)
    stored: dict[str, list[tuple[int, int, int]]] = {}
    for _, frame in in_turn(frames):
        for number in frame.group.nodes:
            moves = topology.moving[number] if frame.moves else ()
            live = [m for n, m in enumerate(moves) if (number, n) not in views.saved]
            for position, value_id in enumerate(topology.graph.nodes[number].outputs):
                if not value_id:
                    continue
                (root, at), size, item = views.root(value_id), views.bytes(value_id), views.item(value_id)
                own = stored.setdefault(root, [])
                if not frame.moves:
                    own.append((at, at + size, number))
                for move in (m for m in live if m.output == position):
                    low, high = (
                        at + (move.dst_offset + end) * item for end in reach(move.dims, move.dst_strides)
                    )
                    own.append((low, high + item, number))
                writers = [n for first, end, n in own if first < at + size and at < end]
                if writers:
                    written[value_id] = writers[-1]
    return written


def run_order(topology: Topology, plan: TilingPlan) -> dict[int, int]:
    """When each node runs, of the host too; a group is one step."""
    first_of = {n: g.nodes[0] for g in plan.groups for n in g.nodes}
    step_of: dict[int, int] = {}
    for number in topology.everything:
        lead = first_of.get(number, number)
        step_of[number] = step_of[lead] if lead in step_of else len(step_of) + 1
    return step_of


def border_lifetimes(
    spread: Mapping[str, Spread], frames: Sequence[Frame], step_of: Mapping[int, int]
) -> list[Lifetime]:
    """What cores hand each other, from the group that makes it to the one that reads it."""
    found = []
    for s in spread.values():
        first, last = (
            (step_of[frames[g].group.nodes[0]] for g in (s.maker, s.reader)) if s.borders else (0, 0)
        )
        found += [
            Lifetime(b.name, elements(b.box) * frames[s.maker].item(b.value), first, last) for b in s.borders
        ]
    return found


def lifetimes(
    graph: Graph, step_of: Mapping[int, int], kept: Collection[str]
) -> tuple[dict[str, int], dict[str, int]]:
    """Step of birth and of last use of every integer value in DATA."""
    born = {i: 0 for i in graph.inputs if graph.values[i].quant is not None}
    dies = dict(born)
    for number in sorted(step_of, key=lambda n: (step_of[n], n)):
        node, step = graph.nodes[number], step_of[number]
        for value_id in node.inputs:
            if value_id in born:
                dies[value_id] = max(dies[value_id], step)
        for value_id in node.outputs:
            value = graph.values.get(value_id)
            if value is not None and value.quant is not None and value.const is None and value_id in kept:
                born[value_id] = dies[value_id] = step
    last = max(step_of.values(), default=0) + 1
    dies.update({o: last for o in graph.outputs if o in born})
    return born, dies


def index_meta(part: ValidPart, address: int) -> dict[str, Any]:
    """What a program's metadata say of the index."""
    axes = dict(sorted(part.ports.items()))
    one = {"input": part.index, "most": part.most, "new": part.new, "axes": axes}
    pairs = zip((False, True), (address, address + WORD), strict=True)
    found = [{**one, "attended": kind, "address": at} for kind, at in pairs if part.caches]
    if part.rings is not None:
        at = address + WORD * len(found)
        found.append({**one, "axes": {}, "attended": False, "modulo": part.rings.rows, "address": at})
    return {"indices": found}


def index_reads(part: ValidPart, address: int) -> list[dict[str, int]]:
    """What REPEAT commands say whose blocks go on by the rows that are attended to, by the index, and by the
    row of rings. Each lies in DATA."""
    found = list[dict[str, int]]()
    if part.caches:
        own, before = {"most": part.most, "late": INDEXED}, part.block - part.new
        growing = {"count": part.turns, "before": before, "each": part.block, "least": part.first}
        adding = {"count": part.most + 1, "each": 1}
        found = [{**own, **growing, "address": address + WORD}, {**own, **adding, "address": address}]
    if part.rings is not None:
        rows, at = part.rings.rows, address + WORD * len(found)
        found.append({"most": rows - 1, "late": INDEXED, "count": rows, "each": 1, "address": at})
    return found


def in_place(
    frames: Sequence[Frame], views: Views, born: Mapping[str, int], dies: Mapping[str, int]
) -> dict[str, str]:
    """Results in external memory -> the value whose bytes they take over; a chain of them names its first."""
    sharing: dict[str, int] = {}
    for value in born:
        root = views.root(value)[0]
        sharing[root] = sharing.get(root, 0) + 1
    alone = {v for v in born if views.root(v) == (v, 0) and sharing[v] == 1}
    homes: dict[str, str] = {}
    for frame in frames:
        for p, member in enumerate(() if frame.moves else frame.members):
            if any(o in v for o in member.outputs for v in _read_elsewhere(frame, p)):
                # more than its own part of a result may be made: for the halo of the next
                continue
            taken: set[str] = set()
            for result, value in _pairs(frame, member):
                fits = (
                    {result, value} <= alone
                    and dies[value] == born[result]
                    and views.bytes(value) == views.bytes(result)
                )
                if (
                    fits
                    and result not in homes
                    and value not in taken
                    and not any(value in v for v in _read_elsewhere(frame, p))
                ):
                    taken.add(value)
                    homes[result] = homes.get(value, value)
    return homes


def _read_elsewhere(frame: Frame, part: int) -> Iterator[set[str]]:
    """What the other parts of the group read."""
    for p, member in enumerate(frame.members):
        if p != part:
            yield {i for n in member.nodes for i in frame.topology.graph.nodes[n].inputs}


def _pairs(frame: Frame, member: Member) -> Iterator[tuple[str, str]]:
    """(result that goes to external memory, input that comes from there tile by tile),
    of one shape, point on point."""
    refs = [r for s in member.layer.streams for r in s.refs]
    read = [r for r in refs if r.home == "input"]
    wanted = [r for r in (*refs, *member.layer.kept) if r.home in ("output", "result")]
    for out in wanted:
        value = member.value(out)
        if value not in frame.results or not frame.topology.wanted_in_data(value, frame.kept):
            continue
        for ref in read:
            source = member.value(ref)
            once = sum(member.value(r) == source for r in (*read, *member.layer.kept)) == 1
            if once and _points(ref, out) and not _cut_along_whole(frame, member, out):
                yield value, source


def _cut_along_whole(frame: Frame, member: Member, out: Ref) -> bool:
    """Whether cores or strips cut a result where tiles never are: each of them then reads more than the
    part that it writes, while the others write theirs."""
    space, maps = member.layer.space, out.operand.maps
    cuts = ((frame.dim(member.value(out)), frame.group.cores[1]), *frame.group.strips)
    axes = (maps[dim].axis for dim, count in cuts if count > 1 and dim < len(maps))
    return any(axis is not None and space.axis(axis).kind != "par" for axis in axes)


def _points(ref: Ref, out: Ref) -> bool:
    """Whether an element of one stands for the same element of the other, whatever the tile."""
    plain = all(m.axis is not None and m == DimMap(m.axis) for m in out.operand.maps)
    same = ref.operand.shape == out.operand.shape and ref.operand.maps == out.operand.maps
    return plain and same and ref.itemsize == out.itemsize
