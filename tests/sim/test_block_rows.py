"""The compiled conversion of activations to blocks, and products of these, have the bits of plain numpy."""

from __future__ import annotations

import numpy as np
import pytest

from npuflow.hw.elements import ELEMENTS, having
from npuflow.hw.floats import encoded
from npuflow.kernels.blocks import blocks, fast_blocks
from npuflow.sim.machine import SimulatedMachine
from tests.sim.cases import LOCAL, Case
from tests.sim.programs import both_ways, wrap

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
    fast_blocks.convert_rows(
        held.reshape(-1),
        np.arange(places),
        places,
        made.reshape(-1),
        np.arange(places),
        places + 1,
        (groups, per, deep),
        (row.block.size, row.bits, row.block.pair, 127 + row.block.least),
        fast_blocks.LENGTHS,
    )
    np.testing.assert_array_equal(made[:, :-1].T.reshape(want.shape), want)
    assert (made[:, -1] == 7).all()


@pytest.mark.parametrize("kind", KINDS)
def test_products_of_activations_run_compiled(kind: str) -> None:
    """With the bits of plain numpy, over several blocks, one that ends early, and a matrix that repeats."""
    rng = np.random.default_rng(4)
    c = Case(rng, "BPAIRS")
    batch, m, k, n = 3, 13, 53, 30
    c.fields.update(batch=batch, m=m, k=k, n=n, held_type=kind, accumulate=0)
    c.tensor("a", (batch, m, k), "bfloat16", False)
    c.tensor("b", (1, k, n), "bfloat16", False)
    c.fields["b_strides"] = (0, *c.fields["b_strides"][1:])
    c.fields.update(acc=c.place(4 * batch * m * n), acc_type="float32")
    assert c.at <= LOCAL
    numbers = rng.normal(size=(2, LOCAL // 2)) * np.exp(rng.normal(0, 3, (2, LOCAL // 2)))
    program = wrap(c)
    np.testing.assert_array_equal(*both_ways(program, encoded(numbers, "bfloat16").view(np.uint8)))
    modules = {
        getattr(getattr(step, "func", step), "__module__", "") for step in SimulatedMachine(program, 2).steps
    }
    assert "npuflow.kernels.blocks.fast_blocks" in modules
