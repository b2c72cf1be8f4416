"""The part of a cache that a run attends to: axes of nodes of which only the start is needed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np

from npuflow.ir.space import DimMap, IterationDomain
from npuflow.ir.types import Array
from npuflow.place.partition import is_npu
from npuflow.schedule.frame import Topology
from npuflow.schedule.partial import TURNS, RingRows, ValidPart
from npuflow.schedule.table_rows import PickedRows, TableRows

HALF = 128                                # codes of 8 bits that are not negative
HIDDEN = 1e8                              # by which a mask of floats is below others, at least
Dim = tuple[str, int]                     # a value, and one of its dimensions


def valid_part(topology: Topology, proved: bool = True) -> ValidPart | None:
    """What a network's only index leaves out of its caches; None where it has none, or reads more of them.
    `proved`: for every code it is certain that a cache keeps it; a search for tiles does without."""
    if not topology.graph.state:
        return None
    search = _Search(topology)
    part = search.found(proved)
    # a search for tiles need not know of rings: a run makes one row of them, whatever its tiles are
    return with_rings(search, part) if proved else part


class _Search(TableRows):
    def __init__(self, topology: Topology) -> None:
        super().__init__(topology)
        self.nodes = [i for i, node in enumerate(self.graph.nodes) if is_npu(node)]
        self.axes: dict[int, str] = {}
        self.dims: set[Dim] = set()

    def found(self, proved: bool) -> ValidPart | None:
        masks = [mask for i in self.nodes if (mask := self._masked(i)) is not None]
        reach = {(mask.index, mask.rows, mask.new) for mask in masks}
        if len(reach) != 1:
            return None
        ((index, rows, new),) = reach
        known = {mask.softmax for mask in masks}
        pending = [(self.graph.nodes[mask.softmax].outputs[0], mask.axis) for mask in masks]
        while pending:
            value, dim = pending.pop()
            if (value, dim) in self.dims:
                continue
            self.dims.add((value, dim))
            for number, axis, others in self._around(value, dim):
                if number is not None and (axis is None or self.axes.setdefault(number, axis) != axis):
                    return None
                pending += others
        caches = self._caches() if len(dict(self.dims)) == len(self.dims) else None
        if caches is None or not self._allowed(known) or any(self._size(n) != rows for n in self.axes):
            return None
        if proved and not all(self._grows(made, held, index) for made, (held, _) in caches.items()):
            return None
        pairs = dict(self.graph.state)
        ports = {p: dim for v, (_, dim) in caches.items() for p in (self._port(v), pairs[self._port(v)])}
        part = ValidPart(index, rows, new, dict(self.axes), caches, ports, self._added(caches))
        return part if part.turns - part.first >= TURNS else None

    def _added(self, caches: Mapping[str, tuple[str, int]]) -> dict[str, int]:
        """Values of which nothing but the new rows is needed: caches that are read where they lie, and what
        only these are made of."""
        found = {v: dim for v, (_, dim) in caches.items() if not any(map(self.reads, self.users(v)))}
        where = dict(self.dims)
        for number in sorted(self.axes, reverse=True):
            for value in self.graph.nodes[number].outputs:
                users = self.users(value)
                only = bool(users) and all(n in self.axes for n in users)
                if only and all(o in found for n in users for o in self.graph.nodes[n].outputs):
                    found[value] = where[value]
        return found

    def _size(self, number: int) -> int:
        return self.topology.space(number).axis(self.axes[number]).size

    def _around(self, value: str, dim: int) -> Iterator[tuple[int | None, str | None, list[Dim]]]:
        """Nodes that make or read a value: their axis along a dimension of it, and what else has it."""
        made = self.topology.maker.get(value)
        for number in (*self.topology.readers.get(value, ()), *([] if made is None else [made])):
            node = self.graph.nodes[number]
            if not is_npu(node):
                if value not in self.states.values() and value not in self.states:
                    yield number, None, []
                continue
            if self.renames(number):
                yield None, None, [(v, dim) for v in (*node.inputs, *node.outputs)]
                continue
            space = self.topology.space(number)
            sides = (node.inputs, space.inputs), (node.outputs, space.outputs)
            ends = [end for names, operands in sides for end in zip(names, operands, strict=False)]
            maps = {operand.maps[dim] for name, operand in ends if name == value and operand is not None}
            axis = next(iter(maps)).axis if len(maps) == 1 else None
            if axis is None or maps != {DimMap(axis)} or not self._plain(space, axis):
                yield number, None, []
                continue
            yield number, axis, [
                (name, d) for name, operand in ends if operand is not None and name
                for d, m in enumerate(operand.maps) if m.axis == axis
            ]

    @staticmethod
    def _plain(space: IterationDomain, axis: str) -> bool:
        """Whether all operands are indexed by an axis as it is, and no parameter is."""
        ends = [o for o in (*space.inputs, *space.outputs) if o is not None]
        plain = all(m == DimMap(axis) for o in ends for m in o.maps if m.axis == axis)
        return plain and not any(m.axis == axis for o in space.params for m in o.maps)

    def _caches(self) -> dict[str, tuple[str, int]] | None:
        """States among the values; None where something else of the network's ends is one of them, or a
        constant."""
        found: dict[str, tuple[str, int]] = {}
        held = {v: made for made, v in self.states.items()}
        for value, dim in self.dims:
            if self.graph.values[value].const is not None:
                return None
            if value in held and (held[value], dim) not in self.dims:
                return None
            if value in self.states:
                if (self.states[value], dim) not in self.dims:
                    return None
                found[value] = self.states[value], dim
            elif value in self.graph.outputs or (value in self.graph.inputs and value not in held):
                return None
        return found

    def _port(self, made: str) -> str:
        """The output of the network that is a state."""
        ends = [o for n in self.topology.readers.get(made, ()) for o in self.graph.nodes[n].outputs]
        return made if made in self.graph.outputs else next(o for o in ends if o in self.graph.outputs)

    def _allowed(self, known: set[int]) -> bool:
        """Whether nodes that need all of an axis are known to take nothing of what is left out: a Softmax of
        masked scores, and products with what it gives."""
        for number, name in self.axes.items():
            axis, node = self.topology.space(number).axis(name), self.graph.nodes[number]
            if axis.kind == "par" and axis.multiple in (1, axis.size):
                continue
            if axis.kind == "whole" and number in known:
                continue
            weights = {self.topology.maker.get(self._source(v)) for v in node.inputs[:2]}
            if axis.kind != "sum" or not weights & known:
                return False
        return True

    def _source(self, value: str) -> str:
        """The value that data movers have taken one from."""
        while (number := self.topology.maker.get(value)) is not None and number in self.topology.moving:
            value = self.graph.nodes[number].inputs[0]
        return value

    def _masked(self, number: int) -> _Mask | None:
        """The mask of a Softmax of scores to which rows of a table are added."""
        graph, node = self.graph, self.graph.nodes[number]
        if node.op.algebra != "shares":
            return None
        rank = len(graph.type(node.inputs[0]).shape)
        axis, add = node.op.answer_axis(rank) % rank, self.topology.maker.get(node.inputs[0])
        if add is None or graph.nodes[add].op.algebra != "sum":
            return None
        for place, value in enumerate(graph.nodes[add].inputs):
            mask = self.rows(value)
            if mask is not None and not mask.offsets.min():
                one = _Mask(number, axis, mask.index, mask.table.shape[1], int(mask.offsets.max()) + 1)
                if self._hides(one, mask, (*mask.chain, add), place):
                    return one
        return None

    def _grows(self, made: str, held: str, index: str) -> bool:
        """Whether a cache is the one before with other rows from the index on, code by code."""
        add = self.topology.maker.get(made)
        parts = [self.topology.maker.get(v) for v in self.graph.nodes[add].inputs] if add is not None else []
        mul = next((n for n in parts if n is not None and held in self.graph.nodes[n].inputs), None)
        other = next((n for n in parts if n is not None and n != mul), None)
        if add is None or mul is None or other is None or self.users(held) != [mul]:
            return False
        if [self.graph.nodes[n].op.algebra for n in (add, mul, other)] != ["sum", "product", "matrices"]:
            return False
        keeps, puts = (
            self.rows(next(v for v in self.graph.nodes[n].inputs if v != held)) for n in (mul, other)
        )
        if keeps is None or puts is None or {keeps.index, puts.index} != {index}:
            return False
        keep, put = self.codes(keeps).before, self.codes(puts).off
        if keep is None or put is None or min(keeps.offsets.min(), puts.offsets.min()) < 0:
            return False
        zero = self.real(self.graph.nodes[other].inputs[0], self.through(puts.chain, put))
        return zero == 0 and self.same(mul, add, held, self.through(keeps.chain, keep))

    def _hides(self, mask: _Mask, rows: PickedRows, chain: tuple[int, ...], place: int) -> bool:
        """Whether no score, whatever it is, leaves anything of the columns behind a row's own."""
        codes = self.codes(rows)
        if codes.behind is None or codes.own is None:
            return False
        *steps, add = chain
        ends = [self.through(steps, code) for code in (codes.behind, codes.own)]
        if self.graph.site(self.graph.nodes[add]).number:
            low, high = (self.real(self.graph.nodes[add].inputs[place], end) for end in ends)
            return high - low >= HIDDEN
        return self._exact(mask, add, place, ends)

    def _exact(self, mask: _Mask, add: int, place: int, ends: list[Array]) -> bool:
        """Whether the exponential of the highest score that is left out is 0 beside the lowest other one."""
        site = self.graph.site(self.graph.nodes[add])
        scores = site.quant(1 - place)
        high, low = (
            int(self.made(site, {place: end, 1 - place: np.asarray(score)}))
            for end, score in zip(ends, (scores.hi, scores.lo), strict=True)
        )
        params, apart = self.graph.site(self.graph.nodes[mask.softmax]).params, low - high
        if apart <= 0:
            return False
        if "high" in params:
            upper, most = np.asarray(params["high"]), int(np.asarray(params["low"]).max())
            return not most * int(upper[min(apart >> 8, len(upper) - 1)]) >> 15
        return not int(np.asarray(params["low"])[min(apart, 255)])


@dataclass(frozen=True)
class _Mask:
    """A Softmax along an axis, the input that is the index, the cache's rows, and how many are new."""

    softmax: int
    axis: int
    index: str
    rows: int
    new: int


# --- caches that are rings, of which a run replaces one row: what else it need not make


def with_rings(tables: TableRows, part: ValidPart | None) -> ValidPart | None:
    """The part of caches that grow, if there are such, with rings that take one row at the same index. Runs
    of several tokens make all rows of a ring."""
    found: dict[str, tuple[str, int]] = {}
    added, kinds = dict[str, int](), set[tuple[str, int, int]]()
    for made, held in tables.states.items():
        ring = _Ring.of(tables, made, held)
        if ring is not None:
            found[made] = held, ring.dim
            added |= dict.fromkeys(ring.added, ring.dim)
            kinds.add((ring.index, ring.rows, ring.most))
    if len(kinds) != 1:
        return part
    ((index, rows, most),) = kinds
    if part is None:
        return ValidPart(index, most, 1, {}, {}, {}, {}, RingRows(rows, found, added))
    return replace(part, rings=RingRows(rows, found, added)) if (part.index, part.new) == (index, 1) else part


class _Ring:
    """A state that is what it was, times rows of a table, and a product with rows of another: at the index,
    modulo as many as they have columns, the first has 0 and the second 1. `added`: values of which the other
    rows are not needed."""

    def __init__(self, keeps: PickedRows, dim: int, added: tuple[str, ...]) -> None:
        self.index, self.dim, self.added = keeps.index, dim, added
        self.most, self.rows = keeps.table.shape

    @classmethod
    def of(cls, tables: TableRows, made: str, held: str) -> _Ring | None:
        """None of another state, and where a code might change that stays, or other rows are read."""
        graph, maker = tables.graph, tables.topology.maker
        add, dim = maker.get(made), len(graph.type(made).shape) - 2
        parts = [maker.get(v) for v in graph.nodes[add].inputs] if add is not None else []
        mul = next((n for n in parts if n is not None and held in graph.nodes[n].inputs), None)
        other = next((n for n in parts if n is not None and n != mul), None)
        if add is None or mul is None or other is None or dim < 0 or tables.users(held) != [mul]:
            return None
        if [graph.nodes[n].op.algebra for n in (add, mul, other)] != ["sum", "product", "matrices"]:
            return None
        flags = next(v for v in graph.nodes[mul].inputs if v != held), graph.nodes[other].inputs[0]
        keeps, puts = (tables.rows(v, square=False) for v in flags)
        if keeps is None or puts is None or keeps.table.shape != puts.table.shape:
            return None
        if keeps.index != puts.index or keeps.offsets.any() or puts.offsets.any():
            return None
        ends = [graph.nodes[n].outputs[0] for n in (mul, other)]
        if not all(_along(tables, n, dim) for n in (add, mul, other)):
            return None
        if any(tables.users(v) != [add] for v in ends) or any(map(tables.reads, tables.users(made))):
            return None
        shapes = [graph.type(v).shape for v in flags]
        if any(shape[-2:] != (keeps.table.shape[1], 1) or np.prod(shape) != shape[-2] for shape in shapes):
            return None
        if not all(_in_order(tables, n) for rows in (keeps, puts) for n in rows.chain):
            return None
        keep, put = _elsewhere(keeps.table), _elsewhere(puts.table)
        if keep is None or put is None or tables.real(flags[1], tables.through(puts.chain, put)):
            return None
        stays = tables.same(mul, add, held, tables.through(keeps.chain, keep))
        return cls(keeps, dim, (made, *ends)) if stays else None


def _along(tables: TableRows, number: int, dim: int) -> bool:
    """Whether a node makes rows one by one: along an axis that may be cut anywhere, and indexed as it is."""
    space = tables.topology.space(number)
    out = space.outputs[0]
    name = out.maps[dim].axis if out is not None else None
    if name is None or out is None or out.maps[dim] != DimMap(name):
        return False
    axis, ends = space.axis(name), [o for o in (*space.inputs, *space.outputs) if o is not None]
    plain = all(m == DimMap(name) for o in ends for m in o.maps if m.axis == name)
    params = any(m.axis == name for o in space.params for m in o.maps)
    return plain and not params and axis.kind == "par" and axis.multiple in (1, axis.size)


def _in_order(tables: TableRows, number: int) -> bool:
    """Whether a node leaves the elements of a row in their order."""
    if number not in tables.topology.moving:
        return bool(tables.graph.nodes[number].op.elementwise)
    site = tables.topology.site(number)
    place = next(i for i, held in enumerate(site.consts) if held is None)
    value = site.inputs[place]
    assert value is not None
    count = np.arange(value.type.size).reshape(value.type.shape)
    return all(
        np.array_equal(tables.results(site, {place: part.astype(value.dtype)}).reshape(-1), part.reshape(-1))
        for part in (count % HALF, count // HALF)
    )


def _elsewhere(table: Array) -> Array | None:
    """The only code that a table has but for the column that is the row's number modulo their number."""
    rows, columns = table.shape
    own = np.arange(rows)[:, None] % columns == np.arange(columns)
    codes = table[~own]
    return codes[0] if len(codes) and (codes == codes[0]).all() else None
