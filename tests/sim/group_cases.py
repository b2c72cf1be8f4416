"""Random commands with weights in groups of float16 scales."""

from __future__ import annotations

import numpy as np

from npuflow.hw.elements import ELEMENTS, having
from npuflow.hw.grouped import OFFSETS, group_bytes
from tests.sim.case import Case

FLOATS = having("float")
CODES = ("int4", "uint4", "int8", "uint8")


def _halves(c: Case, count: int) -> np.ndarray:
    """Numbers of similar or very different sizes, or any patterns."""
    how = c.rng.random()
    if how < 0.15:
        return c.rng.integers(0, 1 << 16, count).astype("<u2")
    spread = np.exp(c.rng.normal(0, 4, count)) if how < 0.5 else 1.0
    with np.errstate(over="ignore"):
        return (c.rng.normal(size=count) * spread).astype(np.float16).view("<u2")


def _weight(c: Case) -> None:
    kind, offset = c.pick(*CODES), c.pick(*OFFSETS)
    group = c.pick(2 * c.number(1, 6), 32, 64)          # whole pieces of 32 go a way of their own
    (lo, hi), n = ELEMENTS[kind].range, c.fields["n"]
    count = n * -(-c.fields["k"] // group)
    c.fields.update(
        b_type=kind, offset=offset, group=group, zero=c.pick(0, c.number(lo, hi)) if offset == "none" else 0
    )
    raw = c.rng.integers(0, 256, (count, group_bytes(ELEMENTS[kind].bits, group, offset))).astype(np.uint8)
    raw[:, :2] = _halves(c, count).view(np.uint8).reshape(-1, 2)
    if offset == "minimum":
        raw[:, 2:4] = _halves(c, count).view(np.uint8).reshape(-1, 2)
    c.const("b", raw)


def matmul(c: Case) -> None:
    batch, m, k, n = c.number(1, 3), c.number(1, 5), c.number(1, 100), c.number(2, 6)
    c.fields.update(batch=batch, m=m, k=k, n=n)
    c.tensor("a", (batch, m, k))
    c.zero("a")
    _weight(c)
    c.acc(batch * m * n)


def float_matmul(c: Case) -> None:
    batch, m, k, n = c.number(1, 3), c.number(1, 5), c.number(1, 100), c.number(2, 6)
    c.fields.update(batch=batch, m=m, k=k, n=n, chunk=c.pick(1, 2, 4, 64))
    c.tensor("a", (batch, m, k), c.pick(*FLOATS))
    _weight(c)
    if c.rng.random() < 0.5:
        c.const("bias", c.rng.normal(size=n).astype(np.float32))
    c.fields.update(acc=c.place(4 * batch * m * n), acc_type="float32", accumulate=c.pick(0, 0, 1))
