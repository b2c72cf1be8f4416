"""Caches that are rings, of which a run replaces one row: what else it need not make."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from npuflow.ir.space import DimMap
from npuflow.ir.types import Array
from npuflow.schedule.partial import RingRows, ValidPart
from npuflow.schedule.table_rows import PickedRows, TableRows

HALF = 128                                # codes of 8 bits that are not negative


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
