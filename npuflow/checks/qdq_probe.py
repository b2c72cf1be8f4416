"""An exported QDQ model taken apart: its codes as outputs, and each of its layers
fed with codes from outside."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from npuflow.ir.types import TensorType
from npuflow.onnx.fed import SessionModel
from npuflow.onnx.types import value_info

if TYPE_CHECKING:
    import onnx


def rounded(model: SessionModel) -> dict[str, str]:
    """Every tensor of codes that the model computes, in its order -> the float
    tensor that is rounded to them."""
    return {n.output[0]: n.input[0] for n in _read(model).graph.node if n.op_type == "QuantizeLinear"}


def showing(model: SessionModel, tensors: Iterable[str]) -> SessionModel:
    """The model with these tensors as its outputs; onnxruntime infers what they are."""
    proto = _read(model)
    _show(proto.graph, tensors)
    return _changed(model, proto)


def forced(
    model: SessionModel, kinds: Mapping[str, TensorType]
) -> tuple[SessionModel, dict[str, str], dict[str, str]]:
    """The model with these tensors of codes as inputs: whatever reads one is fed from outside, so that no
    layer sees what another has computed. Also, by tensor, the name of the model's own codes and that of the
    floats rounded to them, which are the outputs.
    """
    proto = _read(model)
    names = {name for node in proto.graph.node for name in (*node.input, *node.output)}
    own: dict[str, str] = {}
    floats: dict[str, str] = {}
    for node in proto.graph.node:
        if node.op_type == "QuantizeLinear" and node.output[0] in kinds:
            name = node.output[0]
            floats[name], own[name] = node.input[0], _unused(f"{name}:own", names)
            node.output[0] = own[name]
    read = {name for node in proto.graph.node for name in node.input}
    proto.graph.input.extend(value_info(name, kinds[name]) for name in own if name in read)
    _show(proto.graph, dict.fromkeys([*own.values(), *floats.values()]))
    return _changed(model, proto), own, floats


def _read(model: SessionModel) -> onnx.ModelProto:
    import onnx

    return onnx.load_model_from_string(model if isinstance(model, bytes) else model.proto)


def _changed(model: SessionModel, proto: onnx.ModelProto) -> SessionModel:
    """The model with other nodes and ends, and with its constants."""
    data = bytes(proto.SerializeToString())
    return data if isinstance(model, bytes) else replace(model, proto=data)


def _show(graph: onnx.GraphProto, tensors: Iterable[str]) -> None:
    import onnx

    known = {value.name: value for value in (*graph.output, *graph.input)}
    kept = [known.get(name) or onnx.ValueInfoProto(name=name) for name in tensors]
    copies = [onnx.ValueInfoProto.FromString(value.SerializeToString()) for value in kept]
    del graph.output[:]
    graph.output.extend(copies)


def _unused(name: str, names: set[str]) -> str:
    while name in names:
        name += "'"
    names.add(name)
    return name
