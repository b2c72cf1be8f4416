"""Fourier transforms of rows, and what may be done with complex numbers behind them.

A complex tensor is two values, its real and its imaginary part, each of the tensor's shape. The part that
nothing reads is no part of the network.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from npuflow.frontends.tflite.network import TfliteBuilder, TfliteOperatorError
from npuflow.frontends.tflite.schema import COMPLEX, Operator
from npuflow.ir.types import Array

REAL, IMAGINARY = "real", "imaginary"
LARGEST = 1 << 24                         # elements of a matrix


def transform(builder: TfliteBuilder, operator: Operator) -> None:
    """RFFT2D of single rows, [..., 1, n] by a length of [1, m]: products with m x (m // 2 + 1) cosines and
    sines; rows are cut to m, or filled with zeros.

    Source: tensorflow/lite/kernels/rfft2d.cc.
    """
    source, result = operator.inputs[0], operator.outputs[0]
    shape = builder.tensor(source).shape
    rows, size = builder.ints(operator, 1, "a length")
    if rows != 1 or shape[-2] != 1:
        raise TfliteOperatorError(f"of {shape[-2]} rows at once, by {rows} x {size}")
    count = min(shape[-1], size)
    if count * (size // 2 + 1) > LARGEST:
        raise TfliteOperatorError(f"of {size} numbers")
    matrix = waves(shape[-1], size)
    x = builder.value(source)
    made = {
        part: builder.node("MatMul", [x, builder.constant(values)])
        for part, values in ((REAL, matrix.real), (IMAGINARY, matrix.imag))
    }
    builder.forms[result] = made


def waves(count: int, size: int) -> Array:
    """exp(-2 pi i n k / size), [count, size // 2 + 1]; 0 from `size` on. Whole turns are taken off before,
    so that angles are exact."""
    turns = np.outer(np.arange(count), np.arange(size // 2 + 1)) % size
    found: Array = np.exp(-2j * np.pi * turns / size) * (np.arange(count) < size)[:, None]
    return found


def reshaped(builder: TfliteBuilder, operator: Operator) -> None:
    source, result = operator.inputs[0], operator.outputs[0]
    shape = builder.tensor(result).shape
    builder.forms[result] = {
        part: builder.node("Reshape", [value, builder.shape(shape)])
        for part, value in builder.forms[source].items()
    }


def transposed(builder: TfliteBuilder, operator: Operator) -> None:
    perm = builder.ints(operator, 1, "a permutation")
    builder.forms[operator.outputs[0]] = {
        part: builder.node("Transpose", [value], perm=perm)
        for part, value in builder.forms[operator.inputs[0]].items()
    }


def part(name: str) -> Callable[[TfliteBuilder, Operator], None]:
    """The converter of an operator that gives one of the parts."""
    def convert(builder: TfliteBuilder, operator: Operator) -> None:
        result = operator.outputs[0]
        if builder.tensor(result).dtype != "float32":
            raise TfliteOperatorError(f"complex numbers as {builder.tensor(result).dtype}")
        builder.node("Identity", [builder.forms[operator.inputs[0]][name]], builder.result(result))

    return convert


def magnitude(builder: TfliteBuilder, operator: Operator) -> None:
    values = builder.forms[operator.inputs[0]]
    squares = [builder.node("Mul", [values[name], values[name]]) for name in (REAL, IMAGINARY)]
    builder.node("Sqrt", [builder.node("Add", squares)], builder.result(operator.outputs[0]))


SPECTRA: dict[str, Callable[[TfliteBuilder, Operator], None]] = {
    "RFFT2D": transform,
    **dict.fromkeys(("RESHAPE", "SQUEEZE", "EXPAND_DIMS"), reshaped),
    "TRANSPOSE": transposed,
    **dict.fromkeys(("CAST", "REAL"), part(REAL)),      # a cast keeps the real part
    "IMAG": part(IMAGINARY),
    "COMPLEX_ABS": magnitude,
}
"""Converters of operators that read or give complex numbers."""


def is_complex(builder: TfliteBuilder, operator: Operator) -> bool:
    """Whether an operator reads or gives any."""
    every = (*operator.inputs, *operator.outputs)
    return any(builder.tensor(index).dtype == COMPLEX for index in every if index >= 0)
