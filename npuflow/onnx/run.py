"""Running small ONNX models: the versions onnxruntime takes, one deterministic
session, one node on its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from npuflow.base.wording import first_line
from npuflow.ir.types import Array, TensorType
from npuflow.onnx.fed import SessionModel
from npuflow.onnx.session import opened
from npuflow.onnx.types import value_info

if TYPE_CHECKING:
    import onnx

EXPORT_OPSET = 21     # the lowest that exported models use
IR_VERSION = 10


class CannotRunError(Exception):
    """onnxruntime (or the reference evaluator) does not take this model; the text says why."""


@cache
def newest_opset() -> int:
    """The newest opset of the default domain that both onnx and onnxruntime know."""
    import onnx

    for version in range(onnx.defs.onnx_opset_version(), EXPORT_OPSET, -1):
        info = value_info("x", TensorType((1,)))
        graph = onnx.GraphProto(
            name="probe", node=[onnx.helper.make_node("Identity", ["x"], ["y"])], input=[info]
        )
        graph.output.add().name = "y"
        try:
            session(model_of(graph, {"": version}).SerializeToString())
        except CannotRunError:
            continue
        return version
    return EXPORT_OPSET


def model_of(graph: onnx.GraphProto, opsets: Mapping[str, int]) -> onnx.ModelProto:
    """A model of a copy of the graph."""
    import onnx

    return finished(onnx.ModelProto(graph=graph), opsets)


def finished(model: onnx.ModelProto, opsets: Mapping[str, int]) -> onnx.ModelProto:
    """The model, with all but its graph."""
    model.ir_version, model.producer_name = IR_VERSION, "npuflow"
    if opsets.get("", 0) > 25:
        model.ir_version = 13
    elif opsets.get("", 0) > EXPORT_OPSET:
        model.ir_version = 11
    for domain, version in sorted(opsets.items()):
        model.opset_import.add(domain=domain, version=version)
    return model


def session(model: SessionModel, *, optimised: bool = True) -> Any:
    """An onnxruntime session with one thread and fixed arithmetic; not `optimised`: the
    nodes run as they are written."""
    try:
        return opened(model, optimised=optimised, deterministic=True)
    except Exception as fault:  # onnxruntime raises its own classes, RuntimeError and ValueError alike
        raise CannotRunError(first_line(fault)) from fault


def run(model: SessionModel, feeds: Mapping[str, Any], outputs: Sequence[str] | None = None) -> list[Any]:
    ready = session(model)
    try:
        found: list[Any] = ready.run(outputs, dict(feeds))
    except Exception as fault:
        raise CannotRunError(first_line(fault)) from fault
    return found


def run_node(
    node: onnx.NodeProto, version: int, types: Sequence[TensorType], arrays: Sequence[Array]
) -> list[Array]:
    """One node (inputs all given, in order of its present inputs) by onnxruntime, else
    by the reference evaluator."""
    import onnx

    names = [i for i in node.input if i]
    feeds = dict(zip(names, arrays, strict=True))
    graph = onnx.GraphProto(name="one", node=[node])
    graph.input.extend(value_info(n, t) for n, t in dict(zip(names, types, strict=True)).items())
    for name in node.output:
        if name:
            graph.output.add().name = name
    opsets = {"": EXPORT_OPSET}
    opsets[node.domain] = max(version, EXPORT_OPSET if node.domain == "" else 1)
    try:
        return run(model_of(graph, opsets).SerializeToString(), feeds)
    except CannotRunError as fault:
        return _by_reference(node, opsets[""], feeds, fault)


def _by_reference(
    node: onnx.NodeProto, version: int, feeds: Mapping[str, Array], fault: CannotRunError
) -> list[Array]:
    import onnx
    from onnx.reference import ReferenceEvaluator

    graph = onnx.GraphProto(name="one", node=[node])
    graph.input.extend(onnx.ValueInfoProto(name=n) for n in feeds)
    graph.output.extend(onnx.ValueInfoProto(name=n) for n in node.output if n)
    try:
        with np.errstate(all="ignore"):
            return list(ReferenceEvaluator(model_of(graph, {"": version})).run(None, dict(feeds)))
    except Exception as second:
        raise CannotRunError(f"{fault}; reference evaluator: {first_line(second)}") from second
