"""ScatterElements and ScatterND by computed indices: one-hot rows say which update meets which row."""

from __future__ import annotations

from math import prod

import numpy as np

from npuflow.rules import RULES
from npuflow.rules._numbers import INTEGERS, columns, number
from npuflow.rules._parts import Decomposition, Parts

_MOST = 1 << 22  # elements of the largest tensor that is made
_DIMENSION = 1024  # rows that a table of one-hot rows may have
_FACTORS = 16  # updates of a product, which are multiplied one by one


@RULES.entry
class SpellScatter(Decomposition):
    """Data as [columns, rows, width], updates as [columns, updates, width]. Without a reduction, ArgMax over
    the one-hot rows finds the last update of every row, which a look-up then moves; a sum of updates is a
    product with the one-hot matrix. Behind the rule for constant indices."""

    order = 5
    triggers = ("host:scatter", "host:scatterelements", "host:scatternd")
    makes = (
        "lookup",
        "argextreme",
        "matmul",
        "reducemax",
        "host",
        "reshape",
        "transpose",
        "slice",
        "concat",
        "expand",
        "mul",
        "add",
        "sub",
        "clip",
    )

    def spelled(self, parts: Parts) -> tuple[str, ...] | str | None:
        if parts.number(1) is not None:
            return None
        index, form = parts.input(1), parts.attribute("reduction", "none")
        if parts.type(index).dtype not in INTEGERS:
            return f"indices of {parts.type(index).dtype}"
        if not parts.type(index).size:
            return "no updates"
        name = parts.node.op.op_type.lower()  # type: ignore[attr-defined]
        made = _points(parts) if name == "scatternd" else _elements(parts)
        if isinstance(made, str):
            return made
        data, hits, updates, index_row = made
        y = _scattered(parts, data, hits, updates, index_row, str(form))
        if y is None:
            return f"{parts.shape(hits)} one-hot rows of a width of {parts.shape(data)[2]}, reduction {form}"
        if name == "scatternd":
            return (parts.reshape(y, parts.shape(parts.input(0))),)
        return (_placed_back(parts, y),)


Given = tuple[str, str, str, str]  # data, one-hot rows [columns, updates, rows], updates, current rows


def _points(parts: Parts) -> Given | str:
    """ScatterND: one column; the one-hot rows of several dimensions multiply."""
    x, index, updates = (parts.input(i) for i in range(3))
    own, picks = parts.shape(x), parts.shape(index)
    count, depth = prod(picks[:-1]), picks[-1]
    rows, width = own[:depth], prod(own[depth:])
    if max(rows) > _DIMENSION or count * prod(rows) > _MOST:
        return f"{count} updates of {rows} rows"
    hits = ""
    for d, (size, row) in enumerate(zip(rows, columns(parts, index, rows), strict=True)):
        one = parts.op("lookup", (_one_hot(parts, size), parts.reshape(row, (count,))), "hits")
        shape = (count, *(size if k == d else 1 for k in range(depth)))
        one = parts.reshape(one, shape)
        hits = parts.mul(hits, one, "hits") if hits else one
    hits = parts.reshape(hits, (1, count, prod(rows)))
    data = parts.reshape(x, (1, prod(rows), width))
    moved = parts.reshape(updates, (1, count, width))
    return data, hits, moved, ""


def _elements(parts: Parts) -> Given | str:
    """ScatterElements: every column along the axis on its own."""
    x, index, updates = (parts.input(i) for i in range(3))
    axis, picks = parts.integer("axis", 0) % len(parts.shape(x)), parts.shape(index)
    rows, columns = parts.shape(x)[axis], prod(picks) // picks[axis]
    if rows > _DIMENSION or prod(picks) * rows > _MOST:
        return f"{prod(picks)} updates of {rows} rows"
    for d, size in enumerate(picks):
        if d != axis:
            x = parts.slice(x, d, 0, size)
    order = (*(d for d in range(len(picks)) if d != axis), axis)
    data = parts.reshape(parts.transpose(x, order), (columns, rows, 1))
    turned = [parts.transpose(v, order) for v in (number(parts, index), updates)]
    at, moved = (parts.reshape(v, (columns, picks[axis], 1)) for v in turned)
    flat = parts.reshape(at, (columns * picks[axis],))
    hits = parts.op("lookup", (_one_hot(parts, rows), flat), "hits")
    return data, parts.reshape(hits, (columns, picks[axis], rows)), moved, at


def _one_hot(parts: Parts, rows: int) -> str:
    return parts.const(np.eye(rows)[None], "ones")


def _placed_back(parts: Parts, y: str) -> str:
    """The columns that were scattered into, in their places of the data."""
    x, index = parts.input(0), parts.input(1)
    own, picks = parts.shape(x), parts.shape(index)
    axis = parts.integer("axis", 0) % len(own)
    others = [d for d in range(len(own)) if d != axis]
    y = parts.reshape(y, (*(picks[d] for d in others), own[axis]))
    back = tuple(len(others) if d == axis else others.index(d) for d in range(len(own)))
    y = parts.transpose(y, back)
    for d in reversed(others):
        if picks[d] == own[d]:
            continue
        rest = parts.slice(x, d, picks[d], own[d])
        for before in others[: others.index(d)]:
            rest = parts.slice(rest, before, 0, picks[before])
        y = parts.concat([y, rest], d)
    return y


def _scattered(parts: Parts, data: str, hits: str, updates: str, at: str, form: str) -> str | None:
    """The data with the updates in it; None where a tensor would be too large."""
    (columns, rows, width), count = parts.shape(data), parts.shape(hits)[1]
    if form == "none":
        return _last(parts, data, hits, updates)
    if form == "add":
        return parts.add(data, parts.matmul(parts.swapped(hits), updates), "sum")
    if form == "mul":
        return _product(parts, data, hits, updates) if count <= _FACTORS else None
    if columns * count * rows * width > _MOST:
        return None
    now = parts.matmul(hits, data, "now") if not at else parts.op("lookup", (data, at), "now")
    pair = (updates, now) if form == "max" else (now, updates)
    more = parts.clip(parts.sub(*pair, "more"), 0.0, what="more")
    wide = parts.mul(
        parts.reshape(hits, (columns, count, rows, 1)), parts.reshape(more, (columns, count, 1, width))
    )
    most = parts.reduce("max", wide, (1,), keep=False)
    return parts.add(data, most) if form == "max" else parts.sub(data, most)


def _last(parts: Parts, data: str, hits: str, updates: str) -> str | None:
    """Of every row the last update that hits it, else the row itself, which stands before them with half a
    hit. By a table for every row, or by one of all rows, whichever is smaller."""
    (columns, rows, width), count = parts.shape(data), parts.shape(hits)[1]
    turned = parts.swapped(hits)
    own, each = rows * (rows + count + width), rows * (1 + count) * (1 + width)
    if columns * min(own, each) > _MOST:
        return None
    if own <= each:
        self_hits = np.broadcast_to(0.5 * np.eye(rows), (columns, rows, rows))
        score = parts.concat([parts.const(self_hits, "self"), turned], 2)
        table, picks = parts.concat([data, updates], 1, "table"), (columns, rows, 1)
    else:
        score = parts.concat([parts.const(np.full((columns, rows, 1), 0.5), "self"), turned], 2)
        spread = parts.reshape(updates, (columns, 1, count, width))
        spread = parts.expand(spread, (columns, rows, count, width))
        pieces = [parts.reshape(data, (columns, rows, 1, width)), spread]
        table = parts.reshape(parts.concat(pieces, 2, "table"), (columns * rows, 1 + count, width))
        picks = (columns * rows, 1, 1)
    best = parts.op("argextreme", (score,), "last", axis=2, largest=1, select_last_index=1)
    if own <= each and columns == 1:
        return parts.op("lookup", (table, parts.reshape(best, (rows,))))
    best = parts.expand(parts.reshape(best, picks), (*picks[:2], width))
    return parts.reshape(parts.op("lookup", (table, best)), (columns, rows, width))


def _product(parts: Parts, data: str, hits: str, updates: str) -> str:
    """Update by update: where it hits, the data times it."""
    columns, count, rows = parts.shape(hits)
    beyond = parts.sub(updates, 1.0, "beyond")
    for j in range(count):
        hit = parts.reshape(parts.slice(hits, 1, j, j + 1), (columns, rows, 1))
        change = parts.mul(hit, parts.slice(beyond, 1, j, j + 1), "change")
        data = parts.mul(data, parts.add(change, 1.0, "factor"))
    return data
