"""Finds contradictions between the input shapes of a node that onnx's inference accepts.
Windows too large, channels that do not match, a Reshape to another number of elements.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import onnx

from npuflow.base.errors import ModelError
from npuflow.frontends._nodes.shapes import label
from npuflow.ir.types import TensorType

_WINDOWS = {"Conv", "ConvTranspose", "MaxPool", "AveragePool", "LpPool"}


def fit(node: onnx.NodeProto, known: Mapping[str, TensorType], types: Sequence[TensorType]) -> None:
    """A ModelError that says by its numbers why the node cannot be computed."""
    if node.domain or not node.input or node.input[0] not in known:
        return
    if node.op_type == "Reshape":
        _elements(node, known[node.input[0]], types[0])
    if node.op_type not in _WINDOWS:
        return
    x = known[node.input[0]].shape
    if len(x) < 3:
        return
    convolves = node.op_type in ("Conv", "ConvTranspose") and len(node.input) > 1 and node.input[1] in known
    weights = known[node.input[1]].shape if convolves else ()
    attributes = {a.name: a for a in node.attribute}
    if len(weights) == len(x) and min(x[1], *weights[:2]) > 0:
        group = attributes["group"].i if "group" in attributes else 1
        wanted = weights[1] * group if node.op_type == "Conv" else weights[0]
        if x[1] != wanted:
            groups = f" in {group} groups" if group != 1 else ""
            raise ModelError(
                f"node {label(node)} is not valid ONNX",
                because=f'its weights "{node.input[1]}" {list(weights)} are for {wanted} channels{groups}, '
                f'its input "{node.input[0]}" {list(x)} has {x[1]}',
                hint="export the model again, or compare the shapes in a viewer: the input or the weights "
                "are another layer's",
                code="NF-MODEL-014",
            ).at(node=label(node), value=node.input[0])
    kernel = list(attributes["kernel_shape"].ints) if "kernel_shape" in attributes else list(weights[2:])
    out = types[0].shape if types and kernel else ()
    # inference says less than 0 as unknown
    if len(out) == len(x) and min(*x[2:], *kernel) > 0 and min(out[2:]) < 1:
        pads = list(attributes["pads"].ints) if "pads" in attributes else [0] * (2 * len(kernel))
        raise ModelError(
            f"node {label(node)} has no output",
            because=f'its window {kernel} is larger than its input "{node.input[0]}" {list(x)} with pads '
            f'{pads}',
            hint="[model] inputs binds larger sizes where the model leaves them free",
            code="NF-MODEL-016",
        ).at(node=label(node), value=node.input[0])


def _elements(node: onnx.NodeProto, x: TensorType, y: TensorType) -> None:
    """A Reshape gives the elements that it takes."""
    if not (x.is_static and y.is_static) or math.prod(x.shape) == math.prod(y.shape):
        return
    raise ModelError(
        f"node {label(node)} is not valid ONNX",
        because=f'its input "{node.input[0]}" {list(x.shape)} has {math.prod(x.shape)} elements, the shape '
        f"that it is to have {list(y.shape)} has {math.prod(y.shape)}",
        code="NF-MODEL-014",
    ).at(node=label(node), value=node.input[0])
