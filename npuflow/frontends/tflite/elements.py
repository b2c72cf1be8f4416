"""Operators that work element by element, and those between floats and codes."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from npuflow.frontends.tflite.network import (
    PLAIN,
    TfliteBuilder,
    TfliteOperatorError,
    along,
    element,
    quant_of,
    quant_type,
    real,
)
from npuflow.frontends.tflite.schema import Codes, Operator
from npuflow.ir.types import Array, QuantType, span

ONE_TO_ONE = {
    "ABS": "Abs",
    "CEIL": "Ceil",
    "COS": "Cos",
    "ELU": "Elu",
    "EXP": "Exp",
    "FLOOR": "Floor",
    "HARD_SWISH": "HardSwish",
    "LOG": "Log",
    "LOGICAL_NOT": "Not",
    "LOGISTIC": "Sigmoid",
    "NEG": "Neg",
    "RELU": "Relu",
    "ROUND": "Round",
    "SIGN": "Sign",
    "SIN": "Sin",
    "SQRT": "Sqrt",
    "TANH": "Tanh",
    "ADD": "Add",
    "SUB": "Sub",
    "MUL": "Mul",
    "DIV": "Div",
    "MAXIMUM": "Max",
    "MINIMUM": "Min",
    "POW": "Pow",
    "PRELU": "PRelu",
    "ADD_N": "Sum",
    "EQUAL": "Equal",
    "GREATER": "Greater",
    "GREATER_EQUAL": "GreaterOrEqual",
    "LESS": "Less",
    "LESS_EQUAL": "LessOrEqual",
    "LOGICAL_AND": "And",
    "LOGICAL_OR": "Or",
    "SELECT_V2": "Where",
    "BITWISE_XOR": "BitwiseXor",
}
CLIPS = {"RELU6": (0.0, 6.0), "RELU_N1_TO_1": (-1.0, 1.0), "RELU_0_TO_1": (0.0, 1.0)}


def operands(builder: TfliteBuilder, operator: Operator) -> tuple[list[str], str]:
    """Names of all operands in one layout, and the layout."""
    layout = builder.layout(operator.inputs)
    return [builder.value(i, layout) for i in operator.inputs], layout


def plain(kind: str, builder: TfliteBuilder, operator: Operator, **attributes: Any) -> None:
    """The ONNX operator of the same meaning, and the fused activation."""
    inputs, layout = operands(builder, operator)
    activation = operator.options.get("FusedActivationFunction", 0)
    builder.node(kind, inputs, builder.result(operator.outputs[0], layout, activation), **attributes)


def clip(builder: TfliteBuilder, operator: Operator) -> None:
    (x,), layout = operands(builder, operator)
    bounds = [builder.constant(bound) for bound in CLIPS[operator.name]]
    builder.node("Clip", [x, *bounds], builder.result(operator.outputs[0], layout))


def leaky(builder: TfliteBuilder, operator: Operator) -> None:
    plain("LeakyRelu", builder, operator, alpha=float(operator.options.get("Alpha", 0.0)))


def gelu(builder: TfliteBuilder, operator: Operator) -> None:
    plain("Gelu", builder, operator, approximate="tanh" if operator.options.get("Approximate") else "none")


def rsqrt(builder: TfliteBuilder, operator: Operator) -> None:
    (x,), layout = operands(builder, operator)
    half = builder.constant(-0.5)                      # one function, which one table of codes serves
    builder.node("Pow", [x, half], builder.result(operator.outputs[0], layout))


def square(builder: TfliteBuilder, operator: Operator) -> None:
    (x,), layout = operands(builder, operator)
    builder.node("Mul", [x, x], builder.result(operator.outputs[0], layout))


def squared_difference(builder: TfliteBuilder, operator: Operator) -> None:
    inputs, layout = operands(builder, operator)
    difference = builder.node("Sub", inputs)
    kinds = [quant_of(c, t) for t in map(builder.tensor, operator.inputs) if (c := builder.activation(t))]
    if len(kinds) == len(inputs) and None not in kinds:
        # of codes: the difference has 16 bits, so that only the result is rounded
        ends = [span(kind) for kind in kinds if kind is not None]
        largest = max(ends[0][1] - ends[1][0], ends[1][1] - ends[0][0])
        step = float(np.float32(largest / 32767))
        builder.graph.state(difference, QuantType(16, True, (step,), (0,), None))
    builder.node("Mul", [difference, difference], builder.result(operator.outputs[0], layout))


def not_equal(builder: TfliteBuilder, operator: Operator) -> None:
    inputs, layout = operands(builder, operator)
    builder.node("Not", [builder.node("Equal", inputs)], builder.result(operator.outputs[0], layout))


def floor_div(builder: TfliteBuilder, operator: Operator) -> None:
    inputs, layout = operands(builder, operator)
    if builder.tensor(operator.outputs[0]).dtype != "float32":
        # ONNX divides towards zero: one less where the rest has another sign than the divisor
        result, (x, y) = builder.result(operator.outputs[0], layout), inputs
        whole = builder.node("Sub", [x, builder.node("Mod", [x, y])])
        builder.node("Div", [whole, y], result)
        return
    builder.node("Floor", [builder.node("Div", inputs)], builder.result(operator.outputs[0], layout))


def floor_mod(builder: TfliteBuilder, operator: Operator) -> None:
    (x, y), layout = operands(builder, operator)
    if builder.tensor(operator.outputs[0]).dtype != "float32":
        builder.node("Mod", [x, y], builder.result(operator.outputs[0], layout))
        return
    whole = builder.node("Mul", [builder.node("Floor", [builder.node("Div", [x, y])]), y])
    builder.node("Sub", [x, whole], builder.result(operator.outputs[0], layout))


def select(builder: TfliteBuilder, operator: Operator) -> None:
    """A condition of one dimension chooses rows."""
    condition, *rest = operator.inputs
    rank = len(builder.tensor(operator.outputs[0]).shape)
    if len(builder.tensor(condition).shape) == rank:
        plain("Where", builder, operator)
        return
    sizes = [builder.tensor(condition).shape[0], *[1] * (rank - 1)] if builder.tensor(condition).shape else []
    chosen = builder.node("Reshape", [builder.value(condition), builder.shape(sizes)])
    builder.node("Where", [chosen, *map(builder.value, rest)], builder.result(operator.outputs[0]))


def zeros(builder: TfliteBuilder, operator: Operator) -> None:
    tensor = builder.tensor(operator.outputs[0])
    builder.folded[operator.outputs[0]] = np.zeros(tensor.shape, tensor.dtype)


def cast(builder: TfliteBuilder, operator: Operator) -> None:
    plain("Cast", builder, operator, to=element(builder.tensor(operator.outputs[0]).dtype))


def quantize(builder: TfliteBuilder, operator: Operator) -> None:
    """Floats are rounded where they are; codes are real numbers that are rounded again."""
    source, result = operator.inputs[0], operator.outputs[0]
    tensor, last = builder.tensor(result), result in builder.source.outputs
    codes = builder.activation(tensor)
    if codes is None:
        raise TfliteOperatorError(f"to {tensor.dtype} without scale")
    layout = builder.home(source)
    held = builder.data(source)
    if held is not None and builder.tensor(source).codes is None:
        rounded = codes_of(held, codes, tensor.dtype)
        if rounded is not None:
            builder.forms[result] = {PLAIN: builder.stored(rounded, codes, tensor)}
            return
    x = builder.value(source, layout)
    if builder.activation(builder.tensor(source)) is not None or (last and layout != PLAIN):
        builder.node("Identity", [x], builder.result(result, layout))
        return
    several, bound = builder.rounded_in_several_ways(source), builder.is_bound(x)
    if several or quant_of(codes, tensor) is None or (last and bound):
        back = tensor.name if last else builder.free(f"{tensor.name}:back")
        builder.forms[result] = {layout: builder.around_codes(tensor, codes, x, back)}
        return
    if last:
        builder.rename(x, tensor.name)
        x = tensor.name
    builder.forms[result] = {layout: builder.rounded(result, x, x)}


def dequantize(builder: TfliteBuilder, operator: Operator) -> None:
    source, result = operator.inputs[0], operator.outputs[0]
    held, codes = builder.data(source), builder.tensor(source).codes
    if held is not None and codes is None:                                    # weights of half precision
        builder.folded[result] = held.astype(np.float32)
    elif held is not None and codes is not None and builder.tensor(source).dtype in ("int32", "int64"):
        builder.folded[result] = real(held, codes)
    elif held is not None:
        builder.forms[result] = {PLAIN: builder.value(source)}
    elif builder.activation(builder.tensor(source)) is not None:
        builder.alias(source, result)
    else:
        plain("Cast", builder, operator, to=element("float32"))


def codes_of(held: Array, codes: Codes, dtype: str) -> Array | None:
    """The codes of float constants; None where they are no numbers."""
    quant = quant_type(codes, dtype)
    if held.dtype.kind != "f" or quant is None:
        return None
    scale, zero = along(codes, held.ndim)
    with np.errstate(all="ignore"):
        rounded = np.clip(np.rint(held / scale) + zero, quant.lo, quant.hi)
    return rounded.astype(quant.dtype) if np.isfinite(rounded).all() else None


ELEMENTS: dict[str, Callable[[TfliteBuilder, Operator], None]] = {
    **{name: partial(plain, kind) for name, kind in ONE_TO_ONE.items()},
    **dict.fromkeys(CLIPS, clip),
    "LEAKY_RELU": leaky,
    "GELU": gelu,
    "RSQRT": rsqrt,
    "SQUARE": square,
    "SQUARED_DIFFERENCE": squared_difference,
    "NOT_EQUAL": not_equal,
    "FLOOR_DIV": floor_div,
    "FLOOR_MOD": floor_mod,
    "SELECT": select,
    "CAST": cast,
    "ZEROS_LIKE": zeros,
    "QUANTIZE": quantize,
    "DEQUANTIZE": dequantize,
}
