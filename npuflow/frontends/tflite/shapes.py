"""Operators that move data or make shapes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from npuflow.frontends.tflite.known import known
from npuflow.frontends.tflite.network import (
    INTO,
    NCHW,
    PLACE,
    PLAIN,
    ROW,
    ROW_PLACE,
    TfliteBuilder,
    TfliteOperatorError,
    element,
    quant_of,
    still,
)
from npuflow.frontends.tflite.schema import Operator

FIRST, LAST = -(2**63), 2**63 - 1                 # as far as a slice goes


def reshaped(builder: TfliteBuilder, index: int, shape: Sequence[int]) -> str:
    """A value with another shape; nothing is moved where its layouts have the same order."""
    old = builder.tensor(index).shape
    layout = builder.home(index) if len(old) == 4 and still(old) else PLAIN
    x = builder.value(index, layout)
    return (
        x if layout == PLAIN and tuple(shape) == old else builder.node("Reshape", [x, builder.shape(shape)])
    )


def reshape(builder: TfliteBuilder, operator: Operator) -> None:
    source, result = operator.inputs[0], operator.outputs[0]
    shape = builder.tensor(result).shape
    held = builder.data(source)
    if held is not None and builder.tensor(source).codes is None:
        builder.folded[result] = held.reshape(shape)
        return
    old = builder.tensor(source).shape
    if held is None and (row := _row(builder.forms[source], old, shape)):
        builder.node("Identity", [builder.value(source, row[0])], builder.result(result, row[1]))
        return
    layout = builder.home(source) if len(old) == 4 and still(old) else PLAIN
    builder.node("Reshape", [builder.value(source, layout), builder.shape(shape)], builder.result(result))


def _row(forms: Mapping[str, str], old: Sequence[int], new: Sequence[int]) -> tuple[str, str] | None:
    """The layouts in which an image of one row [N, 1, W, C] and its values [N, W, C] are the same numbers,
    where the one that is reshaped is at hand so: the dimension that a convolution of TensorFlow over one
    dimension puts in and takes out."""
    if NCHW in forms and len(old) == 4 and (old[0], *old[2:]) == tuple(new) and old[1] == 1:
        return NCHW, ROW
    if ROW in forms and len(new) == 4 and (new[0], *new[2:]) == tuple(old) and new[1] == 1:
        return ROW, NCHW
    return None


def transpose(builder: TfliteBuilder, operator: Operator) -> None:
    source, result = operator.inputs[0], operator.outputs[0]
    perm = builder.ints(operator, 1, "a permutation")
    held = builder.data(source)
    if held is not None and builder.tensor(source).codes is None:
        builder.folded[result] = held.transpose(perm)
        return
    layout = builder.home(source)
    moved = [PLACE[a] for a in perm] if layout == NCHW else perm
    kind, more = ("Identity", {}) if moved == sorted(moved) else ("Transpose", {"perm": moved})
    builder.node(kind, [builder.value(source, layout)], builder.result(result), **more)


def concat(builder: TfliteBuilder, operator: Operator) -> None:
    layout = builder.layout(operator.inputs)
    rank = len(builder.tensor(operator.outputs[0]).shape)
    axis = operator.options["Axis"] % rank
    inputs = [builder.value(i, layout) for i in operator.inputs]
    name = builder.result(operator.outputs[0], layout, operator.options.get("FusedActivationFunction", 0))
    places = {NCHW: PLACE, ROW: ROW_PLACE}.get(layout)
    builder.node("Concat", inputs, name, axis=places[axis] if places else axis)


def split(builder: TfliteBuilder, operator: Operator) -> None:
    source, place = (operator.inputs[1], 0) if operator.name == "SPLIT" else (operator.inputs[0], 2)
    layout, rank = builder.home(source), len(builder.tensor(source).shape)
    axis = builder.ints(operator, place, "an axis")[0] % rank
    sizes = [builder.tensor(o).shape[axis] for o in operator.outputs]
    names = [builder.result(o, layout) for o in operator.outputs]
    inputs = [builder.value(source, layout), builder.shape(sizes)]
    builder.many("Split", inputs, names, axis=PLACE[axis] if layout == NCHW else axis)


def pack(builder: TfliteBuilder, operator: Operator) -> None:
    axis = operator.options["Axis"] % len(builder.tensor(operator.outputs[0]).shape)
    parts = [builder.node("Unsqueeze", [builder.value(i), builder.shape([axis])]) for i in operator.inputs]
    builder.node("Concat", parts, builder.result(operator.outputs[0]), axis=axis)


def unpack(builder: TfliteBuilder, operator: Operator) -> None:
    source = operator.inputs[0]
    axis = operator.options["Axis"] % len(builder.tensor(source).shape)
    parts = [builder.free(f"{builder.tensor(o).name}:part") for o in operator.outputs]
    builder.many("Split", [builder.value(source), builder.shape([1] * len(parts))], parts, axis=axis)
    for part, result in zip(parts, operator.outputs, strict=True):
        builder.node("Squeeze", [part, builder.shape([axis])], builder.result(result))


def pad(builder: TfliteBuilder, operator: Operator) -> None:
    source, layout = operator.inputs[0], builder.home(operator.inputs[0])
    pairs = np.asarray(builder.ints(operator, 1, "paddings")).reshape(-1, 2)
    if layout == NCHW:
        pairs = pairs[list(INTO)]
    elif builder.has_row(source) and operator.name != "MIRROR_PAD":
        layout, pairs = ROW, np.stack([pairs[0], pairs[2], [0, 0], pairs[1]])
    if operator.name == "MIRROR_PAD" and operator.options.get("Mode") and pairs.max(initial=0) > 1:
        _mirrored(builder, operator, pairs.tolist(), layout)
        return
    inputs = [builder.value(source, layout), builder.shape([*pairs[:, 0].tolist(), *pairs[:, 1].tolist()])]
    mode = "constant"
    if operator.name == "PADV2":
        inputs.append(builder.value(operator.inputs[2]))
    elif operator.name == "MIRROR_PAD":
        mode = "edge" if operator.options.get("Mode") else "reflect"      # with the edge itself, or without
    builder.node("Pad", inputs, builder.result(operator.outputs[0], layout), mode=mode)


def _mirrored(builder: TfliteBuilder, operator: Operator, pairs: list[list[int]], layout: str) -> None:
    """Reversed rows of each side, the edge among them, around the value, axis by axis."""
    source, result = operator.inputs[0], operator.outputs[0]
    codes = builder.activation(builder.tensor(source))
    quant = quant_of(codes, builder.tensor(source)) if codes is not None else None
    value = builder.value(source, layout)
    shape = [builder.tensor(source).shape[a] for a in (INTO if layout == NCHW else range(len(pairs)))]
    moved = [axis for axis, pair in enumerate(pairs) if any(pair)]
    for axis in moved:
        (before, after), size = pairs[axis], shape[axis]
        sides = []
        for count, (first, last) in ((before, (before - 1, FIRST)), (after, (LAST, size - 1 - after))):
            bounds = [builder.shape([v]) for v in (first, last, axis, -1)]
            sides.append([builder.node("Slice", [value, *bounds])] if count else [])
        last = axis == moved[-1]
        name = builder.result(result, layout) if last else ""
        value = builder.node("Concat", [*sides[0], value, *sides[1]], name, axis=axis)
        if quant is not None:
            kept = [*sides[0], *sides[1], *([] if last else [value])]
            for part in kept:
                builder.graph.state(part, quant)
        shape[axis] += before + after


def cut(builder: TfliteBuilder, operator: Operator) -> None:
    begins, sizes = builder.ints(operator, 1, "a beginning"), builder.ints(operator, 2, "a size")
    ends = [LAST if size < 0 else begin + size for begin, size in zip(begins, sizes, strict=True)]
    _slice(builder, operator, begins, ends, [1] * len(begins))


def strided(builder: TfliteBuilder, operator: Operator) -> None:
    given, rank = operator.options, len(builder.tensor(operator.inputs[0]).shape)
    wanted = [builder.ints(operator, place, "bounds") for place in (1, 2, 3)]
    begins, ends, steps = [0] * rank, [LAST] * rank, [1] * rank
    axis, rows = 0, list(zip(*wanted, strict=True))
    for i, (begin, end, step) in enumerate(rows):
        bit = 1 << i
        if given["EllipsisMask"] & bit:
            added = sum(bool(given["NewAxisMask"] >> j & 1) for j in range(i + 1, len(rows)))
            axis = rank - (len(rows) - i - 1 - added)
        elif not given["NewAxisMask"] & bit:
            begins[axis], steps[axis] = (begin, step)
            if given["BeginMask"] & bit:
                begins[axis] = 0 if step > 0 else LAST
            ends[axis] = end if not given["EndMask"] & bit else LAST if step > 0 else FIRST
            if given["ShrinkAxisMask"] & bit:
                begins[axis], ends[axis], steps[axis] = begin, LAST if begin == -1 else begin + 1, 1
            elif given.get("Offset"):
                ends[axis] = begins[axis] + end
            axis += 1
    _slice(builder, operator, begins, ends, steps)


def _slice(
    builder: TfliteBuilder, operator: Operator, begins: list[int], ends: list[int], steps: list[int]
) -> None:
    """A slice of all axes; dimensions that come or go are a Reshape behind it."""
    source, result = operator.inputs[0], operator.outputs[0]
    held = builder.data(source)
    if held is not None and builder.tensor(source).codes is None:
        bounds = [(b, None if e == FIRST else e, s) for b, e, s in zip(begins, ends, steps, strict=True)]
        builder.folded[result] = held[tuple(slice(*b) for b in bounds)].reshape(builder.tensor(result).shape)
        return
    old, new = builder.tensor(source).shape, builder.tensor(result).shape
    sizes = [len(range(*slice(b, None if e == FIRST else e, s).indices(n)))
             for b, e, s, n in zip(begins, ends, steps, old, strict=True)]
    layout = builder.home(source) if tuple(sizes) == new else PLAIN
    if tuple(sizes) == new and builder.has_row(source):
        layout = ROW
    order = INTO if layout == NCHW else range(len(old))
    bounds_ = [builder.shape([part[a] for a in order]) for part in (begins, ends)]
    inputs = [
        builder.value(source, layout),
        *bounds_,
        builder.shape(ROW_PLACE if layout == ROW else range(len(old))),
        builder.shape([steps[a] for a in order]),
    ]
    if tuple(sizes) == new:
        builder.node("Slice", inputs, builder.result(result, layout))
    else:
        builder.node("Reshape", [builder.node("Slice", inputs), builder.shape(new)], builder.result(result))


def sizes_of(builder: TfliteBuilder, operator: Operator) -> None:
    """The shape of a tensor is known: every size of a TFLite file is stated."""
    result = operator.outputs[0]
    shape = builder.tensor(operator.inputs[0]).shape
    builder.folded[result] = np.asarray(shape, builder.tensor(result).dtype)


def counted(builder: TfliteBuilder, operator: Operator) -> None:
    """Numbers between constant ends."""
    held = [builder.data(index) for index in operator.inputs]
    ends = [one for one in held if one is not None]
    made = known(operator, ends, builder.tensor(operator.outputs[0])) if len(ends) == 3 else None
    if made is None:
        raise TfliteOperatorError("between ends that the network computes")
    builder.folded[operator.outputs[0]] = made


def filled(builder: TfliteBuilder, operator: Operator) -> None:
    result = operator.outputs[0]
    inputs = [builder.value(operator.inputs[-1 if operator.name == "FILL" else 0])]
    builder.node("Expand", [*inputs, builder.shape(builder.tensor(result).shape)], builder.result(result))


def tile(builder: TfliteBuilder, operator: Operator) -> None:
    repeats = builder.shape(builder.ints(operator, 1, "a number of copies"))
    builder.node("Tile", [builder.value(operator.inputs[0]), repeats], builder.result(operator.outputs[0]))


def gather(builder: TfliteBuilder, operator: Operator) -> None:
    if batches := operator.options.get("BatchDims"):
        if operator.options.get("Axis", 0) != batches:
            raise TfliteOperatorError("indices by samples (batch_dims) along a later axis")
        x, places = (builder.value(i) for i in operator.inputs)
        wide = builder.node("Cast", [places], to=element("int64"))
        rows = builder.node("Unsqueeze", [wide, builder.shape([-1])])
        builder.node("GatherND", [x, rows], builder.result(operator.outputs[0]), batch_dims=batches)
        return
    inputs = [builder.value(i) for i in operator.inputs]
    builder.node("Gather", inputs, builder.result(operator.outputs[0]), axis=operator.options.get("Axis", 0))


def gather_nd(builder: TfliteBuilder, operator: Operator) -> None:
    x, places = (builder.value(i) for i in operator.inputs)
    wide = builder.node("Cast", [places], to=element("int64"))
    builder.node("GatherND", [x, wide], builder.result(operator.outputs[0]))


def reversed_sequences(builder: TfliteBuilder, operator: Operator) -> None:
    batch, time = operator.options.get("BatchDim", 0), operator.options.get("SeqDim", 0)
    if {batch, time} != {0, 1}:
        raise TfliteOperatorError("sequences along later axes")
    lengths = builder.node("Cast", [builder.value(operator.inputs[1])], to=element("int64"))
    inputs = [builder.value(operator.inputs[0]), lengths]
    builder.node(
        "ReverseSequence", inputs, builder.result(operator.outputs[0]), batch_axis=batch, time_axis=time
    )


def backwards(builder: TfliteBuilder, operator: Operator) -> None:
    rank = len(builder.tensor(operator.inputs[0]).shape)
    axes = {a % rank for a in builder.ints(operator, 1, "axes")}
    turned = [a in axes for a in range(rank)]
    _slice(
        builder, operator, [LAST if t else 0 for t in turned], [FIRST if t else LAST for t in turned],
        [-1 if t else 1 for t in turned],
    )


SHAPES: dict[str, Callable[[TfliteBuilder, Operator], None]] = {
    **dict.fromkeys(("RESHAPE", "SQUEEZE", "EXPAND_DIMS"), reshape),
    "TRANSPOSE": transpose,
    "CONCATENATION": concat,
    **dict.fromkeys(("SPLIT", "SPLIT_V"), split),
    "PACK": pack,
    "UNPACK": unpack,
    **dict.fromkeys(("PAD", "PADV2", "MIRROR_PAD"), pad),
    "SLICE": cut,
    "STRIDED_SLICE": strided,
    "SHAPE": sizes_of,
    "RANGE": counted,
    **dict.fromkeys(("FILL", "BROADCAST_TO"), filled),
    "TILE": tile,
    "GATHER": gather,
    "GATHER_ND": gather_nd,
    "REVERSE_V2": backwards,
    "REVERSE_SEQUENCE": reversed_sequences,
}
