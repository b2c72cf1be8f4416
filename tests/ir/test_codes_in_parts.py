"""Numbers become codes some at a time: the same as all at once."""

from __future__ import annotations

import numpy as np
import pytest

from npuflow.hw import floats
from npuflow.ir import codes
from npuflow.ir.types import QuantType, float_type

REAL = np.random.default_rng(1).normal(size=(1, 37, 11)).astype(np.float32)
KINDS = [
    float_type("bfloat16"), float_type("float16"), QuantType(8, True, (0.02,), (3,)),
    QuantType(8, True, tuple(np.linspace(0.01, 0.05, 37)), (0,) * 37, axis=1),
    QuantType(8, True, tuple(np.linspace(0.01, 0.05, 11)), (0,) * 11, axis=2),
]


@pytest.mark.parametrize("quant", KINDS)
@pytest.mark.parametrize("shape", [(1, 37, 11), (37, 11)])
def test_parts_of_an_array(quant: QuantType, shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    axis = None if quant.axis is None else quant.axis - 3 + len(shape)
    kind, real = quant.with_(axis=axis), REAL.reshape(shape)
    whole = codes.encode(real, kind)
    back = codes.decode(whole, kind)
    monkeypatch.setattr(codes, "AT_ONCE", 50)
    monkeypatch.setattr(floats, "AT_ONCE", 50)
    assert len([*codes._parts(shape)]) > 5
    np.testing.assert_array_equal(codes.encode(real, kind), whole)
    np.testing.assert_array_equal(codes.decode(whole, kind), back)
