"""Gather, GatherElements and GatherND by indices that are computed, as look-ups."""

from __future__ import annotations

from math import prod

import numpy as np

from npuflow.ir.types import INDEX_BITS, Array
from npuflow.rules import RULES
from npuflow.rules._numbers import INTEGERS, columns, found, number, of_integers
from npuflow.rules._parts import Decomposition, Parts

_MOST = 1 << 22  # elements picked along one of several dimensions
_ROWS = 1 << INDEX_BITS  # of a table that an index tells apart
_BLOCK = 64  # rows of a table of more that are loaded together, at most


@RULES.entry
class SpellGather(Decomposition):
    """A Gather becomes a look-up in its table as [outer, rows, inner], with the indices in one row; the
    others too, those along several dimensions one after the other. Behind the rules for constant indices."""

    order = 5
    triggers = ("host:gather", "host:gatherelements", "host:gathernd")
    makes = ("lookup", "host", "reshape", "slice", "transpose", "expand")

    def spelled(self, parts: Parts) -> tuple[str, ...] | str | None:
        x, index = parts.input(0), parts.input(1)
        if parts.number(1) is not None:
            return None
        if parts.type(index).dtype not in INTEGERS:
            return f"indices of {parts.type(index).dtype}"
        name = parts.node.op.op_type.lower()  # type: ignore[attr-defined]
        shape, picks = parts.shape(x), parts.shape(index)
        if name == "gathernd":
            batch = parts.integer("batch_dims", 0)
            if batch or picks[-1] != 1:
                return _points(parts, x, index, batch)
            return (_rows(parts, x, index, 0, (*picks[:-1], *shape[1:])),)
        axis = parts.integer("axis", 0) % max(len(shape), 1)
        if name == "gather":
            return (_rows(parts, x, index, axis, (*shape[:axis], *picks, *shape[axis + 1 :])),)
        return (_elements(parts, x, index, axis),)


def _rows(parts: Parts, x: str, index: str, axis: int, shape: tuple[int, ...]) -> str:
    own = parts.shape(x)
    table, outer, inner = parts.array(x), prod(own[:axis]), prod(own[axis + 1 :])
    if table is None:
        flat = parts.reshape(number(parts, index), (parts.type(index).size,))
        rows = parts.reshape(x, (outer, own[axis], inner))
        return parts.reshape(parts.op("lookup", (rows, flat)), shape)
    if outer == 1:
        return parts.reshape(_of_table(parts, table.reshape(own[axis], inner), index), shape)
    # a constant is laid so that an index means one row
    turned = np.ascontiguousarray(np.moveaxis(table, axis, 0)).reshape(own[axis], -1)
    back = parts.reshape(_of_table(parts, turned, index), (parts.type(index).size, outer, inner))
    return parts.reshape(parts.transpose(back, (1, 0, 2)), shape)


def _of_table(parts: Parts, table: Array, index: str) -> str:
    """[1, indices, inner]: rows of a constant [rows, inner]. Of more rows than an index tells apart, as a
    large vocabulary has, a block of several is loaded, and the row picked of it. The host divides the
    indices, rounding down, so that negative ones, and those outside of the table, are such of blocks."""
    (rows, inner), count = table.shape, parts.type(index).size
    size = next((k for k in range(-(-rows // _ROWS), _BLOCK + 1) if rows % k == 0), 1)
    if size == 1 or found(parts, index):
        flat = parts.reshape(number(parts, index), (count,))
        return parts.op("lookup", (parts.const(table[None], "table"), flat))
    flat = parts.reshape(index, (count,))
    inside = of_integers(parts, "Mod", flat, size)
    first = of_integers(parts, "Sub", flat, inside)
    block = of_integers(parts, "Div", first, size)
    place = of_integers(parts, "Add", inside, size * np.arange(count))
    blocks = parts.const(table.reshape(1, -1, size * inner), "table")
    loaded = parts.op("lookup", (blocks, number(parts, block)))
    each = parts.reshape(loaded, (1, count * size, inner))
    return parts.op("lookup", (each, number(parts, place)))


def _points(parts: Parts, x: str, index: str, batch: int) -> tuple[str, ...] | str:
    """GatherND dimension by dimension: what is picked along one has a row of its own for the next."""
    shape, picks = parts.shape(x), parts.shape(index)
    samples, count, depth = prod(shape[:batch]), prod(picks[batch:-1]), picks[-1]
    outer, rows = samples, count
    numbers = columns(parts, index, shape[batch : batch + depth])
    for d, row in enumerate(numbers):
        size, inner = shape[batch + d], prod(shape[batch + d + 1 :])
        if samples * count * inner > _MOST:
            return f"indices of {depth} dimensions: {samples * count * inner} elements picked along the first"
        table = parts.reshape(x, (outer, size, inner))
        if outer == 1:
            x = parts.op("lookup", (table, parts.reshape(row, (rows,))))
        else:
            at = parts.expand(parts.reshape(row, (outer, rows, 1)), (outer, rows, inner))
            x = parts.op("lookup", (table, at))
        outer, rows = samples * count, 1
    return (parts.reshape(x, (*picks[:-1], *shape[batch + depth :])),)


def _elements(parts: Parts, x: str, index: str, axis: int) -> str:
    own, picks = parts.shape(x), parts.shape(index)
    for d, size in enumerate(picks):
        if d != axis:
            x = parts.slice(x, d, 0, size)
    outer, inner = prod(picks[:axis]), prod(picks[axis + 1 :])
    rows = parts.reshape(x, (outer, own[axis], inner))
    at = parts.reshape(number(parts, index), (outer, picks[axis], inner))
    return parts.reshape(parts.op("lookup", (rows, at)), picks)
