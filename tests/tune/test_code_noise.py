"""Noise of codes is that of the numbers that they stand for."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from npuflow.ir.codes import decode, encode
from npuflow.ir.types import FloatType, QuantType
from npuflow.tune.code_noise import coded_noise
from npuflow.tune.error import noise

TYPES = (
    QuantType(8, True, (float(np.float32(0.03)),)),
    QuantType(8, False, (float(np.float32(0.011)),), (131,)),
    QuantType(16, True, (float(np.float32(2e-4)),), (-900,)),
    QuantType(8, True, (0.03,)),                      # a scale that is no float32
    QuantType(8, True, (0.03, 0.5, 0.011), (0, 0, 0), axis=1),
    FloatType(16, False, (1.0,), element="bfloat16"),
)


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10_000), quant=st.sampled_from(TYPES), lost=st.sampled_from(("", "nan", "inf")))
def test_codes_are_as_noisy_as_their_numbers(seed: int, quant: QuantType, lost: str) -> None:
    rng = np.random.default_rng(seed)
    real = [rng.normal(size=(1, 3, 5, int(rng.integers(1, 9)))).astype(np.float32) for _ in range(3)]
    codes = [encode(array + rng.normal(size=array.shape) / 50, quant) for array in real]
    if lost:
        real[1][0, 1, 2, 0] = np.float32(lost)
    found, wanted = coded_noise(real, codes, quant), noise(real, [decode(one, quant) for one in codes])
    assert found == pytest.approx(wanted, rel=1e-9)


def test_numbers_without_codes_other_shapes_and_other_orders() -> None:
    real = np.random.default_rng(1).normal(size=(1, 4, 6, 6)).astype(np.float32)
    assert coded_noise([real], [real + 1], None) == noise([real], [real + 1])
    quant = TYPES[0]
    codes = encode(real, quant)
    assert coded_noise([real], [codes[:, :2]], quant) == noise([real], [real[:, :2]]) == 1.0
    turned = codes.transpose(0, 1, 3, 2)
    wanted = noise([real.transpose(0, 1, 3, 2)], [decode(turned, quant)])
    assert coded_noise([real.transpose(0, 1, 3, 2)], [turned], quant) == pytest.approx(wanted, rel=1e-9)
