"""Rounding methods: what every one of them must keep, on random layers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from npuflow.hw.target import Numerics
from npuflow.ir.sparsity import Pattern
from npuflow.quantise.config import Weights
from npuflow.rounders import ROUNDERS, LayerProblem, Rounder
from npuflow.tune.rounding.moments import of_columns
from npuflow.tune.rounding.pruning import LayerMask
from npuflow.tune.rounding.rounded import LayerScheme, Matrix, Wanted, rounded
from npuflow.tune.rounding.sequential import aimed

METHODS = sorted(ROUNDERS.names())


@st.composite
def problems(draw: Any) -> LayerProblem:
    groups, outputs, terms = (draw(st.integers(1, n)) for n in (3, 5, 12))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    rows = draw(st.integers(1, 30))                        # often fewer than terms: moments without full rank
    basis = rng.normal(size=(groups, rows, terms)) @ (np.eye(terms) + 0.5 * rng.normal(size=(terms, terms)))
    if draw(st.booleans()):
        basis[..., 0] = 0.0                                # a channel that is never on
    gram = np.matmul(basis.swapaxes(1, 2), basis) / rows
    weight = rng.normal(size=(groups, outputs, terms)) * np.exp(rng.uniform(-2, 2, size=(groups, outputs, 1)))
    if draw(st.booleans()):
        weight[0, 0] = 0.0
    bits, shared = draw(st.integers(2, 6)), draw(st.booleans())
    fixed = draw(st.booleans())
    top = (1 << (bits - 1)) - 1
    peak = np.abs(weight).max() if shared else np.abs(weight).max(-1)
    scale = (
        np.broadcast_to(np.where(peak > 0, peak, 1.0) / top, weight.shape[:2])
        .astype(np.float32)
        .astype(np.float64)
    )
    if fixed:
        scale = 2.0 ** np.ceil(np.log2(scale))
    plain = LayerProblem(weight, gram, scale, np.zeros_like(scale), -top - 1, top, bits, shared, fixed)
    part = 0 if shared else draw(st.integers(0, terms))
    if not part:
        return plain
    blocks = [np.abs(weight[..., at : at + part]).max(-1) for at in range(0, terms, part)]
    scales = np.stack([np.where(peak > 0, peak, 1.0) / top for peak in blocks], -1)
    scales = np.repeat(2.0 ** np.ceil(np.log2(scales)) if fixed else scales, part, -1)[..., :terms]
    whole = replace(plain, scale=scales, part=part, sub_bits=draw(st.sampled_from([None, 4])))
    return replace(whole, sub_bits=None) if fixed else replace(whole, scale=whole.stored(scales))


@pytest.mark.parametrize("method", METHODS)
@given(problem=problems())
@settings(max_examples=40, deadline=None)
def test_no_layer_is_worse_than_rounded_to_the_nearest(method: str, problem: LayerProblem) -> None:
    made = ROUNDERS[method]()(problem)
    plain, found = problem.errors(problem.nearest()), problem.errors(made)
    slack = 1e-9 * (plain.sum() + np.abs(problem.gram).sum() * 1e-12) + 1e-15
    if problem.shared:
        assert found.sum() <= plain.sum() + slack and np.unique(made.scale).size == 1
    else:
        assert (found <= plain + slack).all()
    assert (made.codes == np.rint(made.codes)).all()
    assert made.codes.min() >= problem.lo and made.codes.max() <= problem.hi
    assert (made.scale > 0).all() and np.isfinite(made.scale).all()
    if problem.fixed:
        assert (np.frexp(made.scale)[0] == 0.5).all()
    elif problem.part and problem.sub_bits:
        one = made.scale.max(-1, keepdims=True) / 15
        assert (one == one.astype(np.float32)).all() and (made.scale == one * np.rint(made.scale / one)).all()
    else:
        assert (made.scale == made.scale.astype(np.float32)).all()


@pytest.mark.parametrize("method", METHODS)
@given(problem=problems(), seed=st.integers(0, 2**32 - 1))
@settings(max_examples=20, deadline=None)
def test_pruned_weights_stay_zero(method: str, problem: LayerProblem, seed: int) -> None:
    keep = np.random.default_rng(seed).random(problem.weight.shape) < 0.5
    pruned = replace(problem, weight=problem.weight * keep, keep=keep)
    made = ROUNDERS[method]()(pruned)
    assert not pruned.real(made)[~keep].any()
    plain = pruned.errors(pruned.nearest())
    assert pruned.shared or (pruned.errors(made) <= plain * (1 + 1e-9) + 1e-12).all()


@pytest.mark.parametrize("method", ["gptq", "coordinate"])
def test_correlated_inputs_make_a_difference(method: str) -> None:
    rng = np.random.default_rng(5)
    x = rng.normal(size=(400, 4)) @ rng.normal(size=(4, 24)) + 0.1 * rng.normal(size=(400, 24))
    weight, top = rng.normal(size=(1, 16, 24)), 7
    scale = np.abs(weight).max(-1) / top
    problem = LayerProblem(weight, (x.T @ x / 400)[None], scale, np.zeros_like(scale), -8, 7, 4)
    made = ROUNDERS[method]()(problem)
    assert problem.errors(made).sum() < 0.4 * problem.errors(problem.nearest()).sum()


def test_coordinate_is_at_a_minimum_of_every_code() -> None:
    rng = np.random.default_rng(2)
    x = rng.normal(size=(200, 10)) @ rng.normal(size=(10, 10))
    weight = rng.normal(size=(2, 3, 10))
    scale = np.abs(weight).max(-1) / 3
    gram = np.stack([x.T @ x / 200] * 2)
    problem = LayerProblem(weight, gram, scale, np.zeros_like(scale), -4, 3, 3)
    tiny = ROUNDERS["coordinate"](damp=1e-6, sweeps=200)
    made = tiny(problem)
    best = problem.errors(made)
    for step in (-1, 1):
        for k in range(10):
            codes = made.codes.copy()
            codes[..., k] = np.clip(codes[..., k] + step, problem.lo, problem.hi)
            near = problem.errors(type(made)(codes, made.scale))
            assert (near >= best * (1 - 1e-4)).all()


@pytest.mark.parametrize("per", ["channel", "tensor"])
@pytest.mark.parametrize("zero", [False, True])
def test_a_layer_comes_back_in_its_own_shape(per: Any, zero: bool) -> None:
    """Columns to codes: the mean goes to the bias, the rest of the error is that of the codes."""
    rng = np.random.default_rng(3)
    x = rng.normal(3.0, 1.0, size=(300, 6)) @ rng.normal(size=(6, 6))
    tensor = rng.normal(size=(4, 6)).astype(np.float32)
    fraction = 8
    columns = np.rint(x * 2**fraction).astype(np.int16)[None]
    moments = of_columns([columns], fraction)
    assert moments is not None
    index = np.arange(24).reshape(1, 4, 6)
    source = Matrix(tensor, index, 0, 0.5, ("layer",), "gemm")
    scheme, numerics = Weights(bits=3, per=per, symmetric=not zero), Numerics(weight_zero_point=True)
    rounder: Rounder = ROUNDERS["coordinate"]()
    done = rounded(LayerScheme(rounder, scheme, numerics), source, "b", moments, moments)
    quant = done.weight.quant
    assert done.weight.codes.shape == tensor.shape and done.weight.codes.dtype == np.dtype(quant.dtype)
    assert len(quant.scale) == (4 if per == "channel" else 1) and done.used and done.now < 0.9 * done.was
    real = np.array(quant.scale)[:, None] * (done.weight.codes - np.array(quant.zero_point)[:, None])
    off = (tensor - real) @ (columns[0].T / 2**fraction)
    assert done.weight.shift is not None
    np.testing.assert_allclose(done.weight.shift, 0.5 * off.mean(1), rtol=1e-9, atol=1e-9)
    nearest = LayerScheme(ROUNDERS["nearest"](), scheme, numerics)
    plain = rounded(nearest, source, "b", moments, None)
    assert plain.was == plain.now and not plain.used
    assert off.var(1).sum() < _error(plain.weight, tensor, columns[0] / 2**fraction)


@pytest.mark.parametrize("bias", ["", "b"])
def test_moved_weights_make_up_for_what_the_layers_above_lost(bias: str) -> None:
    """A layer that reads damaged columns comes closer to the float layer's outputs
    than with its own weights."""
    rng = np.random.default_rng(8)
    x = rng.normal(1.0, 1.0, size=(500, 8)) @ rng.normal(size=(8, 8))
    seen = 0.8 * x + 0.3 * rng.normal(size=x.shape) + 0.2
    real, other = (np.rint(a * 2**6).astype(np.int16)[None] for a in (x, seen))
    tensor = rng.normal(size=(5, 8)).astype(np.float32)
    moments = of_columns([other], 6)
    assert moments is not None
    aim = aimed([real], [other], moments, bool(bias))
    np.testing.assert_allclose(aim.mean[0], real[0].mean(0) / 64)
    source = Matrix(tensor, np.arange(40).reshape(1, 5, 8), 0, 1.0, ("layer",), "gemm")

    def off(one: Any) -> float:
        weight = one.weight
        made = np.array(weight.quant.scale)[:, None] * weight.codes
        found = made @ other[0].T / 64 + (weight.shift[:, None] if weight.shift is not None else 0.0)
        return float(((found - tensor @ real[0].T / 64) ** 2).sum())

    scheme = LayerScheme(ROUNDERS["coordinate"](), Weights(bits=4), Numerics())
    plain, better = (rounded(scheme, source, bias, moments, None, Wanted(a)) for a in (None, aim))
    assert off(better) < 0.5 * off(plain)


def test_a_layer_makes_up_for_what_its_outputs_are_added_to() -> None:
    rng = np.random.default_rng(9)
    seen = np.rint(rng.normal(1.0, 1.0, size=(400, 8)) * 2**6).astype(np.int16)[None]
    tensor = rng.normal(size=(5, 8)).astype(np.float32)
    lacking = (seen[0] / 64) @ rng.normal(size=(8, 5)) * 0.3 + 0.5
    moments = of_columns([seen], 6)
    assert moments is not None
    source = Matrix(tensor, np.arange(40).reshape(1, 5, 8), 0, 1.0, ("layer",), "gemm")
    aim = aimed([seen], [seen], moments, True, [lacking[None]])
    keep = rng.random((1, 5, 8)) < 0.7
    for mask in (None, LayerMask(keep, 0.01)):
        errors = []
        for wanted in (Wanted(mask=mask), Wanted(aim, mask)):
            nearest = LayerScheme(ROUNDERS["nearest"](), Weights(bits=8), Numerics())
            weight = rounded(nearest, source, "b", moments, None, wanted).weight
            assert weight.shift is not None
            made = np.array(weight.quant.scale)[:, None] * weight.codes @ (seen[0].T / 64)
            errors.append(((made + weight.shift[:, None] - tensor @ (seen[0].T / 64) - lacking.T) ** 2).sum())
        assert errors[1] < 0.6 * errors[0]


def test_zeros_that_the_model_brings_along_stay_where_the_target_skips_them() -> None:
    rng = np.random.default_rng(10)
    x = np.rint(rng.normal(size=(300, 8)) @ rng.normal(size=(8, 8)) * 2**6).astype(np.int16)[None]
    tensor = rng.normal(size=(5, 8)).astype(np.float32)
    tensor[:, [0, 2, 5, 7]] = 0.0
    moments = of_columns([x], 6)
    source = Matrix(tensor, np.arange(40).reshape(1, 5, 8), 0, 1.0, ("layer",), "gemm")
    assert moments is not None
    held = []
    for numerics in (Numerics(weight_bits=(4, 8)), Numerics(weight_bits=(4, 8), sparsity="2:4")):
        scheme = LayerScheme(ROUNDERS["coordinate"](), Weights(bits=4), numerics)
        done = rounded(scheme, source, "", moments, None)
        held.append(Pattern(2, 4).holds(done.weight.codes))
    assert held == [False, True]


def _error(weight: Any, tensor: Any, x: Any) -> float:
    real = np.array(weight.quant.scale)[:, None] * (weight.codes - np.array(weight.quant.zero_point)[:, None])
    return float(((tensor - real) @ x.T).var(1).sum())
