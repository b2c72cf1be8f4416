"""Preprocessing as nodes in front of a network: the program takes pictures of one size as bytes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal

import numpy as np
import numpy.typing as npt

from npuflow.base.errors import ModelError, suggestion
from npuflow.base.tables import Config, Fault, Range
from npuflow.frontends._nodes.build import NodeBuilder
from npuflow.frontends._nodes.shapes import output_types
from npuflow.input.data.steps import DataStep, Normalize
from npuflow.input.pixels.pixels import Pixels
from npuflow.ir.graph import Graph, prune
from npuflow.ir.types import Array, QuantType, TensorType
from npuflow.onnx.run import EXPORT_OPSET

Reals = npt.NDArray[np.float64]
TOP = 127                                 # largest code of a weight of 8 bits


def _triangle(x: Reals) -> Reals:
    return np.maximum(0.0, 1.0 - np.abs(x))


def _box(x: Reals) -> Reals:
    return ((x > -0.5) & (x <= 0.5)).astype(np.float64)


FILTERS: dict[str, tuple[Callable[[Reals], Reals], float]] = {
    "bilinear": (_triangle, 1.0), "area": (_box, 0.5),
}


def resampling(size: int, wanted: int, method: str, antialias: bool = True) -> Reals:
    """[wanted, size]: the weights of every result; rows add up to 1. `antialias`: shrinking widens the
    filter, as Pillow does."""
    kernel, support = FILTERS[method]
    scale = size / wanted
    wide = max(scale, 1.0) if antialias else 1.0
    centers = (np.arange(wanted) + 0.5) * scale
    low = np.maximum(0, np.floor(centers - support * wide + 0.5))
    high = np.minimum(size, np.floor(centers + support * wide + 0.5))
    at = np.arange(size)[None]
    weights = kernel((at + 0.5 - centers[:, None]) / wide)
    weights[(at < low[:, None]) | (at >= high[:, None])] = 0.0
    return weights / weights.sum(1, keepdims=True)


def fraction_bits(weights: npt.NDArray[np.floating]) -> int:
    """n of the smallest step 2^-n with which the largest weight has a code of 8 bits."""
    return int(np.floor(np.log2(TOP / float(weights.max()))))


def fixed_point(weights: Reals) -> Reals:
    """The weights as multiples of 2^-n, every row with a sum of exactly 1: independent rounding would make
    flat areas darker or lighter. The largest remainders of a row are rounded up."""
    ones = 1 << fraction_bits(weights)
    found = np.floor(weights * ones)
    for row, remainder in zip(found, weights * ones - found, strict=True):
        row[np.argsort(-remainder, kind="stable")[: ones - int(row.sum())]] += 1
    return found / ones


# operators that the steps become
MAKES = (
    "add", "concat", "conv", "gather", "host", "matmul", "mul", "pad", "resize", "slice", "transpose",
)
LUMA = (0.299, 0.587, 0.114)              # ITU-R 601, as Pillow's mode L
PIXELS = "pixels"                         # part of the names of values that hold pixels
HOSTED = '[preprocess] place = "host"'


@dataclass(frozen=True)
class Preprocess(Config):
    """Steps that the program does itself on pictures of one size, as [[data.steps]] does them on the host."""

    # height and width of the pictures that the program takes; absent: those of the network's input, at each
    # of [model] shapes its own
    size: tuple[int, int] | None = None
    # absent: the only input of four dimensions
    input: str = ""
    channels: Annotated[int, Range(1, 4)] = 3                # of the pictures that the program takes
    layout: Literal["nhwc", "nchw"] = "nhwc"                 # of these pictures
    name: str = "image"                                      # of the program's input
    # bilinear shrinking averages, as the host's does; false: between the nearest pixels alone
    antialias: bool = True
    # who does the steps; auto: the NPU where it has the operators
    place: Literal["auto", "host"] = "auto"
    steps: tuple[DataStep, ...] = ()

    def check(self) -> Iterator[Fault]:
        if self.size is not None and min(self.size) < 1:
            yield Fault("size", f"{list(self.size)} is no height and width", code="NF-RECIPE-120")
        for i, step in enumerate(self.steps):
            for what, why in _without_form(step):
                yield Fault(
                    "steps", f"step {i + 1}, {what}, cannot be a part of the program", why,
                    "leave it in [[data.steps]], which the host does", code="NF-RECIPE-121",
                )


def pixel_zeros(table: Preprocess | None) -> dict[str, float]:
    """By the program's input the number that its normalisations bring to 0, the mean of the channels: what
    pixels are subtracted from as the host's normalisation would."""
    scale, shift = np.ones(1), np.zeros(1)
    found = [step.normalize for step in (table.steps if table is not None else ()) if step.normalize]
    for n in found:
        mean, std = np.asarray(n.mean, np.float64), np.asarray(n.std, np.float64)
        if len({size for size in (mean.size, std.size, scale.size) if size > 1}) > 1:
            return {}                         # the nodes of the step report it
        scale, shift = scale * n.scale / std, (shift * n.scale - mean) / std
    if table is None or not found or not np.all(scale):
        return {}
    return {table.name: float((-shift / scale).mean())}


def _without_form(step: DataStep) -> Iterator[tuple[str, str]]:
    if step.transpose is not None:
        yield "transpose", "[preprocess] layout states the order of the picture's axes"
    if step.dtype is not None:
        yield f'dtype = "{step.dtype}"', "the program's numbers are codes"
    if step.resize is not None and step.method in ("bicubic", "lanczos"):
        yield f'method = "{step.method}"', "its filter overshoots at edges, which the host cuts off"
    if step.input:
        yield f'input = "{step.input}"', "[preprocess] input names the only input that is prepared"


def with_preprocessing(graph: Graph, table: Preprocess) -> Graph:
    """The graph that takes pictures, in place of the input that they are prepared for."""
    target = _input_of(graph, table)
    if table.name in graph.values:
        raise ModelError(
            f'the pictures cannot be the input "{table.name}"', because="the model has a tensor of that name",
            hint='[preprocess] name = "..."', code="NF-MODEL-340",
        ).at(key="preprocess.name")
    kind = graph.type(target)
    net = _Prefix(graph, table, table.size or _own_size(kind.shape, table))
    made = net.steps()
    shape = net.type(made).shape
    if shape != kind.shape:
        raise ModelError(
            f"the steps of [preprocess] make {list(shape)}, the model takes {list(kind.shape)}",
            because=f"pictures are {list(net.type(table.name).shape)}",
            hint='a resize step; `layout = "nhwc"` as the last step of a network in that order',
            code="NF-MODEL-341",
        ).at(key="preprocess.steps")
    if kind.dtype != "float32":
        raise ModelError(
            f'the model input "{target}" is {kind.dtype}, which no preprocessing makes',
            hint="[[data.steps]] prepares such inputs on the host", code="NF-MODEL-342",
        ).at(key="preprocess.input")
    return net.in_front(graph, target, made)


def _own_size(shape: tuple[int, ...], table: Preprocess) -> tuple[int, int]:
    """Height and width of the network's input."""
    layouts = [step.layout for step in table.steps if step.layout is not None]
    height, width = shape[1:3] if layouts and layouts[-1] == "nhwc" else shape[2:]
    return height, width


def _input_of(graph: Graph, table: Preprocess) -> str:
    pictures = [i for i in graph.inputs if len(graph.type(i).shape) == 4]
    if table.input in graph.inputs and table.input in pictures:
        return table.input
    because = f"inputs of four dimensions: {', '.join(pictures) or 'none'}"
    if table.input:
        raise ModelError(
            f'the input "{table.input}" takes no pictures', because=because,
            hint=suggestion(table.input, pictures) or "another input, or none", code="NF-MODEL-343",
        ).at(key="preprocess.input")
    if len(pictures) != 1:
        raise ModelError(
            f"{len(pictures)} inputs could take pictures", because=because,
            hint='[preprocess] input = "..."', code="NF-MODEL-346",
        ).at(key="preprocess.input")
    return pictures[0]


class _Prefix:
    """Nodes over a picture, in the order NCHW between the first and the last one."""

    def __init__(self, graph: Graph, table: Preprocess, size: tuple[int, int]) -> None:
        self.table, self.builder = table, NodeBuilder({"": EXPORT_OPSET}, taken=tuple(graph.values))
        self.count, self.channels_last, self.stage = 0, False, PIXELS
        height, width = size
        nhwc = table.layout == "nhwc"
        shape = (1, height, width, table.channels) if nhwc else (1, table.channels, height, width)
        self.builder.input(table.name, TensorType(shape, "float32"))

    def type(self, value: str) -> TensorType:
        return self.builder.type(value)

    def steps(self) -> str:
        x = self.table.name
        if self.table.layout == "nhwc":
            x = self.op("Transpose", x, perm=(0, 3, 1, 2))
        for step in self.table.steps:
            (operation,) = step.operations()
            x = _STEPS[operation](self, x, step)
        return self.op("Transpose", x, perm=(0, 2, 3, 1)) if self.channels_last else x

    # --- nodes
    def op(self, kind: str, *inputs: str, **attributes: Any) -> str:
        self.count += 1
        name = self.builder.free(f"{self.table.name}/{self.stage}_{kind.lower()}_{self.count}")
        if self.table.place == "host":
            import onnx

            node = onnx.helper.make_node(kind, list(inputs), [name], name, **attributes)
            known = {i: self.type(i) for i in inputs if i}
            types = output_types(node, EXPORT_OPSET, known, self.builder.arrays)
            self.builder.host(node, EXPORT_OPSET, types, HOSTED, (name,), kept=True)
        else:
            self.builder.call(kind, inputs, [name], name, **attributes)
        return name

    def constant(self, array: Array) -> str:
        self.count += 1
        return self.builder.constant(self.builder.free(f"{self.table.name}/constant_{self.count}"), array)

    def ints(self, *values: int) -> str:
        return self.constant(np.array(values, np.int64))

    def in_front(self, graph: Graph, target: str, made: str) -> Graph:
        """The steps, then the network, which reads what they make."""
        net = self.builder
        net.values.update({name: value for name, value in graph.values.items() if name != target})
        net.consts.update(graph.consts)
        for node in graph.nodes:
            read = tuple(made if i == target else i for i in node.inputs)
            net.nodes.append(replace(node, inputs=read))
        inputs = tuple(self.table.name if i == target else i for i in graph.inputs)
        whole = net.graph(inputs, graph.outputs)
        return prune(whole.replaced(state=graph.state, lengths=graph.lengths, rings=graph.rings))


def _resize(net: _Prefix, x: str, step: DataStep) -> str:
    assert step.resize is not None
    height, width = net.type(x).shape[2:]
    size = step.resize
    if step.keep_ratio != "no":
        choose = max if step.keep_ratio == "short" else min
        scale = choose(step.resize[0] / height, step.resize[1] / width)
        size = max(1, round(height * scale)), max(1, round(width * scale))
    # Pillow resizes the width first, and rounds to whole pixels in between
    for axis in (3, 2):
        x = _resampled(net, x, axis, size[axis - 2], step.method)
    if step.keep_ratio != "letterbox":
        return x
    rest = step.resize[0] - size[0], step.resize[1] - size[1]
    top, left = (rest[0] // 2, rest[1] // 2) if step.align == "center" else (0, 0)
    return _filled(net, x, (top, left, rest[0] - top, rest[1] - left), step.fill)


def _resampled(net: _Prefix, x: str, axis: int, size: int, method: str) -> str:
    """One axis at another size: by neighbours where that is what the filter is, else as a product with its
    weights."""
    shape = net.type(x).shape
    if shape[axis] == size:
        return x
    if method == "nearest" or (method == "bilinear" and (size > shape[axis] or not net.table.antialias)):
        sizes = net.ints(*(size if a == axis else d for a, d in enumerate(shape)))
        how: dict[str, Any] = {"mode": "nearest", "nearest_mode": "round_prefer_ceil"} \
            if method == "nearest" else {"mode": "linear"}
        return net.op("Resize", x, "", "", sizes, coordinate_transformation_mode="half_pixel", **how)
    weights = fixed_point(resampling(shape[axis], size, method, net.table.antialias)).astype(np.float32)
    if axis == 3:
        return net.op("MatMul", x, net.constant(np.ascontiguousarray(weights.T)))
    return net.op("MatMul", net.constant(weights), x)


def _filled(net: _Prefix, x: str, pads: tuple[int, int, int, int], fill: float) -> str:
    top, left, bottom, right = pads
    if not any(pads):
        return x
    return net.op(
        "Pad", x, net.ints(0, 0, top, left, 0, 0, bottom, right), net.constant(np.array(fill, np.float32))
    )


def _center_crop(net: _Prefix, x: str, step: DataStep) -> str:
    assert step.center_crop is not None
    height, width = step.center_crop
    have = net.type(x).shape[2:]
    short_h, short_w = max(0, height - have[0]), max(0, width - have[1])
    pads = (short_h // 2, short_w // 2, short_h - short_h // 2, short_w - short_w // 2)
    x = _filled(net, x, pads, step.fill)
    have = net.type(x).shape[2:]
    top, left = (have[0] - height) // 2, (have[1] - width) // 2
    if have == (height, width):
        return x
    return net.op("Slice", x, net.ints(top, left), net.ints(top + height, left + width), net.ints(2, 3))


def _pad(net: _Prefix, x: str, step: DataStep) -> str:
    assert step.pad is not None
    return _filled(net, x, step.pad, step.fill)


def _channels(net: _Prefix, x: str, step: DataStep) -> str:
    colours = net.type(x).shape[1]
    if step.channels == "bgr" and colours == 3:
        return net.op("Gather", x, net.ints(2, 1, 0), axis=1)
    if step.channels == "grey" and colours == 3:
        return net.op("Conv", x, net.constant(np.array(LUMA, np.float32).reshape(1, 3, 1, 1)))
    if step.channels == "rgb" and colours == 1:
        return net.op("Concat", x, x, x, axis=1)
    if (step.channels, colours) in (("rgb", 3), ("grey", 1)):
        return x
    raise ModelError(
        f'channels = "{step.channels}" needs a picture of 3 channels, it has {colours}',
        hint="[preprocess] channels = 3", code="NF-MODEL-344",
    ).at(key="preprocess.steps")


def _normalize(net: _Prefix, x: str, step: DataStep) -> str:
    assert step.normalize is not None
    n: Normalize = step.normalize
    mean, std = np.asarray(n.mean, np.float64), np.asarray(n.std, np.float64)
    count, colours = max(mean.size, std.size), net.type(x).shape[1]
    if count not in (1, colours):
        raise ModelError(
            f"normalize has {count} numbers per channel, the picture has {colours} channels",
            code="NF-MODEL-345",
        ).at(key="preprocess.steps")
    net.stage = "normalised"
    scale, shift = np.broadcast_arrays(n.scale / std, -mean / std)
    for kind, numbers, plain in (("Mul", scale, 1.0), ("Add", shift, 0.0)):
        if np.any(numbers != plain):
            x = net.op(kind, x, net.constant(numbers.astype(np.float32).reshape(1, -1, 1, 1)))
    return x


def _layout(net: _Prefix, x: str, step: DataStep) -> str:
    net.channels_last = step.layout == "nhwc"
    return x


_STEPS: dict[str, Callable[[_Prefix, str, DataStep], str]] = {
    "resize": _resize, "center_crop": _center_crop, "pad": _pad, "channels": _channels,
    "normalize": _normalize, "layout": _layout,
}


def pixel_values(graph: Graph, pixels: Mapping[str, Pixels], table: Preprocess) -> dict[str, QuantType]:
    """The tensors of pixels behind an input of pixels, with the type of that input, and the weights that
    they are resampled with, in their fixed-point form."""
    one = pixels.get(table.name)
    if one is None:
        return {}
    front = f"{table.name}/{PIXELS}_"
    found = {name: one.quant for name in graph.values if name.startswith(front) and graph.const(name) is None}
    for node in graph.nodes:
        if node.op.algebra != "matrices" or node.outputs[0] not in found:
            continue
        for name in node.inputs:
            weights = graph.const(name)
            if weights is not None:
                found[name] = QuantType(8, True, (2.0 ** -fraction_bits(weights),), (0,))
    return found
