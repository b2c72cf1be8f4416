"""Types of one ONNX node's outputs from the types of its inputs: declarations in the
file are never believed."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx

from npuflow.base.errors import ModelError, NpuflowError
from npuflow.frontends._nodes.upgrade import schema
from npuflow.ir.types import UNKNOWN, UNRANKED, UNTYPED, Array, TensorType
from npuflow.onnx.nodes import captured, subgraphs
from npuflow.onnx.run import EXPORT_OPSET, CannotRunError, model_of, run, session
from npuflow.onnx.types import PLAIN, from_proto, is_tensor, to_proto, value_info

_DATA = 4096      # constants up to this many elements take part in inference
# operators whose shape is in the data of an input, and onnx's inference does not look at it
_BY_DATA = {"Compress": 1, "MaxUnpool": 2}

Known = Mapping[str, TensorType]
Consts = Mapping[str, Array]

# what ONNX's own inference raises for a node that is not valid
INVALID = onnx.shape_inference.InferenceError, onnx.checker.ValidationError, RuntimeError, ValueError


def output_types(node: onnx.NodeProto, version: int, known: Known, consts: Consts) -> tuple[TensorType, ...]:
    """One type per output of the node (absent ones too)."""
    domain = "" if node.domain == "ai.onnx" else node.domain
    found = schema(node.op_type, version, domain)
    if found is None:
        return _by_runtime(node, version, known, consts)
    if any(True for _ in subgraphs(node)):
        return _by_model(node, version, known, consts)
    types = {i: p for i in node.input if i and (p := to_proto(known[i])) is not None}
    if len(types) < len({i for i in node.input if i}):
        return tuple(TensorType(UNRANKED, UNTYPED) for _ in node.output)
    opsets = [onnx.helper.make_opsetid(domain, version)]
    try:
        result = onnx.shape_inference.infer_node_outputs(
            found, node, types, _data(node, consts), opset_imports=opsets, ir_version=10
        )
    except INVALID as fault:
        raise _invalid(node, fault) from fault
    reported = tuple(from_proto(result.get(o)) for o in node.output)
    ranked = all(known[i].shape != UNRANKED and known[i].is_static for i in node.input if i)
    function = found.has_function or found.has_context_dependent_function
    if ranked and not domain and _shaped_by_constant(node, consts):
        return _completed(node, version, known, consts, reported)
    if (
        ranked
        and function
        and any(
            o and t.shape == UNRANKED and is_tensor(t) for o, t in zip(node.output, reported, strict=True)
        )
    ):
        return _completed(node, version, known, consts, reported)
    return reported


def _shaped_by_constant(node: onnx.NodeProto, consts: Consts) -> bool:
    given = node.input[_BY_DATA.get(node.op_type, len(node.input)) :][:1]
    return bool(given) and given[0] in consts and consts[given[0]].size <= _DATA


def _completed(
    node: onnx.NodeProto, version: int, known: Known, consts: Consts, reported: tuple[TensorType, ...]
) -> tuple[TensorType, ...]:
    """Of a node that onnx's inference cannot follow (the body of GroupNormalization, the condition of
    Compress): the shapes that one run on ones has."""
    alone = _alone(node, known, consts)
    feeds = {
        i.name: np.ones(known[i.name].shape, known[i.name].dtype)
        for i in alone.input
        if known[i.name].dtype in PLAIN
    }
    try:
        made = run(model_of(alone, {"": version, node.domain: version}).SerializeToString(), feeds)
    except CannotRunError:
        return reported
    shapes = {o.name: np.shape(array) for o, array in zip(alone.output, made, strict=True)}
    by_data = node.op_type in _BY_DATA
    return tuple(
        TensorType(tuple(shapes[o]), t.dtype) if o and (by_data or t.shape == UNRANKED) else t
        for o, t in zip(node.output, reported, strict=True)
    )


def label(node: onnx.NodeProto) -> str:
    return f"{node.name or next((o for o in node.output if o), '?')} ({node.op_type})"


def short(fault: Exception) -> str:
    lines = [line for line in str(fault).strip().splitlines() if line.strip()]
    return lines[0][:300] if lines else type(fault).__name__


def _data(node: onnx.NodeProto, consts: Consts) -> dict[str, onnx.TensorProto]:
    return {
        i: onnx.numpy_helper.from_array(consts[i], i)
        for i in node.input
        if i in consts and consts[i].size <= _DATA
    }


def _alone(node: onnx.NodeProto, known: Known, consts: Consts) -> onnx.GraphProto:
    graph = onnx.GraphProto(name="one", node=[node])
    data = _data(node, consts)
    for name in dict.fromkeys((*node.input, *captured(node))):
        if name in data:
            graph.initializer.append(data[name])
        elif name:
            graph.input.append(value_info(name, known[name]))
    for name in node.output:
        if name:
            graph.output.add().name = name
    return graph


def _invalid(node: onnx.NodeProto, fault: Exception) -> NpuflowError:
    what = f"node {label(node)} is not valid ONNX"
    return ModelError(what, because=short(fault), code="NF-MODEL-014").at(node=label(node))


def _by_model(node: onnx.NodeProto, version: int, known: Known, consts: Consts) -> tuple[TensorType, ...]:
    """Inference over a model of this one node: it enters subgraphs."""
    model = model_of(
        _alone(node, known, consts), {node.domain: version, "": version if not node.domain else EXPORT_OPSET}
    )
    try:
        inferred = onnx.shape_inference.infer_shapes(
            model, check_type=False, strict_mode=False, data_prop=True
        )
    except INVALID as fault:
        raise _invalid(node, fault) from fault
    types = {o.name: o.type for o in inferred.graph.output}
    found = tuple(from_proto(types.get(o)) for o in node.output)
    return _looped(node, version, known, found) if node.op_type == "Loop" and not node.domain else found


def _looped(
    node: onnx.NodeProto, version: int, known: Known, reported: tuple[TensorType, ...]
) -> tuple[TensorType, ...]:
    """Of a Loop, whose state may change its shape: where a body that gets the first shapes
    gives them back, they stay."""
    body = onnx.GraphProto()
    body.CopyFrom(next(a.g for a in node.attribute if a.name == "body"))
    states = list(node.input[2:])
    if (
        len(body.input) != len(states) + 2
        or len(body.output) != len(reported) + 1
        or not all(i in known for i in states)
    ):
        return reported
    first = [TensorType((), "int64"), TensorType((), "bool"), *(known[i] for i in states)]
    fed = [value_info(own.name, kind) for own, kind in zip(body.input, first, strict=True)]
    fed += [value_info(name, known[name]) for name in captured(node)]
    for values in (body.input, body.value_info):
        del values[:]
    body.input.extend(fed)
    for output in body.output:
        output.ClearField("type")
    try:
        made = onnx.shape_inference.infer_shapes(model_of(body, {"": version}), data_prop=True)
    except (onnx.shape_inference.InferenceError, onnx.checker.ValidationError, RuntimeError, ValueError):
        return reported
    after = [from_proto(o.type) for o in made.graph.output][1:]
    if any(one != known[i] for one, i in zip(after, states, strict=False)):
        return reported
    kept = [known[i] for i in states]
    stacked = [TensorType((UNKNOWN, *one.shape), one.dtype) if one.shape != UNRANKED else mine
               for one, mine in zip(after[len(states):], reported[len(states):], strict=True)]
    return tuple(
        kind if is_tensor(kind) else mine for kind, mine in zip((*kept, *stacked), reported, strict=True)
    )


def _by_runtime(node: onnx.NodeProto, version: int, known: Known, consts: Consts) -> tuple[TensorType, ...]:
    """An operator only onnxruntime knows: ask a session; nothing is known if it does not know it either."""
    unknown = tuple(TensorType(UNRANKED, UNTYPED) for _ in node.output)
    try:
        ready = session(
            model_of(
                _alone(node, known, consts), {"": EXPORT_OPSET, node.domain: version}
            ).SerializeToString()
        )
    except CannotRunError as fault:
        raise ModelError(
            f"node {label(node)} cannot be run",
            because=f"neither onnx nor onnxruntime takes {node.domain}::{node.op_type}: {fault}",
            code="NF-MODEL-031",
        ).at(node=label(node)) from fault
    types = {o.name: _runtime_type(o.type, o.shape) for o in ready.get_outputs()}
    return tuple(types.get(o, unknown[0]) for o in node.output)


def _runtime_type(text: str, shape: list[object] | None) -> TensorType:
    names = {"float": "float32", "double": "float64"}
    if not text.startswith("tensor("):
        return TensorType(UNRANKED, UNTYPED)
    dtype = names.get(text[7:-1], text[7:-1])
    return TensorType(
        tuple(d if isinstance(d, int) else -1 for d in shape) if shape is not None else UNRANKED, dtype
    )
