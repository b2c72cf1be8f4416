"""The compiled conversion of activations to blocks has the bits of plain numpy."""

from __future__ import annotations

import numpy as np
import pytest

from npuflow.engine.sim import block_rows, blocks
from npuflow.hw.elements import ELEMENTS, having

KINDS = tuple(name for name in having("block") if ELEMENTS[name].block.both)  # type: ignore[union-attr]


def lines(rng: np.random.Generator, how: str) -> np.ndarray:
    """[place, group, element] patterns: of any bits, of similar sizes, subnormal ones, and all there are."""
    if how == "all":
        return rng.permutation(1 << 16).astype(np.uint16).reshape(-1, 2, 64)
    if how == "any":
        return rng.integers(0, 1 << 16, (40, 3, 37)).astype(np.uint16)
    high = rng.integers(0, {"near": 6, "subnormal": 2}[how], (40, 2, 41)) + (120 if how == "near" else 0)
    low = rng.integers(0, 128, high.shape)
    return (rng.integers(0, 2, high.shape) << 15 | high << 7 | low).astype(np.uint16)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("how", ["all", "any", "near", "subnormal"])
def test_conversion_has_the_bits_of_plain_numpy(kind: str, how: str) -> None:
    x, row = lines(np.random.default_rng(5), how), ELEMENTS[kind]
    assert row.block is not None
    places, groups, per = x.shape
    deep = -(-per // row.block.size) * row.block.size
    want = np.pad(blocks.converted(x, kind), ((0, 0), (0, 0), (0, deep - per)))
    # elements of a line are apart, as channels of an image are; 7: not written
    held, made = x.reshape(places, -1).T.copy(), np.full((groups * deep, places + 1), 7, np.uint16)
    block_rows.convert_rows(
        held.reshape(-1),
        np.arange(places),
        places,
        made.reshape(-1),
        np.arange(places),
        places + 1,
        (groups, per, deep),
        (row.block.size, row.bits, row.block.pair, 127 + row.block.least),
        block_rows.LENGTHS,
    )
    np.testing.assert_array_equal(made[:, :-1].T.reshape(want.shape), want)
    assert (made[:, -1] == 7).all()
