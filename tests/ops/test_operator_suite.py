"""Every operator through the published suite, on its own samples."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import get_args

import numpy as np
import pytest

from npuflow.base.errors import TargetError
from npuflow.hw.target import Compute, Dma, Memory, Numerics, Rounding, Target
from npuflow.ir.op import OPS, OpSample
from npuflow.ops._table import TableOp
from npuflow.quantise.config import Activations, Quantize, Weights
from npuflow.run.interpret import interpret
from npuflow.testing.op import (
    OpSuite,
    check_infer,
    check_integer,
    check_onnx,
    check_text,
    check_tiles,
    quantised,
    samples,
)
from tests.tiers import often, spread

NAMES = [name for name in OPS.names() if name != "host"]
ARITHMETIC = [
    "add",
    "averagepool",
    "conv",
    "convtranspose",
    "div",
    "gemm",
    "globalaveragepool",
    "globalmaxpool",
    "matmul",
    "max",
    "maxpool",
    "min",
    "mul",
    "prelu",
    "reducemax",
    "reducemean",
    "reducesum",
    "sub",
]
BOUNDARIES = ("quantizelinear", "dequantizelinear")
WIDE = Numerics(acc_bits=48, weight_bits=(8, 16), weight_zero_point=True)
SCHEMES = {
    "8 bits": Quantize(),
    "8 bits signed": Quantize(activations=Activations(signed=True)),
    "8 bits symmetric": Quantize(activations=Activations(symmetric=True), weights=Weights(narrow=True)),
    "per tensor": Quantize(weights=Weights(per="tensor")),
    "asymmetric weights": Quantize(weights=Weights(symmetric=False, signed=False)),
    "asymmetric signed weights": Quantize(weights=Weights(symmetric=False)),
    "4 bit weights": Quantize(weights=Weights(bits=4), activations=Activations(bits=6)),
    "16 bit activations": Quantize(activations=Activations(bits=16)),
    "16 bit weights": Quantize(weights=Weights(bits=16), activations=Activations(bits=16, symmetric=True)),
}


@pytest.mark.parametrize("name", NAMES)
def test_infer_states_what_reference_makes(name: str) -> None:
    for sample in samples(name):
        check_infer(sample)


@pytest.mark.parametrize("name", [n for n in NAMES if n not in BOUNDARIES])
def test_reference_matches_onnxruntime(name: str) -> None:
    for sample in samples(name):
        check_onnx(sample)


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("name", ARITHMETIC)
def test_integers_match_the_float_reference(name: str, scheme: str) -> None:
    for sample in samples(name):
        check_integer(sample, WIDE, SCHEMES[scheme])


@pytest.mark.parametrize("name", [n for n in NAMES if n not in BOUNDARIES and n not in ARITHMETIC])
def test_8_bit_integers_match_the_float_reference(name: str) -> None:
    for sample in samples(name):
        check_integer(sample, WIDE, Quantize())


JUMPING = ("acosh", "ceil", "floor", "mod", "round", "shrink", "thresholdedrelu")


@pytest.mark.parametrize("name", [n for n in NAMES if issubclass(OPS[n], TableOp)])
def test_16_bit_tables_are_within_one_code_or_refused(name: str) -> None:
    """Interpolation rounds once; a function that no table of that size follows is refused
    with the distance in codes."""
    scheme = Quantize(activations=Activations(bits=16))
    for sample in samples(name):
        if name in JUMPING:
            with pytest.raises(TargetError, match=r"a table of \d+ entries is up to \d+ codes off"):
                check_integer(sample, WIDE, scheme)
            continue
        check_integer(sample, WIDE, scheme)
        check_tiles(sample, small(1 << 14), scheme)


def test_a_wide_gate_of_16_bits_is_not_refused() -> None:
    """A tanh over +-60, as in recurrent layers: some codes of error between table entries,
    far less than one of 8 bits."""
    sample = OpSample(OPS["tanh"](), (np.linspace(-60, 60, 4001, dtype=np.float32),))
    graph, one = quantised(sample, Numerics(), Quantize(activations=Activations(bits=16), trim=False))
    (real,) = sample.op.reference(*sample.inputs)
    made = interpret(graph, one.inputs, Numerics())[graph.outputs[0]]
    assert np.abs(real - made).max() < 65 / (1 << 15)


def test_softmax_over_many_classes_keeps_its_small_probabilities() -> None:
    """A thousand classes of 8 bits: the scale follows the largest probability seen, not 1."""
    rng = np.random.default_rng(3)
    sample = OpSample(OPS["softmax"](-1), (rng.normal(size=(4, 1000)).astype(np.float32),))
    check_integer(sample, WIDE, Quantize())
    graph, one = quantised(sample, WIDE, Quantize())
    (real,) = sample.op.reference(*sample.inputs)
    made = interpret(graph, one.inputs, WIDE)[graph.outputs[0]]
    assert 0.009 < real.max() < 0.05                    # on a scale of 1/255 nearly all codes would be 0
    assert 10 * np.log10((real**2).sum() / ((real - made) ** 2).sum()) > 25


TARGETS = {
    "half_even": Numerics(rounding="half_even"),
    "half_away": Numerics(rounding="half_away"),
    "truncate": Numerics(rounding="truncate"),
    "16 bit multipliers": Numerics(multiplier_bits=16, bias_bits=16, bias_shift_max=8),
    "8 bit multipliers": Numerics(multiplier_bits=8, bias_bits=16, bias_shift_max=8),
    "shifted bias": Numerics(bias_bits=8, bias_shift_max=12, acc_bits=48),
    "powers of two": Numerics(
        multiplier_bits=1,
        power_of_two=True,
        per_channel_weights=False,
        shift_left_max=8,
        activation_zero_point=False,
    ),
    "means of 8 bits": Numerics(
        multiplier_bits=1, mean_bits=8, power_of_two=True, per_channel_weights=False, shift_left_max=8,
        activation_zero_point=False,
    ),
    "unsigned only": Numerics(signed_activations=False),
    "signed only": Numerics(unsigned_activations=False),
}
# A bias of 8 bits loses up to half of 2^k accumulator units, means of 3 are no power of two, products of two
# arbitrary ranges need more than a shift.
MEANS = ("averagepool", "globalaveragepool", "reducemean")
POWERS = (
    "conv",
    "convtranspose",
    "gemm",
    "matmul",
    "maxpool",
    "max",
    "min",
    "reducemax",
    "globalmaxpool",
    "add",
    "sub",
    "mul",
    "prelu",
)
EXACT = {"powers of two": POWERS, "means of 8 bits": (*POWERS, *MEANS)}


@pytest.mark.parametrize("multiplier_bits", [16, 32])
@pytest.mark.parametrize(("spread", "rounding"), spread([0.01, 1.0], get_args(Rounding), 2))
def test_prelu_keeps_slopes_of_16_bits(spread: float, rounding: Rounding, multiplier_bits: int) -> None:
    """Each side of zero has a multiplier and a shift of its own: a small slope is as exact as 1."""
    scheme, arithmetic = (
        Quantize(activations=Activations(bits=16)),
        replace(WIDE, multiplier_bits=multiplier_bits),
    )
    rng = np.random.default_rng(0)
    for _ in range(4):
        x, slope = (
            rng.normal(-1, 1, (2, 3, 5)).astype(np.float32),
            rng.normal(0, spread, (3, 1)).astype(np.float32),
        )
        sample = OpSample(OPS["prelu"](), (x, slope), (1,))
        assert check_integer(sample, replace(arithmetic, rounding=rounding), scheme) <= 1
        check_tiles(sample, small(4096, replace(arithmetic, rounding=rounding)), scheme)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", ARITHMETIC)
def test_integers_on_other_arithmetic(name: str, target: str) -> None:
    if target in EXACT and name not in EXACT[target]:
        pytest.skip("its multipliers are no powers of two: refused by accepts or by the quantiser")
    for sample in samples(name):
        check_integer(sample, TARGETS[target], Quantize())


@pytest.mark.parametrize("name", [n for n in NAMES if n not in BOUNDARIES])
def test_text_round_trip(name: str) -> None:
    for sample in samples(name):
        check_text(sample, WIDE, Quantize())


def small(local_bytes: int, numerics: Numerics = WIDE) -> Target:
    """A target so small that most samples take several tiles."""
    return Target(
        compute=Compute(array_rows=4, array_cols=4, depthwise_macs=4, vector_lanes=4),
        numerics=numerics,
        memory=Memory(local_bytes=local_bytes, local_align=16, burst=16, external_bytes=1 << 24),
        dma=Dma(setup_cycles=8),
    )


@pytest.mark.parametrize(
    ("name", "local_bytes"),
    often(product([n for n in NAMES if n not in BOUNDARIES], [1 << 16, 2048, 512]), 11),
)
def test_any_tiling_equals_the_specification(name: str, local_bytes: int) -> None:
    """Generated, encoded and simulated: bit for bit; a layer too large for the
    memory is refused with numbers."""
    for sample in samples(name):
        try:
            check_tiles(sample, small(local_bytes), Quantize())
        except TargetError as error:
            assert local_bytes < 4096 and "needs" in error.message, f"{sample.op}: {error}"


@pytest.mark.parametrize(
    ("name", "scheme"), often(product(ARITHMETIC, [s for s in SCHEMES if s != "8 bits"]), 13)
)
def test_other_schemes_simulate_exactly(name: str, scheme: str) -> None:
    for sample in samples(name):
        check_tiles(sample, small(4096), SCHEMES[scheme])


@pytest.mark.parametrize(("name", "target"), often(product(POWERS, TARGETS), 11))
def test_other_arithmetic_simulates_exactly(name: str, target: str) -> None:
    for sample in samples(name):
        check_tiles(sample, small(4096, TARGETS[target]), Quantize())


class TestConvByTheSuite(OpSuite):
    """The suite as a plug-in's author would use it."""

    name = "conv"
