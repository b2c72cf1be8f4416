"""What codes of 8 bits alone cost a network of the table, whatever computes its operators: every tensor of
the network as its user wrote it is rounded, and every filter, and the rest is float32 in onnxruntime."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from tests.ops.program_rows import Array

CODES = 255  # steps between the ends of a range
Ends = Mapping[str, tuple[float, float]]


def shown(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with every tensor as an output."""
    whole = onnx.ModelProto()
    whole.CopyFrom(model)
    known = {o.name for o in whole.graph.output}
    made = [o for node in whole.graph.node for o in node.output if o and o not in known]
    whole.graph.output.extend(helper.make_empty_tensor_value_info(name) for name in made)
    return whole


def tensors(session: Any, feed: Mapping[str, Array]) -> dict[str, Array]:
    """The float tensors of a network that shows them all, its inputs included."""
    names = [o.name for o in session.get_outputs()]
    found = {**feed, **dict(zip(names, session.run(names, dict(feed)), strict=True))}
    return {k: a for k, a in found.items() if a.dtype == np.float32 and a.size}


def ends_over(session: Any, feeds: Sequence[Mapping[str, Array]]) -> dict[str, tuple[float, float]]:
    """By tensor, the least and the largest number of all samples."""
    found: dict[str, tuple[float, float]] = {}
    for feed in feeds:
        for name, array in tensors(session, feed).items():
            low, high = found.get(name, (np.inf, -np.inf))
            found[name] = min(low, float(array.min())), max(high, float(array.max()))
    return found


def in_eight_bits(model: onnx.ModelProto, ends: Ends) -> onnx.ModelProto:
    """The model with its tensors rounded to uniform codes between `ends`, and its filters to codes of each
    channel."""
    made = onnx.ModelProto()
    made.CopyFrom(model)
    filters = {node.input[1] for node in made.graph.node if node.op_type == "Conv"}
    for tensor in made.graph.initializer:
        if tensor.name in filters:
            tensor.CopyFrom(numpy_helper.from_array(_by_channel(numpy_helper.to_array(tensor)), tensor.name))
    nodes, read = [], {}
    for value in model.graph.input:
        if value.name in ends:
            read[value.name] = f"{value.name}:rounded"
            nodes += _rounding(made, value.name, read[value.name], ends[value.name])
    for node in model.graph.node:
        copy = onnx.NodeProto()
        copy.CopyFrom(node)
        copy.input[:] = [read.get(i, i) for i in node.input]
        copy.output[:] = [f"{o}:exact" if o in ends else o for o in node.output]
        nodes.append(copy)
        for name in node.output:
            if name in ends:
                nodes += _rounding(made, f"{name}:exact", name, ends[name])
    del made.graph.node[:]
    made.graph.node.extend(nodes)
    return made


def _by_channel(weight: Array) -> Array:
    step = np.abs(weight).max(axis=tuple(range(1, weight.ndim)), keepdims=True) / (CODES // 2)
    return np.asarray(np.rint(weight / step) * step, np.float32)


def _rounding(
    model: onnx.ModelProto, source: str, result: str, ends: tuple[float, float]
) -> list[onnx.NodeProto]:
    low, high = min(ends[0], 0.0), max(ends[1], 0.0)
    step = np.float32(max(high - low, 1e-12) / CODES)
    zero = np.uint8(np.clip(np.rint(-low / step), 0, CODES))
    names = [f"{result}:step", f"{result}:zero"]
    for name, number in zip(names, (step, zero), strict=True):
        model.graph.initializer.append(numpy_helper.from_array(np.asarray(number), name))
    return [
        helper.make_node("QuantizeLinear", [source, *names], [f"{result}:codes"]),
        helper.make_node("DequantizeLinear", [f"{result}:codes", *names], [result]),
    ]
