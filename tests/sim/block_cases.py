"""Random commands on weights in blocks: types, shapes, padded channels, and blocks of any bytes."""

from __future__ import annotations

import numpy as np

from npuflow.hw.blocks import block_of, encoded, packed
from npuflow.hw.elements import ELEMENTS, having
from tests.sim.cases import Case

BLOCKS = having("block")


def _blocks(c: Case, kind: str, rows: int, deep: int) -> np.ndarray:
    """`rows` sums of `deep` terms: numbers of similar or very different sizes, or any bytes."""
    row, how = ELEMENTS[kind], c.rng.random()
    if how < 0.2:
        assert row.block is not None
        count = -(-deep // row.block.size)
        return c.rng.integers(0, 256, (rows, count, row.block_bytes)).astype(np.uint8)
    spread = np.exp(c.rng.normal(0, 4, (rows, deep))) if how < 0.5 else 1.0
    numbers = c.rng.normal(size=(rows, deep)) * spread
    return packed(encoded(np.where(c.rng.random(numbers.shape) < 0.2, 0.0, numbers), kind, 1), kind, 1)


def _sum(c: Case, count: int, channels: int) -> None:
    if c.rng.random() < 0.5:
        c.const("bias", c.rng.normal(size=channels).astype(np.float32))
    c.fields.update(acc=c.place(4 * count), acc_type="float32", accumulate=c.pick(0, 0, 1))


def conv(c: Case) -> None:
    groups, per = c.pick((1, 3), (1, 9), (1, 17), (2, 2), (3, 1))
    out, (out_h, out_w), kind = groups * c.number(2, 3), c.window(), c.pick(*BLOCKS)
    del c.fields["x_zero"]
    n, _, h, w = c.fields["x_dims"]
    c.fields["x_dims"] = dims = (n, groups * per, min(h, 4), min(w, 4))
    c.tensor("x", dims, "bfloat16", False)
    kernel = c.fields["kernel"]
    c.fields.update(w_type=kind, groups=groups, batch=n, out_channels=out)
    c.fields["insert"] = c.pick((1, 1), (1, 1), (2, 2), (1, 3))
    c.const("w", _blocks(c, kind, out * kernel[0] * kernel[1], per))
    _sum(c, n * out * out_h * out_w, out)


def matmul(c: Case) -> None:
    batch, m, k, n, kind = c.number(1, 3), c.number(1, 5), c.number(1, 40), c.number(2, 6), c.pick(*BLOCKS)
    c.fields.update(batch=batch, m=m, k=k, n=n, columns=c.pick(0, 1), b_type=kind)
    c.tensor("a", (batch, m, k), "bfloat16", False)
    c.const("b", _blocks(c, kind, n, k))
    _sum(c, batch * m * n, n)


def pairs(c: Case) -> None:
    kind = c.pick(*(name for name in BLOCKS if block_of(ELEMENTS[name]).both))
    batch, m, k, n = c.number(1, 3), c.number(1, 5), c.number(1, 40), c.number(1, 6)
    c.fields.update(batch=batch, m=m, k=k, n=n, held_type=kind)
    c.tensor("a", (batch, m, k), "bfloat16", False)
    c.tensor("b", (batch, k, n), "bfloat16", True)
    _sum(c, batch * m * n, n)
