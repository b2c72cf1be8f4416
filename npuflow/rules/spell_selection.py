"""Selections by constant indices (ScatterND, GatherElements, Compress, Trilu) as slices, gathers, concats."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from npuflow.ir.types import Array
from npuflow.onnx.run import CannotRunError
from npuflow.rules import RULES
from npuflow.rules._match import attribute
from npuflow.rules._parts import Decomposition, Parts

_MOST = 1 << 22                           # elements: float32 has a number for each
_RUNS = 64                                # slices of one concat
_SINGLE = 256                             # elements picked one by one
_LAYERS = 8                               # updates that fall on one element
_SOURCES = {"scatternd": (0, 2), "scatterelements": (0, 2), "scatter": (0, 2), "tensorscatter": (0, 1)}


@RULES.entry
class SpellSelection(Decomposition):
    """Every element of the result is an element of an input, or 0. The operator itself gives which one: it is
    run on numbered elements. What is picked along one axis, axis by axis or by a mask becomes moves."""

    triggers = (
        "host:gatherelements",
        "host:gathernd",
        "host:scatternd",
        "host:scatterelements",
        "host:scatter",
        "host:tensorscatter",
        "host:compress",
        "host:reversesequence",
        "host:centercroppad",
        "host:trilu",
        "host:maxunpool",
    )
    makes = ("gather", "slice", "concat", "reshape", "mul", "add", "max", "min")

    def spelled(self, parts: Parts) -> tuple[str, ...] | str:
        name = parts.node.op.op_type.lower()  # type: ignore[attr-defined]
        sources = _SOURCES.get(name, (0,))
        others = [i for i, v in enumerate(parts.node.inputs) if v and i not in sources]
        if any(parts.number(i) is None for i in others):
            return "its indices are not a constant"
        shapes = [parts.shape(parts.input(i)) for i in sources]
        if sum(int(np.prod(shape)) for shape in shapes) > _MOST:
            return f"more than {_MOST} elements"
        form = attribute(parts.node, "reduction", "none")
        try:
            if form != "none":
                found = _reduced(parts, str(form))
            else:
                labels = _labels(parts, sources)
                if not labels.size:
                    return "it selects nothing"
                found = _moved(parts, [parts.input(i) for i in sources], labels)
        except CannotRunError as fault:
            return str(fault)
        return (found,) if found is not None else "its indices follow no axis"


def _moved(parts: Parts, given: Sequence[str], labels: Array) -> str | None:
    found = _axis(parts, given, labels) or _axes(parts, given, labels) or _mask(parts, given, labels)
    if found is None and labels.size <= _SINGLE and labels.min(initial=0) >= 0:
        found = _one_by_one(parts, given, labels)
    return found


def _reduced(parts: Parts, form: str) -> str | None:
    """Scatter with a reduction, in layers of updates that fall on different elements: each is put in its
    places between numbers that change nothing, and joined with what the layers before it gave."""
    y, shape, size = parts.input(0), parts.shape(parts.input(0)), parts.type(parts.input(0)).size
    indices, updates = parts.number(1), parts.input(2)
    own = parts.node.op.attributes  # type: ignore[attr-defined]
    others = tuple(pair for pair in own if pair[0] != "reduction")
    op = replace(parts.node.op, attributes=(*others, ("reduction", "max")))  # type: ignore[call-arg]
    left = np.arange(1, parts.type(updates).size + 1, dtype=np.float32).reshape(parts.shape(updates))
    for _ in range(_LAYERS):
        (landed,) = op.reference(np.zeros(shape, np.float32), indices, left)
        here = np.asarray(landed).astype(np.int64)       # the number of an update, from 1 on; 0: none
        base = {"add": 0.0, "mul": 1.0}.get(form)
        rest = parts.const(np.full(shape, base, np.float32), "rest") if base is not None else y
        labels = np.where(here > 0, size + here - 1, np.arange(size).reshape(shape))
        placed = _moved(parts, (rest, updates), labels)
        if placed is None:
            return None
        y = parts.op(form, (y, placed))
        left = np.where(np.isin(left, here), 0.0, left).astype(np.float32)
        if not left.any():
            return y
    return None


def _labels(parts: Parts, sources: Sequence[int]) -> Array:
    """By element of the result: its number among the elements of the sources, one source after the other, -1
    for 0."""
    given: list[Array | None] = []
    first = 1
    for i, value in enumerate(parts.node.inputs):
        if i not in sources:
            given.append(parts.number(i) if value else None)
            continue
        shape = parts.shape(value)
        size = int(np.prod(shape))
        given.append(np.arange(first, first + size, dtype=np.float32).reshape(shape))
        first += size
    (found, *_) = parts.node.op.reference(*given)
    return np.asarray(found).astype(np.int64) - 1


def _axis(parts: Parts, given: Sequence[str], labels: Array) -> str | None:
    """Rows of the sources along one axis, in runs of neighbours."""
    for axis in range(labels.ndim):
        rows: dict[bytes, tuple[int, int]] = {}
        first = 0
        for k, value in enumerate(given):
            shape = parts.shape(value)
            size = int(np.prod(shape))
            if len(shape) == labels.ndim:
                held = np.arange(first, first + size).reshape(shape)
                for j, row in enumerate(np.moveaxis(held, axis, 0)):
                    rows.setdefault(_key(row), (k, j))
            first += size
        moved = np.moveaxis(labels, axis, 0)
        zero = _key(np.full(moved.shape[1:], -1))
        picked = [(-1, 0) if _key(row) == zero else rows.get(_key(row)) for row in moved]
        if all(p is not None for p in picked):
            found = _joined(parts, given, axis, [p for p in picked if p is not None], labels.shape)
            if found is not None:
                return found
    return None


def _key(row: Array) -> bytes:
    return np.ascontiguousarray(row, np.int64).tobytes() + repr(row.shape).encode()


def _joined(
    parts: Parts, given: Sequence[str], axis: int, picked: list[tuple[int, int]], shape: tuple[int, ...]
) -> str | None:
    runs = _runs(picked)
    if len(runs) > _RUNS:
        sources = {k for k, _ in picked}
        if len(sources) > 1 or -1 in sources or len(picked) > _SINGLE:
            return None
        indices = tuple(j for _, j in picked)
        only = given[picked[0][0]]
        return parts.op("gather", (only,), indices=indices, index_shape=(len(indices),), axis=axis)
    pieces = []
    for source, start, step, count in runs:
        if source < 0:
            rest = (*shape[:axis], count, *shape[axis + 1 :])
            pieces.append(parts.const(np.zeros(rest, np.float32), "zeros"))
        elif step < 0:
            end = start + step * count if start + step * count >= 0 else -(1 << 31)
            x = (given[source],)
            pieces.append(parts.op("slice", x, starts=(start,), ends=(end,), axes=(axis,), steps=(step,)))
        else:
            pieces.append(parts.slice(given[source], axis, start, start + step * (count - 1) + 1, step))
    return parts.concat(pieces, axis)


def _runs(picked: Sequence[tuple[int, int]]) -> list[tuple[int, int, int, int]]:
    """Source, first index, step, count of every run of one step."""
    runs: list[list[int]] = []
    for source, index in picked:
        last = runs[-1] if runs else None
        if last is not None and last[0] == source:
            step = index - (last[1] + last[2] * (last[3] - 1))
            if source < 0 or (last[3] == 1 and step) or (step and step == last[2]):
                last[2], last[3] = (1 if source < 0 else step), last[3] + 1
                continue
        runs.append([source, index, 1, 1])
    return [(s, i, d, n) for s, i, d, n in runs]


def _axes(parts: Parts, given: Sequence[str], labels: Array) -> str | None:
    """One source, of whose axes each is picked from on its own."""
    shape = parts.shape(given[0])
    if len(given) > 1 or len(shape) != labels.ndim or not (labels >= 0).any():
        return None
    inside = labels >= 0
    own = np.unravel_index(np.maximum(labels, 0), shape)
    maps: list[Any] = []
    for axis, at in enumerate(own):
        others = tuple(d for d in range(labels.ndim) if d != axis)
        top = np.where(inside, at, -1).max(others)
        if (inside & (at != np.expand_dims(top, others))).any():
            return None
        maps.append(top)
    grids = np.meshgrid(*maps, indexing="ij")
    if not np.array_equal(np.logical_and.reduce([g >= 0 for g in grids]), inside):
        return None
    y = given[0]
    for axis, top in enumerate(maps):
        picked = [(0, int(j)) if j >= 0 else (-1, 0) for j in top]
        if [j for _, j in picked] == list(range(parts.shape(y)[axis])) and -1 not in top:
            continue
        rest = (*parts.shape(y)[:axis], len(top), *parts.shape(y)[axis + 1 :])
        made = _joined(parts, [y], axis, picked, rest)
        if made is None:
            return None
        y = made
    return y


def _mask(parts: Parts, given: Sequence[str], labels: Array) -> str | None:
    """The source where it stays, 0 elsewhere."""
    if parts.shape(given[0]) != labels.shape or len(given) > 1:
        return None
    stays = labels == np.arange(labels.size).reshape(labels.shape)
    if not (stays | (labels < 0)).all():
        return None
    return parts.mul(given[0], parts.const(stays.astype(np.float32), "mask"))


def _one_by_one(parts: Parts, given: Sequence[str], labels: Array) -> str:
    flat = [parts.reshape(v, (parts.type(v).size,)) for v in given]
    indices = tuple(labels.reshape(-1).tolist())
    whole = parts.concat(flat, 0)
    y = parts.op("gather", (whole,), indices=indices, index_shape=(len(indices),), axis=0)
    return parts.reshape(y, labels.shape)


