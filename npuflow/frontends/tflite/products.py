"""Products of matrices, softmax, reductions."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from npuflow.frontends.tflite.network import (
    NCHW,
    PLACE,
    PLAIN,
    ROW,
    TfliteBuilder,
    TfliteOperatorError,
    element,
)
from npuflow.frontends.tflite.schema import Operator
from npuflow.frontends.tflite.shapes import reshaped
from npuflow.frontends.tflite.spatial import bias, weight


def dense(builder: TfliteBuilder, operator: Operator) -> None:
    x, w = operator.inputs[:2]
    if operator.options.get("WeightsFormat"):
        raise TfliteOperatorError("shuffled weights")
    result, depth = operator.outputs[0], builder.tensor(w).shape[1]
    activation, shape = operator.options["FusedActivationFunction"], builder.tensor(result).shape
    added = bias(builder, operator, 2)
    if len(shape) == 2:
        matrix = reshaped(builder, x, (shape[0], depth))
        inputs = [matrix, weight(builder, w, (0, 1)), *added]
        builder.node("Gemm", inputs, builder.result(result, PLAIN, activation), transB=1)
        return
    inputs = [reshaped(builder, x, (*shape[:-1], depth)), weight(builder, w, (1, 0))]
    name = builder.result(result, PLAIN, activation)
    product = builder.node("MatMul", inputs, "" if added else name)
    if added:
        builder.node("Add", [product, *added], name)


def batched(builder: TfliteBuilder, operator: Operator) -> None:
    sides = []
    for index, turned in zip(
        operator.inputs, (operator.options.get("AdjX"), operator.options.get("AdjY")), strict=True
    ):
        rank = len(builder.tensor(index).shape)
        perm = [*range(rank - 2), rank - 1, rank - 2] if turned else list(range(rank))
        if builder.data(index) is not None:
            sides.append(weight(builder, index, perm))
        else:
            side = builder.value(index)
            sides.append(builder.node("Transpose", [side], perm=perm) if turned else side)
    builder.node("MatMul", sides, builder.result(operator.outputs[0]))


def softmax(kind: str, builder: TfliteBuilder, operator: Operator) -> None:
    source = operator.inputs[0]
    layout = builder.home(source)
    x, beta = builder.value(source, layout), operator.options.get("Beta", 1.0)
    if beta != 1.0:
        x = builder.node("Mul", [x, builder.constant(beta)])
    builder.node(kind, [x], builder.result(operator.outputs[0], layout), axis=1 if layout == NCHW else -1)


def reduction(kind: str, builder: TfliteBuilder, operator: Operator) -> None:
    source, result = operator.inputs[0], operator.outputs[0]
    rank = len(builder.tensor(source).shape)
    axes = sorted({a % rank for a in builder.ints(operator, 1, "axes")})
    keep = bool(operator.options.get("KeepDims"))
    layout = builder.home(source)
    if layout == NCHW and not keep and not (3 in axes or {1, 2} <= set(axes)):
        layout = PLAIN                        # the dimensions left would come in another order
    if axes == [1] and builder.has_row(source):
        layout = ROW
    x = builder.value(source, layout)
    placed = {NCHW: [PLACE[a] for a in axes], ROW: [3] if keep else [2, 3]}.get(layout, axes)
    name = builder.result(result, layout if keep else PLAIN)
    if kind in ("any", "all"):
        held = builder.node("Cast", [x], to=element("int32"))
        given = builder.node(
            "ReduceMax" if kind == "any" else "ReduceMin", [held, builder.shape(placed)], keepdims=int(keep)
        )
        builder.node("Cast", [given], name, to=element("bool"))
        return
    builder.node(kind, [x, builder.shape(placed)], name, keepdims=int(keep))


def best(kind: str, builder: TfliteBuilder, operator: Operator) -> None:
    axis = builder.ints(operator, 1, "axis")[0]
    found = builder.node(kind, [builder.value(operator.inputs[0])], axis=axis, keepdims=0)
    result = operator.outputs[0]
    builder.node("Cast", [found], builder.result(result), to=element(builder.tensor(result).dtype))


def top(builder: TfliteBuilder, operator: Operator) -> None:
    count = builder.shape(builder.ints(operator, 1, "count"))
    values, places = operator.outputs
    name, found = builder.result(values), builder.free(f"{builder.origin}:places")
    builder.many("TopK", [builder.value(operator.inputs[0]), count], [name, found])
    builder.node("Cast", [found], builder.result(places), to=element(builder.tensor(places).dtype))


def unit(builder: TfliteBuilder, operator: Operator) -> None:
    source = operator.inputs[0]
    layout = builder.home(source)
    name = builder.result(operator.outputs[0], layout, operator.options.get("FusedActivationFunction", 0))
    builder.node(
        "LpNormalization", [builder.value(source, layout)], name, axis=1 if layout == NCHW else -1, p=2
    )


def running_sum(builder: TfliteBuilder, operator: Operator) -> None:
    axis = builder.shape(builder.ints(operator, 1, "axis")[:1])
    given = {name.lower(): int(operator.options.get(name, False)) for name in ("Exclusive", "Reverse")}
    builder.node(
        "CumSum", [builder.value(operator.inputs[0]), axis], builder.result(operator.outputs[0]), **given
    )


PRODUCTS: dict[str, Callable[[TfliteBuilder, Operator], None]] = {
    "FULLY_CONNECTED": dense, "BATCH_MATMUL": batched, "SOFTMAX": partial(softmax, "Softmax"),
    "LOG_SOFTMAX": partial(softmax, "LogSoftmax"), "L2_NORMALIZATION": unit, "CUMSUM": running_sum,
    "ARG_MAX": partial(best, "ArgMax"), "ARG_MIN": partial(best, "ArgMin"), "TOPK_V2": top,
    "MEAN": partial(reduction, "ReduceMean"), "SUM": partial(reduction, "ReduceSum"),
    "REDUCE_MAX": partial(reduction, "ReduceMax"), "REDUCE_MIN": partial(reduction, "ReduceMin"),
    "REDUCE_PROD": partial(reduction, "ReduceProd"), "REDUCE_ANY": partial(reduction, "any"),
    "REDUCE_ALL": partial(reduction, "all"),
}
