"""Random commands that take indices from memory, or make positions."""

from __future__ import annotations

import numpy as np

from npuflow.hw.command import NONE
from npuflow.hw.elements import ELEMENTS
from tests.sim.case import SIZES, SMALL, Case


def _selected(c: Case, name: str, dims, broadcast: bool) -> None:
    """Indices in local memory, the table's entries, and what negative ones mean."""
    entries = c.number(1, 9)
    c.fields.update(entries=entries, wrap=c.pick(entries, max(1, entries - 1), entries + 2))
    dtype = c.pick(*SMALL)
    if c.rng.random() < 0.8:                              # most point into the table
        values = c.rng.integers(-entries if ELEMENTS[dtype].signed else 0, entries, int(np.prod(dims)))
        c.const(name, values.astype(dtype))
        size, strides = SIZES[dtype], [0] * len(dims)
        for d in reversed(range(len(dims))):
            strides[d] = size
            size *= dims[d]
        c.fields.update({f"{name}_type": dtype, f"{name}_strides": tuple(strides)})
    else:
        c.tensor(name, dims, dtype, broadcast)


def gather(c: Case) -> None:
    c.fields["dims"] = dims = tuple(c.number(1, 5) for _ in range(3))
    _selected(c, "index", dims, True)
    c.tensor("x", (dims[0], c.fields["entries"], dims[2]))
    c.tensor("y", dims, c.fields["x_type"])


def loadrows(c: Case) -> None:
    c.fields["dims"] = rows, width = c.number(1, 6), c.number(1, 9)
    _selected(c, "index", (rows,), False)
    c.fields["index_step"] = c.fields.pop("index_strides")[0]
    element = c.pick(1, 2, 4, 8)
    step = element * (width + c.number(0, 2))
    c.fields.update(space="DATA", element=element, row=step, external=c.number(0, 50) * 8)
    c.fields.update(y=c.place(rows * step), y_strides=(step, element))


def topk(c: Case, *kinds: str) -> None:
    """Of integers, or of one of some types."""
    c.fields["dims"] = dims = (c.number(1, 3), c.number(1, 9), c.number(1, 3))
    c.fields["count"] = count = c.number(1, dims[1])
    c.tensor("x", dims, *(c.pick(*kinds) for _ in kinds[:1]))
    c.tensor("y", (dims[0], count, dims[2]), c.fields["x_type"])
    c.tensor("at", (dims[0], count, dims[2]))
    c.fields.update(maximum=c.pick(0, 1), last=c.pick(0, 1))
    c.fields.update(c.pick({}, {"y": NONE}, {"at": NONE}))

