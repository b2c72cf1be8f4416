"""Old forms of common nodes in today's words: where onnx's converter is slow, or loses the meaning."""

from __future__ import annotations

from math import inf

import numpy as np
import onnx

from npuflow.ir.types import Array

_COERCED = {"Softmax", "LogSoftmax", "Hardmax"}
_REDUCED = {
    "ReduceL1",
    "ReduceL2",
    "ReduceLogSum",
    "ReduceLogSumExp",
    "ReduceMax",
    "ReduceMean",
    "ReduceMin",
    "ReduceProd",
    "ReduceSumSquare",
}


def rewritten(node: onnx.NodeProto, version: int, prefix: str) -> list[onnx.NodeProto] | None:
    """The node's new form, or None where the converter knows better."""
    name = node.op_type
    if name in _COERCED and version < 13:
        return _coerced(node, prefix)
    if (name in ("Squeeze", "Unsqueeze", "ReduceSum") and version < 13) or (
        name in _REDUCED and version < 18
    ):
        return _axes(node, prefix)
    if name == "Scan" and version < 9 and not node.input[0]:
        return [_scan(node)]
    if name == "Clip" and version < 11:
        return _clip(node, prefix)
    if name == "Dropout" and 7 <= version < 12 and len([o for o in node.output if o]) == 1:
        return [onnx.helper.make_node("Dropout", list(node.input), list(node.output), node.name)]
    return None


def _coerced(node: onnx.NodeProto, prefix: str) -> list[onnx.NodeProto]:
    """Before opset 13 these worked on the input flattened to two dimensions at `axis`."""
    axis = next((a.i for a in node.attribute if a.name == "axis"), 1)
    make = onnx.helper.make_node
    shape, flat, result = (f"{prefix}/{name}" for name in ("shape", "flat", "result"))
    return [
        make("Shape", [node.input[0]], [shape]),
        make("Flatten", [node.input[0]], [flat], axis=axis),
        make(node.op_type, [flat], [result], node.name, axis=-1),
        make("Reshape", [result, shape], [node.output[0]]),
    ]


def _axes(node: onnx.NodeProto, prefix: str) -> list[onnx.NodeProto]:
    """The attribute `axes` became an input."""
    new = onnx.NodeProto()
    new.CopyFrom(node)
    axes = next((list(a.ints) for a in node.attribute if a.name == "axes"), None)
    kept = [a for a in node.attribute if a.name != "axes"]
    del new.attribute[:]
    new.attribute.extend(kept)
    if axes is None:
        return [new]
    new.input.append(f"{prefix}/axes")
    return [_constant(f"{prefix}/axes", np.array(axes, np.int64)), new]


def _scan(node: onnx.NodeProto) -> onnx.NodeProto:
    """Before opset 9 it worked on every element of a batch: a Scan over the batch,
    of a Scan over the sequence."""
    given = {a.name: a for a in node.attribute}
    body, count = given["body"].g, given["num_scan_inputs"].i
    inner = onnx.helper.make_node(
        "Scan", [f"{i.name}:one" for i in body.input], [f"{o.name}:one" for o in body.output]
    )
    inner.attribute.extend(given[name] for name in ("body", "num_scan_inputs"))
    if "directions" in given:
        inner.attribute.append(
            onnx.helper.make_attribute("scan_input_directions", list(given["directions"].ints))
        )
    states = len(body.input) - count
    graph = onnx.GraphProto(name="batch", node=[inner])
    for values, known, ends in (
        (body.input, graph.input, inner.input),
        (body.output, graph.output, inner.output),
    ):
        for i, (value, name) in enumerate(zip(values, ends, strict=True)):
            info = known.add(name=name)
            info.type.CopyFrom(value.type)
            if i >= states:
                info.type.tensor_type.ClearField("shape")  # that of a sequence, not of one of its steps
    made = onnx.helper.make_node(
        "Scan", list(node.input[1:]), list(node.output), node.name, num_scan_inputs=len(body.input)
    )
    made.attribute.append(onnx.helper.make_attribute("body", graph))
    return made


def _clip(node: onnx.NodeProto, prefix: str) -> list[onnx.NodeProto] | None:
    """The bounds became inputs, of the input's type: float32 unless the converter must say otherwise."""
    given = {a.name: a.f for a in node.attribute}
    nodes, inputs = [], [node.input[0]]
    for name in ("min", "max"):
        bound = given.get(name, inf)
        if name not in given or abs(bound) >= float(np.finfo(np.float32).max):
            inputs.append("")
            continue
        value = f"{prefix}/{name}"
        plain = f"{value}32"
        nodes.append(_constant(plain, np.array(bound, np.float32)))
        nodes.append(onnx.helper.make_node("CastLike", [plain, node.input[0]], [value]))
        inputs.append(value)
    while not inputs[-1]:
        inputs.pop()
    return [*nodes, onnx.helper.make_node("Clip", inputs, list(node.output), node.name)]


def _constant(name: str, array: Array) -> onnx.NodeProto:
    return onnx.helper.make_node("Constant", [], [name], value=onnx.numpy_helper.from_array(array))
