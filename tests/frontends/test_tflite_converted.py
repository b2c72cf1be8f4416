"""Every builtin operator that TensorFlow's converter writes, in floats and codes, against LiteRT's outputs.

The models and outputs are those that `tflite_converted.py` stored.
"""

from __future__ import annotations

from collections import Counter

import pytest

pytest.importorskip("tflite", reason="npuflow[tflite] is not installed")

from npuflow.base.errors import ModelError
from tests.frontends.tflite_converted import stored
from tests.frontends.tflite_judged import off_by

CASES = stored()
MOST = {"float": 1e-4, "int8": 1.01, "int16": 1.01}
COMPLEX = "RFFT2D: of 4 rows at once"
RULES = "its table has 16-bit codes of another interpolation than LiteRT's"
WIDE = "16-bit operands, products in 64 bits in LiteRT"
# What cannot be read, and why.
REFUSED = {
    "float ATAN2": "no ONNX operator",
    "float RIGHT_SHIFT": "ONNX shifts unsigned integers only",
    "float BITCAST": "no ONNX operator",
    "float RANGE": "its shape depends on data",
    "float NON_MAX_SUPPRESSION_V5": "scores that fall with the overlap",
    "float RFFT2D": COMPLEX,
    "float COMPLEX_ABS": COMPLEX,
    "float REAL": COMPLEX,
    "float IMAG": COMPLEX,
    "float IF": "its condition depends on data",
}
# int16 codes that differ by more than one, by how many, and why.
APART = {
    "int16 EXP": (4, RULES),
    "int16 TANH": (2, RULES),
    "int16 LOG": (14, RULES),
    "int16 RSQRT": (15, RULES),
    "int16 GELU": (3, RULES),
    "int16 GELU tanh": (3, RULES),
    "int16 SOFTMAX image": (2, RULES),
    "int16 TRANSPOSE_CONV": (126, WIDE),
    "int16 TRANSPOSE_CONV valid": (126, WIDE),
    "int16 BATCH_MATMUL constant": (93, WIDE),
    "int16 RESIZE_BILINEAR odd": (101, "shares of pixels have the target's bits"),
    "int16 RESIZE_BILINEAR align": (193, "shares of pixels have the target's bits"),
    "int16 RESIZE_BILINEAR plain": (190, "shares of pixels have the target's bits"),
}


@pytest.mark.parametrize("name", [name for name in CASES if name not in REFUSED])
def test_an_operator_gives_litert_s_outputs(name: str) -> None:
    most = APART[name][0] if name in APART else MOST[name.split()[0]]
    assert off_by(CASES[name]) <= most


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_read_is_one_error(name: str) -> None:
    with pytest.raises(ModelError, match="cannot be converted") as fault:
        off_by(CASES[name])
    wanted = COMPLEX if REFUSED[name] == COMPLEX else name.split()[1]
    assert wanted in fault.value.because


def test_nine_of_ten_cases_of_floats_and_of_int8_are_right() -> None:
    every = Counter(name.split()[0] for name in CASES)
    missed = Counter(name.split()[0] for name in (*REFUSED, *APART))
    assert every["float"] >= 200 and every["int8"] >= 130
    assert missed["float"] <= every["float"] / 10 and missed["int8"] <= every["int8"] / 10
