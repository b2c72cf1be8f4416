"""Ranges of weights in groups by what errors cost."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from npuflow.hw.target import Numerics
from npuflow.ir.op import OPS
from npuflow.ir.types import Array, QuantType
from npuflow.quantise.config import Weights
from npuflow.quantise.group_ranges import with_minima, with_zeros
from npuflow.quantise.grouped import of_integers, of_scheme
from npuflow.quantise.types import weight_type
from npuflow.rounders import ROUNDERS
from npuflow.stages.tiling import shipped_targets
from npuflow.tune import tuned
from npuflow.tune.rounding.moments import of_columns
from npuflow.tune.rounding.rounded import LayerScheme, matrix, rounded
from tests.networks.floats import Net
from tests.tiers import often

BFLOAT16 = "bfloat16"


def numerics() -> Numerics:
    return shipped_targets()["bm1684x"].numerics


def cost(real: Array, quant: QuantType | None, importance: Array) -> float:
    """Of codes to the nearest."""
    assert quant is not None
    scale, zero = quant.spread(real.shape)
    codes = np.clip(np.rint(real / scale + zero), quant.lo, quant.hi)
    return float(((scale * (codes - zero) - real) ** 2 * importance).sum())


SCHEMES = [
    Weights(bits=4, group=32, symmetric=False), Weights(bits=4, group=32),
    Weights(bits=4, group=32, symmetric=False, offset="minimum"),
]


@pytest.mark.parametrize("examples", often([12, 40], 2))
def test_errors_cost_no_more_than_from_least_to_greatest(examples: int) -> None:
    @given(st.integers(0, 2**32 - 1), st.sampled_from(SCHEMES), st.sampled_from([64, 72, 100]))
    @settings(max_examples=examples, deadline=None)
    def least(seed: int, scheme: Weights, terms: int) -> None:
        rng = np.random.default_rng(seed)
        real = (rng.standard_t(4, size=(6, terms)) * np.exp(rng.normal(size=(6, 1)))).astype(np.float32)
        importance = np.exp(2 * rng.normal(size=terms))
        usual = of_scheme(real, (0, 1), scheme, BFLOAT16, numerics())
        found = of_scheme(real, (0, 1), scheme, BFLOAT16, numerics(), importance)
        assert cost(real, found, importance) <= cost(real, usual, importance) * (1 + 1e-4)

    least()


@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_great_weight_that_matters_little_is_clipped(scheme: Weights) -> None:
    rng = np.random.default_rng(2)
    real, importance = rng.normal(size=(8, 64)).astype(np.float32), np.ones(64)
    real[:, ::32], importance[::32] = 6.0, 1e-3
    usual, found = (of_scheme(real, (0, 1), scheme, BFLOAT16, numerics(), w) for w in (None, importance))
    assert cost(real, found, importance) < 0.8 * cost(real, usual, importance)


@given(st.data())
@settings(max_examples=30, deadline=None)
def test_a_grid_is_found(data: Any) -> None:
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    codes = rng.integers(0, 16, size=(3, 2, 32)).astype(np.float32)
    codes[..., 0], codes[..., 1] = 0, 15
    scales = (2.0 ** rng.integers(-6, 3, size=(3, 2, 1))).astype(np.float32)
    minima = (scales * rng.integers(-20, 5, size=(3, 2, 1))).astype(np.float32)
    found = with_minima((scales * codes + minima).reshape(3, 64), np.ones(64), 32, 15)
    np.testing.assert_array_equal(found.scales, scales[..., 0])
    np.testing.assert_array_equal(found.offsets, minima[..., 0])


@pytest.mark.parametrize("symmetric", [True, False])
def test_groups_of_zeros_and_terms_that_count_nothing(symmetric: bool) -> None:
    rows, importance = np.zeros((2, 40)), np.zeros(40)
    rows[0, 3] = 1.0
    zeros = with_zeros(rows, importance, 32, (-8, 7), symmetric)
    minima = with_minima(rows, importance, 32, 15)
    for one in (zeros, minima):
        assert one.scales.shape == one.offsets.shape == (2, 2)
        assert (one.scales > 0).all() and np.isfinite(one.offsets).all()
    assert not (symmetric and zeros.offsets.any())


def test_other_methods_of_ranges_are_obeyed() -> None:
    real = np.random.default_rng(3).normal(size=(4, 64)).astype(np.float32)
    scheme = Weights(bits=4, group=32, symmetric=False, method="mse")
    first, second = (of_scheme(real, (0, 1), scheme, BFLOAT16, numerics(), w) for w in (None, np.ones(64)))
    assert first == second


@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_matrix_may_lie_either_way(scheme: Weights) -> None:
    rng = np.random.default_rng(5)
    real, importance = rng.normal(size=(6, 100)).astype(np.float32), np.exp(2 * rng.normal(size=100))
    rows = of_scheme(real, (0, 1), scheme, BFLOAT16, numerics(), importance)
    columns = of_scheme(np.ascontiguousarray(real.T), (1, 0), scheme, BFLOAT16, numerics(), importance)
    assert rows is not None and columns is not None
    assert cost(real, rows, importance) == cost(real.T, columns, importance[:, None])


@pytest.mark.parametrize("parts", [1, 2])
@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_layer_is_rounded_in_ranges_that_its_inputs_ask_for(scheme: Weights, parts: int) -> None:
    """With moments in blocks, too: every term has the importance of its own input."""
    rng, terms = np.random.default_rng(6), 128
    net = Net(7, 40, terms)
    real = rng.standard_t(4, size=(terms, 8)).astype(np.float32)
    net.add("y", OPS["matmul"](), "x", net.const("w", real))
    one = matrix(net.graph("y"), 0, "w", ("y",), "matmul", parts)
    x = rng.normal(size=(400, terms)) * np.exp(rng.normal(size=terms))
    codes = np.rint(x * 2**9).clip(-32767, 32767).astype(np.int16)
    fit = of_columns([codes.reshape(400, parts, -1).swapaxes(0, 1)], 9)
    assert fit is not None
    found = rounded(LayerScheme(ROUNDERS["gptq"](), scheme, numerics(), BFLOAT16), one, "", fit, None)
    squares = ((codes / 2**9) ** 2).mean(0).reshape(parts, -1)
    importance = (squares + tuned.ROUND_RANGES * squares.mean(1, keepdims=True)).reshape(-1)
    wanted, usual = (of_scheme(real, (1, 0), scheme, BFLOAT16, numerics(), w) for w in (importance, None))
    assert wanted is not None and usual is not None
    for made, ends in zip(found.weight.quant.spread(real.shape), wanted.spread(real.shape), strict=True):
        np.testing.assert_array_equal(made, ends)
    assert (wanted.spread(real.shape)[0] != usual.spread(real.shape)[0]).mean() > 0.5
    assert found.now < 0.8 * found.was


@pytest.mark.parametrize("scheme", SCHEMES[:2])
def test_so_is_a_layer_beside_integers(scheme: Weights) -> None:
    """A product that scales sums of groups by multipliers; groups of zeros keep the scale that they had."""
    rng, terms, whole = np.random.default_rng(8), 128, shipped_targets()["edge-8t"].numerics
    net = Net(9, 40, terms)
    real = rng.standard_t(4, size=(terms, 8)).astype(np.float32)
    real[32:64, 3] = 0.0
    net.add("y", OPS["matmul"](), "x", net.const("w", real))
    one = matrix(net.graph("y"), 0, "w", ("y",), "matmul")
    x = rng.normal(size=(400, terms)) * np.exp(rng.normal(size=terms))
    codes = np.rint(x * 2**9).clip(-32767, 32767).astype(np.int16)
    fit = of_columns([codes[None]], 9)
    assert fit is not None
    squares = ((codes / 2**9) ** 2).mean(0)
    usual = weight_type(real, 1, scheme, whole, 0)
    wanted = of_integers(real, usual, 1, squares + tuned.ROUND_RANGES * squares.mean())
    found = rounded(LayerScheme(ROUNDERS["gptq"](), scheme, whole), one, "", fit, None)
    for made, ends in zip(found.weight.quant.spread(real.shape), wanted.spread(real.shape), strict=True):
        np.testing.assert_array_equal(made, ends)
    assert (wanted.spread(real.shape)[0] != usual.spread(real.shape)[0]).mean() > 0.5
    assert wanted.spread(real.shape)[0][40, 3] == usual.spread(real.shape)[0][40, 3]
    assert found.now < 0.85 * found.was
