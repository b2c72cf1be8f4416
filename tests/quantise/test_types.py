"""Scales and zero points of activations and weights."""

from __future__ import annotations

from math import log2

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from npuflow.base.errors import TargetError
from npuflow.hw.target import Numerics
from npuflow.ir.codes import encode
from npuflow.ir.op import OPS
from npuflow.quantise.config import Activations, Quantize, Weights, activation_grid
from npuflow.quantise.types import activation_type, in_whole_steps, weight_type
from npuflow.testing.quantised import quantize_graph
from tests.networks.floats import Net, integers

ends = st.floats(-1e4, 1e4).filter(lambda v: v == 0 or abs(v) > 1e-3)


@given(
    ends,
    ends,
    st.integers(2, 16),
    st.booleans(),
    st.booleans(),
    st.booleans(),
    st.sampled_from([None, True, False]),
)
def test_the_codes_cover_the_range_and_zero(
    a: float, b: float, bits: int, symmetric: bool, pow2: bool, narrow: bool, signed: bool | None
) -> None:
    lo, hi = min(a, b), max(a, b)
    # asked for, but no code is negative there
    assume(not (symmetric and signed is False and lo < 0))
    scheme = Activations(bits=bits, symmetric=symmetric, signed=signed, narrow=narrow)
    quant = activation_type(lo, hi, activation_grid(scheme, Numerics(power_of_two=pow2)), signed is None)
    scale, zero = quant.scale[0], quant.zero_point[0]
    assert quant.lo <= zero <= quant.hi                                # zero is exact
    assert scale * (quant.lo - zero) <= min(lo, 0) + 0.51 * scale
    assert scale * (quant.hi - zero) >= max(hi, 0) - 0.51 * scale
    assert not pow2 or log2(scale).is_integer()
    assert not symmetric or zero == 0
    assert signed is not True or quant.signed


@given(ends, ends, st.integers(3, 16))
def test_scales_are_no_wider_than_they_must_be(a: float, b: float, bits: int) -> None:
    lo, hi = min(a, b, 0.0), max(a, b, 0.0)
    quant = activation_type(lo, hi, activation_grid(Activations(bits=bits), Numerics()))
    if hi > lo:
        assert quant.scale[0] == pytest.approx((hi - lo) / (2**bits - 1), rel=1e-6)


def test_targets_restrict_the_codes() -> None:
    def grid(**restricted: bool) -> tuple[bool, bool]:
        found = activation_grid(Activations(), Numerics(**restricted))  # type: ignore[arg-type]
        return found.signed, found.symmetric

    assert grid() == (False, False)
    assert grid(unsigned_activations=False) == (True, False)
    assert grid(activation_zero_point=False) == (True, True)
    # A symmetric tensor without negative values spends no code on a sign where the target can do without.
    relu = activation_type(0.0, 6.0, activation_grid(Activations(symmetric=True), Numerics()))
    assert (relu.signed, relu.zero_point, relu.hi) == (False, (0,), 255)


def test_widths_beyond_the_target_are_refused() -> None:
    with pytest.raises(TargetError, match="activations of 12 bits; the target computes with 8"):
        activation_grid(Activations(bits=12), Numerics(activation_bits=(8,)))
    with pytest.raises(TargetError, match="weights of 12 bits"):
        weight_type(np.ones(3), None, Weights(bits=12), Numerics())


def test_negative_values_need_negative_codes() -> None:
    grid = activation_grid(Activations(symmetric=True, signed=False), Numerics())
    with pytest.raises(TargetError, match="negative values"):
        activation_type(-1.0, 1.0, grid, both_signs=False)
    assert activation_type(-1e-6, 1.0, grid, both_signs=False).lo == 0


def test_no_range_no_scale() -> None:
    grid = activation_grid(Activations(), Numerics())
    for lo, hi in ((float("nan"), 1.0), (0.0, float("inf")), (1.0, -1.0)):
        with pytest.raises(TargetError, match="no quantisation for the range"):
            activation_type(lo, hi, grid)
    assert activation_type(0.0, 0.0, grid).scale[0] > 0


@given(st.integers(2, 8), st.booleans(), st.booleans(), st.booleans(), st.integers(0, 1000))
def test_weights_lose_at_most_half_a_step(
    bits: int, symmetric: bool, narrow: bool, channelwise: bool, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    real = rng.normal(0.2, 1.0, (4, 6)) * np.exp(rng.normal(0, 2, (4, 1)))
    scheme = Weights(
        bits=bits, symmetric=symmetric, narrow=narrow, per="channel" if channelwise else "tensor"
    )
    quant = weight_type(real, 0, scheme, Numerics(weight_zero_point=True))
    scale, zero = np.array(quant.scale)[:, None], np.array(quant.zero_point)[:, None]
    codes = encode(real, quant)
    assert codes.min() >= quant.lo and codes.max() <= quant.hi
    assert np.all(
        np.abs(scale * (codes.astype(float) - zero) - real)
        <= 0.5001 * scale + (0 if symmetric else 0.5001) * scale
    )
    assert len(quant.scale) == (4 if channelwise else 1)


def test_a_channel_of_zeros_takes_the_largest_scale() -> None:
    quant = weight_type(np.array([[0.0, 0.0], [1.0, -2.0], [0.5, 0.1]]), 0, Weights(), Numerics())
    assert quant.scale[0] == max(quant.scale)


def test_narrow_types_leave_out_the_lowest_code() -> None:
    quant = weight_type(np.array([-1.0, 1.0]), None, Weights(narrow=True), Numerics())
    assert (quant.lo, quant.hi) == (-127, 127)
    assert encode(np.array([-1.0, 1.0]), quant).tolist() == [-127, 127]


@given(st.floats(1e-3, 1e3), st.integers(4, 16), st.booleans())
def test_scales_in_whole_steps_are_one_over_a_whole_number_and_lose_no_range(
    hi: float, bits: int, pow2: bool
) -> None:
    grid = activation_grid(Activations(bits=bits, symmetric=False), Numerics(power_of_two=pow2))
    quant = activation_type(0.0, hi, grid)
    made = in_whole_steps(quant)
    assert in_whole_steps(made) == made
    assert quant.scale[0] * (1 - 1e-6) <= made.scale[0] < max(2 * quant.scale[0], 1.0 + quant.scale[0])
    if quant.scale[0] > 1.0 or pow2:
        assert made == quant
    else:
        assert 1.0 / made.scale[0] == pytest.approx(round(1.0 / made.scale[0]), rel=1e-6)


@pytest.mark.parametrize("moved", [False, True])
def test_softmax_has_no_bias_whatever_the_range_of_its_results(moved: bool) -> None:
    """With a scale of 1 / 259.4 the integers computed with 259: at the top half a code was missing."""
    net = Net(3, 1, 256, 4)
    made = net.add("p", OPS["softmax"](axis=-1), "x")
    made = net.add("q", OPS["reshape"]((1, 4, 256)), made) if moved else made
    graph = net.graph(made)
    ranges = {"x": (-5.0, 5.0), **dict.fromkeys(("p", "q")[: 1 + moved], (0.0, 0.98287))}
    found = quantize_graph(graph, lambda _: True, ranges, Quantize(), Numerics()).graph
    feed = {"x": (2.0 * net.rng.normal(size=(1, 256, 4))).astype(np.float32)}
    values = integers(found, feed)
    (last,) = [n for n in found.nodes if type(n.op) is OPS["softmax"]]
    scale = found.values[last.outputs[0]].quant.scale[0]
    (want,) = last.op.reference(values[last.inputs[0]])
    off = (values[last.outputs[0]] - np.clip(want, 0, 255 * scale)) / scale
    assert abs(off.mean()) < 0.02 and np.abs(off).max() <= 0.51
    top = off[want > 0.8]
    assert top.size > 20 and abs(top.mean()) < 0.1
