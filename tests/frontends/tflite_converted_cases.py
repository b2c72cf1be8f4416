"""TensorFlow functions that the converter turns into each TFLite builtin operator, with their inputs.

`python -m tests.frontends.tflite_converted` converts them; this file needs TensorFlow.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

Shape = tuple[int, ...]
FLOAT, INTEGER = "float", "integer"
IMAGE: Shape = (1, 6, 8, 4)
FLAT: Shape = (3, 8)


@dataclass(frozen=True)
class Given:
    """An input: its shape, element type, and the interval of its random values."""

    shape: Shape
    dtype: str = "float32"
    low: float = -3.0
    high: float = 3.0

    def draw(self, rng: np.random.Generator) -> np.ndarray:
        if self.dtype == "float32":
            return rng.uniform(self.low, self.high, self.shape).astype(np.float32)
        if self.dtype == "bool":
            return rng.integers(0, 2, self.shape).astype(bool)
        return rng.integers(int(self.low), int(self.high) + 1, self.shape).astype(self.dtype)


@dataclass(frozen=True)
class Case:
    """A function whose conversion holds the builtin operator `kind`."""

    kind: str
    form: str
    function: Callable[..., Any]
    inputs: tuple[Given, ...]
    integers: tuple[str, ...]  # the types of codes to try

    @property
    def name(self) -> str:
        return f"{self.kind} {self.form}".strip()


CASES: list[Case] = []


def case(
    kind: str,
    function: Callable[..., Any],
    *inputs: Given,
    form: str = "",
    integers: bool = True,
    but: str = "",
) -> None:
    """Adds a case. `but`: a type of codes that LiteRT's kernels compute wrongly."""
    kinds = tuple(one for one in ("int8", "int16") if integers and one != but)
    made = Case(kind, form, function, inputs, kinds)
    assert made.name not in {other.name for other in CASES}, made.name
    CASES.append(made)


def f(*shape: int, low: float = -3.0, high: float = 3.0) -> Given:
    return Given(shape, "float32", low, high)


def i(*shape: int, low: int = 1, high: int = 5, dtype: str = "int32") -> Given:
    return Given(shape, dtype, low, high)


def held(*shape: int, scale: float = 0.5) -> Any:
    """A constant of random values, the same in every run."""
    return tf.constant((np.random.default_rng(sum(shape)).standard_normal(shape) * scale).astype(np.float32))


X, X2 = f(*IMAGE), (f(*IMAGE), f(*IMAGE))

# --- element by element
for kind, function in {
    "ABS": tf.abs,
    "CEIL": tf.math.ceil,
    "COS": tf.cos,
    "ELU": tf.nn.elu,
    "EXP": tf.exp,
    "FLOOR": tf.floor,
    "LOGISTIC": tf.sigmoid,
    "NEG": tf.negative,
    "RELU": tf.nn.relu,
    "RELU6": tf.nn.relu6,
    "ROUND": tf.round,
    "SIGN": tf.sign,
    "SIN": tf.sin,
    "SQUARE": tf.square,
    "TANH": tf.tanh,
}.items():
    case(kind, function, X)
for kind, function in {"LOG": tf.math.log, "SQRT": tf.sqrt, "RSQRT": tf.math.rsqrt}.items():
    case(kind, function, f(*IMAGE, low=0.2, high=4))
case("HARD_SWISH", lambda x: x * tf.nn.relu6(x + 3) * (1 / 6), X)
case("RELU_N1_TO_1", lambda x: tf.minimum(tf.maximum(x, -1.0), 1.0), X)
case("RELU_0_TO_1", lambda x: tf.maximum(tf.minimum(x, 1.0), 0.0), X)
case("GELU", lambda x: tf.nn.gelu(x, approximate=False), X)
case("GELU", lambda x: tf.nn.gelu(x, approximate=True), X, form="tanh")
case("LEAKY_RELU", lambda x: tf.nn.leaky_relu(x, 0.3), X)
case("PRELU", lambda x: tf.nn.relu(x) + -held(1, 1, 4) * tf.nn.relu(-x), X)
for kind, function in {
    "ADD": tf.add,
    "SUB": tf.subtract,
    "MUL": tf.multiply,
    "MAXIMUM": tf.maximum,
    "MINIMUM": tf.minimum,
    "SQUARED_DIFFERENCE": tf.math.squared_difference,
}.items():
    case(kind, function, *X2)
    case(kind, function, X, f(1, 1, 1, 4), form="broadcast")
    case(kind, lambda x, function=function: function(x, held(4)), X, form="constant")
for kind, function in {"ADD": tf.add, "SUB": tf.subtract, "MUL": tf.multiply}.items():
    case(kind, lambda x, y, function=function: tf.nn.relu(function(x, y)), *X2, form="relu")
    case(kind, function, i(2, 3), i(2, 3), form="int32", integers=False)
    case(kind, function, f(2, 1, 5), f(2, 3, 1), form="both broadcast")
case("DIV", tf.divide, X, f(*IMAGE, low=1, high=4))
case("DIV", lambda x: 1.0 / x, f(*IMAGE, low=1, high=4), form="of a constant")
case("POW", tf.pow, f(*IMAGE, low=0.3), f(*IMAGE))
case("FLOOR_DIV", tf.math.floordiv, X, f(*IMAGE, low=0.5))
case("FLOOR_DIV", tf.math.floordiv, i(4, 5, low=-9, high=9), i(4, 5), form="int32", integers=False)
case("FLOOR_MOD", tf.math.floormod, X, f(*IMAGE, low=0.5))
case("FLOOR_MOD", tf.math.floormod, i(4, 5, low=-9, high=9), i(4, 5), form="int32", integers=False)
case("ATAN2", tf.math.atan2, X, f(*IMAGE))
case("ADD_N", lambda x, y, z: tf.add_n([x, y, z]), X, *X2)
for kind, function in {
    "EQUAL": tf.equal,
    "NOT_EQUAL": tf.not_equal,
    "GREATER": tf.greater,
    "GREATER_EQUAL": tf.greater_equal,
    "LESS": tf.less,
    "LESS_EQUAL": tf.less_equal,
}.items():
    case(kind, function, *X2)
    case(kind, function, i(4, 5), i(4, 5), form="int32", integers=False)
case("LOGICAL_AND", tf.logical_and, *[Given((3, 4), "bool")] * 2, integers=False)
case("LOGICAL_OR", tf.logical_or, *[Given((3, 4), "bool")] * 2, integers=False)
case("LOGICAL_NOT", tf.logical_not, Given((3, 4), "bool"), integers=False)
case("SELECT_V2", lambda x, y: tf.where(x > y, x * y, y), X, f(1, 1, 1, 4))
case("SELECT", lambda x, y: tf.where(x > y, x * y, y), *X2, form="of an image")
case("SELECT_V2", tf.where, Given((3, 1), "bool"), f(3, 4), f(3, 4), form="broadcast", integers=False)
case(
    "SELECT",
    lambda c, x, y: tf.compat.v1.where(c, x, y),
    Given((3, 4), "bool"),
    f(3, 4),
    f(3, 4),
    integers=False,
)
case(
    "SELECT",
    lambda c, x, y: tf.compat.v1.where(c, x, y),
    Given((3,), "bool"),
    f(3, 4),
    f(3, 4),
    form="rows",
    integers=False,
)
case("BITWISE_XOR", tf.bitwise.bitwise_xor, i(3, 4, high=90), i(3, 4, high=90), integers=False)
case("RIGHT_SHIFT", tf.bitwise.right_shift, i(3, 4, high=90), i(3, 4, high=3), integers=False)
case("BITCAST", lambda x: tf.bitcast(x, tf.int32), f(3, 4), integers=False)
case("CAST", lambda x: tf.cast(x, tf.int32), X, integers=False)
case("CAST", lambda x: tf.cast(x, tf.float32), i(3, 4), form="to float", integers=False)
case("CAST", lambda x: tf.cast(x, tf.float32) * 2.0, Given((3, 4), "bool"), form="of bool", integers=False)
case("CAST", lambda x: tf.cast(x, tf.int64), i(3, 4), form="to int64", integers=False)
case("ABS", tf.abs, i(3, 4, low=-9, high=9), form="int32", integers=False)
case("NEG", tf.negative, i(3, 4, low=-9, high=9), form="int32", integers=False)
case("ZEROS_LIKE", lambda x: tf.maximum(tf.raw_ops.ZerosLike(x=x), x), X, integers=False)

# --- images
for form, options in {
    "": {"padding": "SAME"},
    "valid": {"padding": "VALID"},
    "strides": {"padding": "SAME", "strides": (2, 2)},
    "strides valid": {"padding": "VALID", "strides": (2, 1)},
    "dilated": {"padding": "SAME", "dilations": (2, 2)},
}.items():
    more = {"strides": (1, 1)} | options
    case("CONV_2D", lambda x, more=more: tf.nn.conv2d(x, held(3, 3, 4, 5), **more) + held(5), X, form=form)
    four = {k: (1, *v, 1) if k == "strides" else v for k, v in more.items()}
    if form != "strides valid":
        case(
            "DEPTHWISE_CONV_2D",
            lambda x, four=four: tf.nn.depthwise_conv2d(x, held(3, 3, 4, 1), **four) + held(4),
            X,
            form=form,
        )
case(
    "CONV_2D", lambda x: tf.nn.relu6(tf.nn.conv2d(x, held(1, 1, 4, 5), 1, "SAME") + held(5)), X, form="relu6"
)
case("CONV_2D", lambda x: tf.nn.conv2d(x, held(3, 3, 2, 6), 1, "SAME"), X, form="groups")
case(
    "CONV_2D",
    lambda x, y: tf.nn.conv2d(x, y, 1, "SAME"),
    X,
    f(3, 3, 4, 5),
    form="computed kernel",
    but="int16",
)
case(
    "DEPTHWISE_CONV_2D",
    lambda x: tf.nn.depthwise_conv2d(x, held(3, 3, 4, 2), (1, 1, 1, 1), "SAME"),
    X,
    form="multiplier",
)
for form, (shape, strides, padding) in {
    "": ((1, 12, 16, 5), (2, 2), "SAME"),
    "valid": ((1, 13, 17, 5), (2, 2), "VALID"),
    "stride 1": ((1, 8, 10, 5), (1, 1), "VALID"),
}.items():
    case(
        "TRANSPOSE_CONV",
        lambda x, s=shape, t=strides, p=padding: (
            tf.nn.conv2d_transpose(x, held(3, 3, 5, 4), s, t, p) + held(5)
        ),
        X,
        form=form,
    )
case("CONV_3D", lambda x: tf.nn.conv3d(x, held(2, 3, 3, 2, 3), (1,) * 5, "SAME"), f(1, 4, 5, 6, 2))
case(
    "CONV_3D",
    lambda x: tf.nn.conv3d(x, held(2, 3, 3, 2, 3), (1, 1, 2, 2, 1), "VALID") + held(3),
    f(1, 4, 5, 6, 2),
    form="strides",
)
case(
    "CONV_3D_TRANSPOSE",
    lambda x: tf.nn.conv3d_transpose(x, held(2, 3, 3, 3, 2), (1, 8, 10, 12, 3), (1, 2, 2, 2, 1), "SAME"),
    f(1, 4, 5, 6, 2),
)
for kind, function in {"AVERAGE_POOL_2D": tf.nn.avg_pool2d, "MAX_POOL_2D": tf.nn.max_pool2d}.items():
    for form, (window, stride, padding) in {
        "": (2, 2, "VALID"),
        "same": (3, 2, "SAME"),
        "stride 1": (3, 1, "SAME"),
    }.items():
        case(kind, lambda x, function=function, a=(window, stride, padding): function(x, *a), X, form=form)
for kind, method in {"RESIZE_BILINEAR": "bilinear", "RESIZE_NEAREST_NEIGHBOR": "nearest"}.items():
    case(kind, lambda x, m=method: tf.image.resize(x, (12, 16), m), X)
    case(kind, lambda x, m=method: tf.image.resize(x, (5, 11), m), X, form="odd")
    for form, options in {"align": {"align_corners": True}, "plain": {"align_corners": False}}.items():
        case(
            kind,
            lambda x, m=method, o=options: getattr(
                tf.compat.v1.image, f"resize_{m}" + ("_neighbor" if m == "nearest" else "")
            )(x, (9, 12), **o),
            X,
            form=form,
        )
case("SPACE_TO_DEPTH", lambda x: tf.nn.space_to_depth(x, 2), X)
case("DEPTH_TO_SPACE", lambda x: tf.nn.depth_to_space(x, 2), X)
case("LOCAL_RESPONSE_NORMALIZATION", lambda x: tf.nn.lrn(x, 1, 1.0, 0.1, 0.75), X, integers=False)
case("SPACE_TO_BATCH_ND", lambda x: tf.space_to_batch(x, (2, 2), ((0, 0), (2, 2))), X)
case("BATCH_TO_SPACE_ND", lambda x: tf.batch_to_space(x, (2, 2), ((0, 1), (1, 0))), f(4, 3, 4, 2))
