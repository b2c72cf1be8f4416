"""Sizes that a file leaves open, computed from those of its inputs.

A converter that does not know a size (because the batch is free, say) states 1, and the interpreter computes
it as memory is allocated. Everything else here reads stated sizes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from math import prod

import numpy as np

from npuflow.base.errors import ModelError, Where
from npuflow.frontends.tflite.known import known, strided
from npuflow.frontends.tflite.schema import Operator, TfliteNetwork
from npuflow.ir.types import Array

Shape = tuple[int, ...]
SAME = 0                                  # the padding after which a size is divided by the stride alone
ALIKE = (  # operands that are broadcast to one size
    "ADD", "SUB", "MUL", "DIV", "MAXIMUM", "MINIMUM", "POW", "PRELU", "FLOOR_DIV", "FLOOR_MOD", "SELECT",
    "SELECT_V2", "SQUARED_DIFFERENCE", "EQUAL", "NOT_EQUAL", "GREATER", "GREATER_EQUAL", "LESS", "LESS_EQUAL",
    "LOGICAL_AND", "LOGICAL_OR", "ATAN2",
)
REDUCED = ("MEAN", "SUM", "REDUCE_MAX", "REDUCE_MIN", "REDUCE_PROD", "REDUCE_ANY", "REDUCE_ALL")


@dataclass
class _Sizes:
    """What is known of tensors by number: their sizes, and the values of those that hold sizes."""

    network: TfliteNetwork
    shapes: dict[int, Shape] = field(default_factory=dict)
    values: dict[int, Array] = field(default_factory=dict)

    def shape(self, index: int) -> Shape:
        return self.shapes.get(index, self.network.tensors[index].shape)

    def value(self, index: int) -> Array | None:
        """Of a constant, or what is known of a result; nothing at all has no bytes in a file."""
        tensor = self.network.tensors[index]
        blank = np.zeros(tensor.shape, tensor.dtype) if 0 in tensor.shape and tensor.dtype else None
        return self.values.get(index, tensor.data if tensor.data is not None else blank)

    def numbers(self, operator: Operator, place: int) -> list[int]:
        """An operand of whole numbers; NotImplementedError where it depends on data."""
        held = self.value(operator.inputs[place]) if place < len(operator.inputs) else None
        if held is None:
            raise NotImplementedError
        return [int(v) for v in held.reshape(-1)]

    def dummy(self, operator: Operator, place: int = 0) -> Array:
        """An array of an operand's sizes that takes no memory."""
        return np.broadcast_to(np.int8(0), self.shape(operator.inputs[place]))


def resolved(network: TfliteNetwork) -> TfliteNetwork:
    """The network with all sizes stated. ModelError where an operator's cannot be known."""
    if not any(tensor.open for tensor in network.tensors):
        return network
    sizes = _Sizes(network)
    for operator in network.operators:
        _settle(sizes, operator)
    tensors = tuple(
        replace(one, shape=sizes.shape(index), data=sizes.value(index))
        for index, one in enumerate(network.tensors)
    )
    left = tuple(one for one in network.operators if not {*one.outputs} <= sizes.values.keys())
    return replace(network, tensors=tensors, operators=left)


def _settle(sizes: _Sizes, operator: Operator) -> None:
    """Sizes of an operator's results, and values of those that hold sizes."""
    tensors = sizes.network.tensors
    try:
        found = _found(sizes, operator)
    except (NotImplementedError, KeyError, IndexError, ValueError, TypeError) as fault:
        if _as_it_is(sizes, operator):
            return
        raise ModelError(
            f"the size of what {operator.name} gives is not known", code="NF-MODEL-511",
            because="the file leaves it open, and it depends on data or on an operator whose sizes are not "
            f"followed ({type(fault).__name__})",
            hint="convert the model with fixed sizes of its inputs",
            where=Where(node=tensors[operator.outputs[0]].name),
        ) from None
    for index, shape in zip(operator.outputs, found, strict=True):
        if shape != tensors[index].shape:
            sizes.shapes[index] = shape
    if all(tensors[index].dtype in ("int32", "int64") for index in operator.outputs):
        sizes.values.update(zip(operator.outputs, _numbers(sizes, operator), strict=False))


def _as_it_is(sizes: _Sizes, operator: Operator) -> bool:
    """Whether what the file states of results can be right: it is of all operands, and a change of shape
    keeps their elements."""
    tensors = sizes.network.tensors
    if any(index in sizes.shapes for index in operator.inputs):
        return False
    if operator.name != "RESHAPE":
        return True
    first, last = operator.inputs[0], operator.outputs[0]
    return prod(tensors[first].shape) == prod(tensors[last].shape)


def _numbers(sizes: _Sizes, operator: Operator) -> Sequence[Array]:
    """The values of results of whole numbers, where those of all operands are known; else none."""
    tensors = sizes.network.tensors
    results = [replace(tensors[index], shape=sizes.shape(index)) for index in operator.outputs]
    if operator.name == "SHAPE":
        return [np.asarray(sizes.shape(operator.inputs[0]), results[0].dtype)]
    held = [sizes.value(index) for index in operator.inputs]
    numbers = [one for one in held if one is not None]
    if len(numbers) < len(held):
        return []
    if operator.name == "SPLIT_V" and numbers[0].ndim == 1:
        return np.split(numbers[0], np.cumsum([one.shape[0] for one in results])[:-1])
    made = known(operator, numbers, results[0]) if len(results) == 1 else None
    return [] if made is None else [made]


def _found(sizes: _Sizes, operator: Operator) -> Sequence[Shape]:
    """The sizes of all results."""
    tensors = sizes.network.tensors
    rule = RULES.get(operator.name)
    if rule is not None:
        return rule(sizes, operator)
    stated = [tensors[index].shape for index in operator.outputs]
    read = [index for index in operator.inputs if index >= 0]
    if not any(index in sizes.shapes for index in read):
        return stated
    first = read[0]
    if stated == [tensors[first].shape]:                    # one value for each of the first operand's
        return [sizes.shape(first)]
    raise NotImplementedError


def _alike(sizes: _Sizes, operator: Operator) -> list[Shape]:
    return [np.broadcast_shapes(*(sizes.shape(index) for index in operator.inputs))]


def _shape(sizes: _Sizes, operator: Operator) -> list[Shape]:
    return [(len(sizes.shape(operator.inputs[0])),)]


def _reshape(sizes: _Sizes, operator: Operator) -> list[Shape]:
    given = operator.options.get("NewShape")
    wanted = sizes.numbers(operator, 1) if len(operator.inputs) > 1 else list(given or ())
    return [sizes.dummy(operator).reshape(wanted).shape]


def _squeeze(sizes: _Sizes, operator: Operator) -> list[Shape]:
    axes = operator.options.get("SqueezeDims") or None
    return [np.squeeze(sizes.dummy(operator), None if axes is None else tuple(axes)).shape]


def _expand(sizes: _Sizes, operator: Operator) -> list[Shape]:
    return [np.expand_dims(sizes.dummy(operator), sizes.numbers(operator, 1)[0]).shape]


def _transpose(sizes: _Sizes, operator: Operator) -> list[Shape]:
    return [sizes.dummy(operator).transpose(sizes.numbers(operator, 1)).shape]


def _concat(sizes: _Sizes, operator: Operator) -> list[Shape]:
    shapes = [sizes.shape(index) for index in operator.inputs]
    axis = operator.options["Axis"] % len(shapes[0])
    return [(*shapes[0][:axis], sum(one[axis] for one in shapes), *shapes[0][axis + 1 :])]


def _split(sizes: _Sizes, operator: Operator) -> list[Shape]:
    source, place = (operator.inputs[1], 0) if operator.name == "SPLIT" else (operator.inputs[0], 2)
    shape, axis = list(sizes.shape(source)), sizes.numbers(operator, place)[0]
    count = len(operator.outputs)
    parts = [shape[axis] // count] * count if operator.name == "SPLIT" else sizes.numbers(operator, 1)
    if -1 in parts:
        parts[parts.index(-1)] = shape[axis] - sum(parts) - 1
    axis %= len(shape)
    return [(*shape[:axis], size, *shape[axis + 1 :]) for size in parts]


def _pack(sizes: _Sizes, operator: Operator) -> list[Shape]:
    shape = list(sizes.shape(operator.inputs[0]))
    shape.insert(operator.options["Axis"] % (len(shape) + 1), len(operator.inputs))
    return [tuple(shape)]


def _unpack(sizes: _Sizes, operator: Operator) -> list[Shape]:
    shape = list(sizes.shape(operator.inputs[0]))
    del shape[operator.options["Axis"]]
    return [tuple(shape)] * len(operator.outputs)


def _gather(sizes: _Sizes, operator: Operator) -> list[Shape]:
    shape, places = (sizes.shape(index) for index in operator.inputs)
    axis, batches = operator.options.get("Axis", 0) % len(shape), operator.options.get("BatchDims", 0)
    return [(*shape[:axis], *places[batches:], *shape[axis + 1 :])]


def _slice(sizes: _Sizes, operator: Operator) -> list[Shape]:
    begins, wanted = sizes.numbers(operator, 1), sizes.numbers(operator, 2)
    whole = sizes.shape(operator.inputs[0])
    rows = zip(begins, wanted, whole, strict=True)
    return [tuple(size if size >= 0 else of - begin for begin, size, of in rows)]


def _strided(sizes: _Sizes, operator: Operator) -> list[Shape]:
    begins, ends, steps = (sizes.numbers(operator, place) for place in (1, 2, 3))
    return [sizes.dummy(operator)[strided(operator.options, begins, ends, steps)].shape]


def _reduced(sizes: _Sizes, operator: Operator) -> list[Shape]:
    shape = sizes.shape(operator.inputs[0])
    axes = {axis % len(shape) for axis in sizes.numbers(operator, 1)}
    keep = operator.options.get("KeepDims", False)
    return [tuple(1 if d in axes else n for d, n in enumerate(shape) if keep or d not in axes)]


def _extreme(sizes: _Sizes, operator: Operator) -> list[Shape]:
    shape = sizes.shape(operator.inputs[0])
    axis = sizes.numbers(operator, 1)[0] % len(shape)
    return [(*shape[:axis], *shape[axis + 1 :])]


def _padded(sizes: _Sizes, operator: Operator) -> list[Shape]:
    pairs = np.asarray(sizes.numbers(operator, 1)).reshape(-1, 2).sum(1).tolist()
    return [tuple(n + more for n, more in zip(sizes.shape(operator.inputs[0]), pairs, strict=True))]


def _as_stated(place: int) -> Callable[[_Sizes, Operator], list[Shape]]:
    """Of an operator with the sizes of its result as an operand."""
    return lambda sizes, operator: [tuple(sizes.numbers(operator, place))]


def _tiled(sizes: _Sizes, operator: Operator) -> list[Shape]:
    repeats = sizes.numbers(operator, 1)
    return [tuple(n * by for n, by in zip(sizes.shape(operator.inputs[0]), repeats, strict=True))]


def _counted(sizes: _Sizes, operator: Operator) -> list[Shape]:
    first, last, step = (sizes.numbers(operator, place)[0] for place in range(3))
    return [(len(range(first, last, step)),)]


def _windows(sizes: _Sizes, operator: Operator) -> list[Shape]:
    """Of convolutions and pooling: [n, h, w, c]."""
    given, (batch, *image, channels) = operator.options, sizes.shape(operator.inputs[0])
    if "FilterHeight" in given:
        kernel = [given["FilterHeight"], given["FilterWidth"]]
    else:
        weights = sizes.shape(operator.inputs[1])
        kernel = list(weights[1:3])
        channels = weights[0] if operator.name == "CONV_2D" else weights[3]
    found = []
    for axis, size, taps in zip("HW", image, kernel, strict=True):
        stride, reach = given[f"Stride{axis}"], (taps - 1) * given.get(f"Dilation{axis}Factor", 1) + 1
        rest = size if given["Padding"] == SAME else size - reach + 1
        found.append(-(-rest // stride))
    return [(batch, *found, channels)]


def _dense(sizes: _Sizes, operator: Operator) -> list[Shape]:
    shape, (rows, columns) = sizes.shape(operator.inputs[0]), sizes.shape(operator.inputs[1])
    if operator.options.get("KeepNumDims"):
        return [(*shape[:-1], rows)]
    return [(int(np.prod(shape)) // columns, rows)]


def _products(sizes: _Sizes, operator: Operator) -> list[Shape]:
    (*lead, a, b), (*other, c, d) = (sizes.shape(index) for index in operator.inputs)
    rows = b if operator.options.get("AdjX") else a
    columns = c if operator.options.get("AdjY") else d
    return [(*np.broadcast_shapes(tuple(lead), tuple(other)), rows, columns)]


def _resized(sizes: _Sizes, operator: Operator) -> list[Shape]:
    batch, _, _, channels = sizes.shape(operator.inputs[0])
    return [(batch, *sizes.numbers(operator, 1), channels)]


def _spectrum(sizes: _Sizes, operator: Operator) -> list[Shape]:
    rows, columns = sizes.numbers(operator, 1)
    return [(*sizes.shape(operator.inputs[0])[:-2], rows, columns // 2 + 1)]


RULES: dict[str, Callable[[_Sizes, Operator], Sequence[Shape]]] = {
    **dict.fromkeys(ALIKE, _alike),
    **dict.fromkeys(REDUCED, _reduced),
    **dict.fromkeys(("ARG_MAX", "ARG_MIN"), _extreme),
    **dict.fromkeys(("SPLIT", "SPLIT_V"), _split),
    **dict.fromkeys(("PAD", "PADV2", "MIRROR_PAD"), _padded),
    **dict.fromkeys(("CONV_2D", "DEPTHWISE_CONV_2D", "MAX_POOL_2D", "AVERAGE_POOL_2D"), _windows),
    **dict.fromkeys(("RESIZE_BILINEAR", "RESIZE_NEAREST_NEIGHBOR"), _resized),
    "SHAPE": _shape,
    "RESHAPE": _reshape,
    "SQUEEZE": _squeeze,
    "EXPAND_DIMS": _expand,
    "TRANSPOSE": _transpose,
    "CONCATENATION": _concat,
    "PACK": _pack,
    "UNPACK": _unpack,
    "GATHER": _gather,
    "SLICE": _slice,
    "STRIDED_SLICE": _strided,
    "FILL": _as_stated(0),
    "BROADCAST_TO": _as_stated(1),
    "TRANSPOSE_CONV": _as_stated(0),
    "TILE": _tiled,
    "RANGE": _counted,
    "FULLY_CONNECTED": _dense,
    "BATCH_MATMUL": _products,
    "RFFT2D": _spectrum,
}
"""By operator the sizes of its results."""
