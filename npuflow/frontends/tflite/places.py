"""Operators that write to places or give them: scatter, segments, one-hot, diagonals, suppressed boxes."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from npuflow.frontends.tflite.network import TfliteBuilder, TfliteOperatorError, element
from npuflow.frontends.tflite.schema import Operator

# what a segment without rows holds, per reduction of ScatterND; of floats, and of whole numbers by their ends
EMPTY = {
    "add": 0.0,
    "mul": 1.0,
    "max": float(np.finfo(np.float32).min),
    "min": float(np.finfo(np.float32).max),
}


def scatter(builder: TfliteBuilder, operator: Operator) -> None:
    places, values = operator.inputs[:2]
    tensor = builder.tensor(operator.outputs[0])
    inputs = [
        builder.constant(np.zeros(tensor.shape), tensor.dtype),
        _wide(builder, places),
        builder.value(values),
    ]
    builder.node("ScatterND", inputs, builder.result(operator.outputs[0]), reduction="add")


def dense(builder: TfliteBuilder, operator: Operator) -> None:
    places, _, values, default = operator.inputs
    rank, shape = len(builder.tensor(operator.outputs[0]).shape), builder.tensor(places).shape
    index, count = _wide(builder, places), shape[0] if shape else 1
    index = builder.node("Reshape", [index, builder.shape([count, rank])])
    given = builder.node("Expand", [builder.value(values), builder.shape([count])])
    sizes = builder.shape(builder.tensor(operator.outputs[0]).shape)
    around = builder.node("Expand", [builder.value(default), sizes])
    builder.node("ScatterND", [around, index, given], builder.result(operator.outputs[0]))


def segments(reduction: str, builder: TfliteBuilder, operator: Operator) -> None:
    """Rows of the first operand reduced by the segment that the second names."""
    source, places = operator.inputs[:2]
    rows = builder.node("Unsqueeze", [_wide(builder, places), builder.shape([-1])])
    shape = builder.tensor(operator.outputs[0]).shape
    if operator.name == "SEGMENT_SUM":  # their number is that of the last one
        shape = (builder.ints(operator, 1, "segments")[-1] + 1, *shape[1:])
    dtype, empty = builder.tensor(source).dtype, EMPTY[reduction]
    if dtype != "float32" and reduction in ("max", "min"):
        info = np.iinfo(dtype)
        empty = info.min if reduction == "max" else info.max
    around = builder.constant(np.full(shape, empty), dtype)
    inputs = [around, rows, builder.value(source)]
    builder.node("ScatterND", inputs, builder.result(operator.outputs[0]), reduction=reduction)


def one_hot(builder: TfliteBuilder, operator: Operator) -> None:
    index, _, on, off = operator.inputs
    pair = builder.node(
        "Concat",
        [builder.node("Unsqueeze", [builder.value(v), builder.shape([0])]) for v in (off, on)],
        axis=0,
    )
    count = builder.constant(builder.ints(operator, 1, "a depth")[0], "int64")
    inputs = [_wide(builder, index), count, pair]
    builder.node("OneHot", inputs, builder.result(operator.outputs[0]), axis=operator.options.get("Axis", -1))


def where(builder: TfliteBuilder, operator: Operator) -> None:
    """Places of what is true, a row each."""
    found = builder.node("NonZero", [builder.value(operator.inputs[0])])
    builder.node("Transpose", [found], builder.result(operator.outputs[0]), perm=[1, 0])


def unique(builder: TfliteBuilder, operator: Operator) -> None:
    values, places = operator.outputs
    name, found = builder.result(values), builder.free(f"{builder.origin}:places")
    parts = [name, builder.free(f"{builder.origin}:first"), found, builder.free(f"{builder.origin}:counts")]
    # whole numbers of 64 bits, which onnxruntime has a kernel for
    given = builder.tensor(values).dtype
    x = builder.value(operator.inputs[0])
    if given == "float32":
        builder.many("Unique", [x], parts, sorted=0)
    else:
        parts[0] = builder.free(f"{builder.origin}:wide")
        builder.many("Unique", [builder.node("Cast", [x], to=element("int64"))], parts, sorted=0)
        builder.node("Cast", [parts[0]], name, to=element(given))
    builder.node("Cast", [found], builder.result(places), to=element(builder.tensor(places).dtype))


def diagonal(builder: TfliteBuilder, operator: Operator) -> None:
    """A matrix with a given diagonal: zero elsewhere, or another matrix."""
    rows, columns = builder.tensor(operator.outputs[0]).shape[-2:]
    on = builder.constant(np.eye(rows, columns), "bool")
    given = operator.inputs[-1]
    axis = -1 if builder.tensor(given).shape[-1] == rows else -2
    line = builder.node("Unsqueeze", [builder.value(given), builder.shape([axis])])
    if operator.name == "MATRIX_DIAG":
        rest = builder.constant(0, builder.tensor(given).dtype)
    else:
        rest = builder.value(operator.inputs[0])
    builder.node("Where", [on, line, rest], builder.result(operator.outputs[0]))


def bucketize(builder: TfliteBuilder, operator: Operator) -> None:
    """The number of boundaries that are not above a value."""
    source, result = operator.inputs[0], operator.outputs[0]
    if builder.tensor(source).dtype != "float32":
        raise TfliteOperatorError("of whole numbers")
    x = builder.node("Unsqueeze", [builder.value(source), builder.shape([-1])])
    above = builder.node("GreaterOrEqual", [x, builder.constant(operator.options["Boundaries"])])
    counted = builder.node("Cast", [above], to=element("int32"))
    builder.node("ReduceSum", [counted, builder.shape([-1])], builder.result(result), keepdims=0)


def suppressed(builder: TfliteBuilder, operator: Operator) -> None:
    """Boxes that no better one overlaps, filled up with zeros, and their number."""
    boxes, scores = (
        builder.node("Unsqueeze", [builder.value(i), builder.shape(axes)])
        for i, axes in zip(operator.inputs[:2], ([0], [0, 1]), strict=True)
    )
    most = builder.ints(operator, 2, "a number of boxes")[0]
    bounds = [builder.node("Reshape", [builder.value(i), builder.shape([1])]) for i in operator.inputs[3:5]]
    limit = builder.constant([most], "int64")
    found = builder.node("NonMaxSuppression", [boxes, scores, limit, *bounds])
    ones = (builder.shape([v]) for v in (2, 3, 1))
    column = builder.node("Reshape", [builder.node("Slice", [found, *ones]), builder.shape([-1])])
    places = builder.node("Cast", [column], to=element("int32"))
    filled = builder.node("Concat", [places, builder.constant([0] * most, "int32")], axis=0)
    builder.node(
        "Slice", [filled, builder.shape([0]), builder.shape([most])], builder.result(operator.outputs[0])
    )
    count = builder.node("Cast", [builder.node("Shape", [places])], to=element("int32"))
    builder.node("Reshape", [count, builder.shape([])], builder.result(operator.outputs[1]))


def _wide(builder: TfliteBuilder, index: int) -> str:
    return builder.node("Cast", [builder.value(index)], to=element("int64"))


PLACES: dict[str, Callable[[TfliteBuilder, Operator], None]] = {
    "SCATTER_ND": scatter,
    "SPARSE_TO_DENSE": dense,
    **{
        f"{name}SEGMENT_{kind}": partial(segments, reduction)
        for kind, reduction in (("SUM", "add"), ("PROD", "mul"), ("MAX", "max"), ("MIN", "min"))
        for name in (("", "UNSORTED_") if kind == "SUM" else ("UNSORTED_",))
    },
    "ONE_HOT": one_hot,
    "WHERE": where,
    "UNIQUE": unique,
    "MATRIX_DIAG": diagonal,
    "MATRIX_SET_DIAG": diagonal,
    "BUCKETIZE": bucketize,
    "NON_MAX_SUPPRESSION_V4": suppressed,
}
