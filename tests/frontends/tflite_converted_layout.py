"""The other functions of the converted cases: products, reductions, operators that move data, loops."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import tensorflow as tf

from tests.frontends.tflite_converted_cases import CASES, FLAT, IMAGE, X2, Given, X, case, f, held, i

__all__ = ["CASES"]

# --- products, reductions
case("FULLY_CONNECTED", lambda x: tf.matmul(x, held(8, 5)) + held(5), f(*FLAT))
case("FULLY_CONNECTED", lambda x: tf.nn.relu(tf.matmul(x, held(8, 5)) + held(5)), f(*FLAT), form="relu")
case(
    "FULLY_CONNECTED", lambda x: tf.tensordot(x, held(8, 5), 1) + held(5), f(2, 3, 8), form="three dimensions"
)
case("BATCH_MATMUL", tf.matmul, f(2, 3, 4), f(2, 4, 5))
case(
    "BATCH_MATMUL", lambda x, y: tf.matmul(x, y, transpose_b=True), f(2, 3, 4), f(2, 5, 4), form="transposed"
)
case("BATCH_MATMUL", lambda x: tf.matmul(x, held(2, 4, 5)), f(2, 3, 4), form="constant")
case("SOFTMAX", tf.nn.softmax, f(*FLAT))
case("SOFTMAX", tf.nn.softmax, X, form="image")
case("LOG_SOFTMAX", tf.nn.log_softmax, f(*FLAT))
case("L2_NORMALIZATION", lambda x: tf.nn.l2_normalize(x, -1, epsilon=1e-12), f(*FLAT))
case("CUMSUM", lambda x: tf.cumsum(x, 1), f(3, 5))
case("CUMSUM", lambda x: tf.cumsum(x, 0, exclusive=True, reverse=True), f(3, 5), form="exclusive reverse")
for kind, function in {"ARG_MAX": tf.argmax, "ARG_MIN": tf.argmin}.items():
    case(kind, lambda x, function=function: function(x, -1), X)
    case(kind, lambda x, function=function: function(x, 1, output_type=tf.int32), f(3, 7), form="int32")
case("TOPK_V2", lambda x: tf.math.top_k(x, 3), f(3, 8))
for kind, function in {
    "MEAN": tf.reduce_mean,
    "SUM": tf.reduce_sum,
    "REDUCE_MAX": tf.reduce_max,
    "REDUCE_MIN": tf.reduce_min,
}.items():
    case(kind, lambda x, function=function: function(x, (1, 2)), X)
    case(kind, lambda x, function=function: function(x, (1, 2), keepdims=True), X, form="kept")
    case(kind, lambda x, function=function: function(x, -1), f(3, 8), form="last")
case("REDUCE_PROD", lambda x: tf.reduce_prod(x, -1), f(3, 5))
case("REDUCE_ANY", lambda x: tf.reduce_any(x, -1), Given((3, 2), "bool"), integers=False)
case("REDUCE_ALL", lambda x: tf.reduce_all(x, -1), Given((3, 2), "bool"), integers=False)
case("SEGMENT_SUM", lambda x: tf.math.segment_sum(x, tf.constant([0, 0, 1, 2])), f(4, 3), integers=False)
for kind, function in {
    "UNSORTED_SEGMENT_SUM": tf.math.unsorted_segment_sum,
    "UNSORTED_SEGMENT_MAX": tf.math.unsorted_segment_max,
    "UNSORTED_SEGMENT_MIN": tf.math.unsorted_segment_min,
    "UNSORTED_SEGMENT_PROD": tf.math.unsorted_segment_prod,
}.items():
    case(
        kind, lambda x, function=function: function(x, tf.constant([2, 0, 1, 0]), 3), f(4, 3), integers=False
    )

# --- data that move
case("RESHAPE", lambda x: tf.reshape(x, (1, 12, 16)), X)
case("TRANSPOSE", lambda x: tf.transpose(x, (0, 3, 1, 2)), X)
case("TRANSPOSE", lambda x: tf.transpose(x, (2, 0, 1)), f(2, 3, 4), form="three dimensions")
case("CONCATENATION", lambda x, y: tf.concat([x, y], -1), *X2)
case("CONCATENATION", lambda x, y: tf.concat([x, y], 1), X, f(*IMAGE, low=-1, high=1), form="other ranges")
case("SPLIT", lambda x: tf.split(x, 2, 3), X)
case("SPLIT_V", lambda x: tf.split(x, (1, 3), 3), X)
case("PACK", lambda x, y: tf.stack([x, y], 1), f(3, 4), f(3, 4))
case("UNPACK", lambda x: tf.unstack(x, axis=1), f(3, 2, 4))
case("PAD", lambda x: tf.pad(x, ((0, 0), (1, 2), (2, 1), (0, 0))), X)
case("PADV2", lambda x: tf.pad(x, ((0, 0), (1, 2), (2, 1), (0, 0)), constant_values=1.5), X)
case("MIRROR_PAD", lambda x: tf.pad(x, ((0, 0), (1, 2), (2, 1), (0, 0)), "REFLECT"), X)
case("MIRROR_PAD", lambda x: tf.pad(x, ((0, 0), (1, 2), (2, 1), (0, 0)), "SYMMETRIC"), X, form="symmetric")
case("SLICE", lambda x: tf.slice(x, (0, 1, 2, 0), (1, 3, -1, 2)), X)
case("STRIDED_SLICE", lambda x: x[:, 1:6:2, ::-1, 1:3], X, form="reversed")
case("STRIDED_SLICE", lambda x: x[:, 1:6:2, 1:7, 1:3], X)
case("STRIDED_SLICE", lambda x: x[0, ..., 2], X, form="shrunk")
case("STRIDED_SLICE", lambda x: x[:, None, -3:], f(2, 5), form="new axis")
case("BROADCAST_TO", lambda x: tf.broadcast_to(x, (3, 4, 8)), f(4, 1))
case("FILL", lambda x: tf.raw_ops.Fill(dims=tf.constant((3, 4)), value=x), Given(()), integers=False)
case("TILE", lambda x: tf.tile(x, (2, 3)), f(3, 4))
case("GATHER", lambda x: tf.gather(x, tf.constant([2, 0, 2]), axis=1), f(3, 5, 2))
case("GATHER", lambda x, y: tf.gather(x, y), f(6, 4), i(3, low=0, high=5), form="computed indices")
case(
    "GATHER",
    lambda x, y: tf.gather(x, y, axis=1, batch_dims=1),
    f(3, 5, 2),
    i(3, 2, low=0, high=4),
    form="by samples",
)
case("GATHER_ND", lambda x: tf.gather_nd(x, tf.constant([[0, 1], [2, 3]])), f(3, 5, 2))
case("REVERSE_V2", lambda x: tf.reverse(x, (1,)), f(3, 5, 2))
case(
    "REVERSE_SEQUENCE",
    lambda x: tf.reverse_sequence(x, tf.constant([2, 5, 3]), 1, 0),
    f(3, 5, 2),
    integers=False,
)
case("SCATTER_ND", lambda x: tf.scatter_nd(tf.constant([[4], [1]]), x, (6, 3)), f(2, 3), integers=False)
case("ONE_HOT", lambda x: tf.one_hot(x, 5), i(4, low=0, high=4), integers=False)
case("ONE_HOT", lambda x: tf.one_hot(x, 5, 2.0, -1.0, 0), i(4, low=0, high=4), form="values", integers=False)
case("WHERE", tf.where, Given((3, 4), "bool"), integers=False)
case("UNIQUE", lambda x: tf.unique(x), i(8), integers=False)
case("MATRIX_DIAG", tf.linalg.diag, f(2, 4), integers=False)
case("MATRIX_SET_DIAG", tf.linalg.set_diag, f(2, 4, 4), f(2, 4), integers=False)
case(
    "SPARSE_TO_DENSE",
    lambda x: tf.raw_ops.SparseToDense(
        sparse_indices=tf.constant([1, 4]),
        output_shape=tf.constant([6]),
        sparse_values=x,
        default_value=tf.constant(0.0),
    ),
    f(2),
    integers=False,
)
case(
    "BUCKETIZE", lambda x: tf.raw_ops.Bucketize(input=x, boundaries=[-1.0, 0.0, 1.5]), f(3, 4), integers=False
)
case("RANGE", lambda x: tf.range(0, x[0], 2), i(1, low=7, high=7), integers=False)
case("QUANTIZE", lambda x: tf.quantization.fake_quant_with_min_max_args(x, -2, 2), f(3, 8), integers=False)
LIMITS = {"max_output_size": 4, "iou_threshold": 0.5, "score_threshold": 0.1, "pad_to_max_output_size": True}
for operator, function, more in (
    ("NON_MAX_SUPPRESSION_V4", tf.raw_ops.NonMaxSuppressionV4, {}),
    ("NON_MAX_SUPPRESSION_V5", tf.raw_ops.NonMaxSuppressionV5, {"soft_nms_sigma": 0.3}),
):
    chosen = partial(function, **LIMITS, **more)
    case(
        operator,
        lambda b, s, chosen=chosen: chosen(boxes=b, scores=s),
        f(8, 4, low=0, high=1),
        f(8, low=0, high=1),
        integers=False,
    )
case("RFFT2D", lambda x: tf.abs(tf.signal.rfft2d(x)), f(1, 4, 8), integers=False)
case("COMPLEX_ABS", lambda x: tf.abs(tf.signal.rfft2d(x)), f(1, 4, 8), integers=False)
case("REAL", lambda x: tf.math.real(tf.signal.rfft2d(x)), f(1, 4, 8), integers=False)
case("IMAG", lambda x: tf.math.imag(tf.signal.rfft2d(x)), f(1, 4, 8), integers=False)

# --- recurrent layers and control flow
UNITS = 4


def layer(kind: str, **options: Any) -> Callable[[Any], Any]:
    """A Keras layer with weights of its own seed."""
    tf.keras.utils.set_random_seed(len(kind))
    made = getattr(tf.keras.layers, kind)(UNITS, **options)
    made.build((1, 5, 3))
    rng = np.random.default_rng(0)
    made.set_weights([rng.normal(0, 0.4, w.shape).astype(np.float32) for w in made.get_weights()])
    return made


case("WHILE", layer("LSTM", return_sequences=True), f(1, 5, 3), form="LSTM", integers=False)
case("WHILE", layer("GRU", return_sequences=True), f(1, 5, 3), form="GRU", integers=False)
case("WHILE", layer("SimpleRNN"), f(1, 5, 3), form="RNN", integers=False)
case("IF", lambda x: tf.cond(tf.reduce_sum(x) > 0, lambda: x * 2, lambda: x - 1), f(3, 4), integers=False)
