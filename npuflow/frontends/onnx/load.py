"""Reading ONNX bytes: one self-contained, inlined model, or a ModelError that says
what is wrong with the file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import onnx
from google.protobuf.message import DecodeError, EncodeError  # type: ignore[import-untyped]
from onnx.inliner import inline_local_functions, inline_selected_functions

from npuflow.base.errors import ModelError
from npuflow.frontends import Source
from npuflow.frontends._nodes.build import owned
from npuflow.frontends._nodes.tensors import EXTERNAL, mapped
from npuflow.frontends._nodes.upgrade import newer_functions
from npuflow.ir.types import Array, TensorType
from npuflow.onnx.fed import MOST, fed_from
from npuflow.onnx.nodes import subgraphs
from npuflow.onnx.run import CannotRunError, newest_opset
from npuflow.onnx.types import NAMES, PLAIN, value_info

_KEPT = 1024 * 1024 * 1024 * 2 - 1


def parse(data: bytes) -> onnx.ModelProto:
    """The model in the bytes, its local functions inlined."""
    model = _decode(data)
    if not model.HasField("graph") or not (model.graph.node or model.graph.output):
        raise ModelError("not an ONNX model", because="it holds no graph", code="NF-MODEL-002")
    if not model.opset_import and model.graph.node:
        raise ModelError(
            "the ONNX model states no operator set", because="opset_import is empty", code="NF-MODEL-021",
        )
    _check_names(model.graph)
    newest = onnx.defs.onnx_opset_version()
    for entry in model.opset_import:
        if not 0 < entry.version < 1 << 31:
            raise ModelError(
                f'version {entry.version} of domain "{entry.domain}" is impossible', code="NF-MODEL-022",
            )
        if entry.domain in ("", "ai.onnx") and not 1 <= entry.version <= newest:
            raise ModelError(
                f"ONNX opset {entry.version} is unknown",
                because=f"the installed onnx {onnx.__version__} ends at opset {newest}", code="NF-MODEL-023",
            )
    if model.functions:
        try:
            model = _inlined(model)
        except Exception as fault:  # the inliner raises RuntimeError and its own kinds
            raise ModelError(
                "a function of the ONNX model cannot be inlined", because=str(fault), code="NF-MODEL-024",
            ) from fault
    return _expanded(model)


def _inlined(model: onnx.ModelProto) -> onnx.ModelProto:
    """Local functions written out, but for those that an installed package has an operator for."""
    kept = [(f.domain, f.name) for f in model.functions if f.domain and owned(f.domain, f.name)]
    if not kept:
        return inline_local_functions(model, convert_version=True)
    made = inline_selected_functions(model, kept, exclude=True)
    del made.functions[:]
    return made


def _check_names(graph: onnx.GraphProto) -> None:
    """Names that are not UTF-8 come out of protobuf as bytes, and nothing downstream takes them."""
    names: list[object] = [graph.name]
    for value in (*graph.input, *graph.output, *graph.initializer):
        names.append(value.name)
    for node in graph.node:
        names += (
            node.name,
            node.op_type,
            node.domain,
            *node.input,
            *node.output,
            *(a.name for a in node.attribute),
        )
        for inner in subgraphs(node):
            _check_names(inner)
    wrong = next((n for n in names if not isinstance(n, str)), None)
    if wrong is not None:
        raise ModelError(f"the name {wrong!r} is not UTF-8", hint="the file is damaged", code="NF-MODEL-025")


def _expanded(model: onnx.ModelProto) -> onnx.ModelProto:
    """With operators too new for onnxruntime spelled out, where onnx defines them by others."""
    version = next((o.version for o in model.opset_import if o.domain in ("", "ai.onnx")), 0)
    if version <= newest_opset():
        return model
    ids = [("", name) for name in newer_functions(model.graph.node, version)]
    if not ids:
        return model
    try:
        return inline_selected_functions(model, ids, exclude=False, inline_schema_functions=True)
    except Exception as fault:  # the inliner raises RuntimeError and its own kinds
        raise ModelError(
            f"{ids[0][1]} of opset {version} cannot be expanded into simpler operators",
            because=str(fault),
            code="NF-MODEL-026",
        ) from fault


def external_files(path: Path) -> list[Path]:
    """Files beside the model that hold its tensors."""
    model = _decoded(path)[1]
    names = {
        e.value
        for t in _tensors(model)
        if t.data_location == EXTERNAL
        for e in t.external_data
        if e.key == "location"
    }
    return [path.parent / name for name in sorted(names)]


def _decoded(path: Path) -> tuple[bytes, onnx.ModelProto]:
    """The bytes of a file, and the model in them; errors name the file."""
    try:
        data = path.read_bytes()
    except OSError as fault:
        raise ModelError(
            f"{path.name} cannot be read", because=str(fault), code="NF-MODEL-001",
        ).at(file=str(path)) from fault
    try:
        return data, _decode(data)
    except ModelError as fault:
        raise ModelError(
            f'"{path.name}" is {fault.message}' if fault.message.startswith("not") else fault.message,
            because=fault.because,
            hint=fault.hint or "is the file whole? (a download cut short, or a pointer that git-lfs left)",
            code=fault.code,
        ).at(file=str(path)) from fault


def gather(path: Path) -> Source:
    """The model's bytes, and the tensors of its graph that lie in other files; those
    of subgraphs are read in."""
    data, model = _decoded(path)
    outside = [t for t in _tensors(model) if t.data_location == EXTERNAL]
    if not outside:
        return Source(data)
    own = {id(t) for t in model.graph.initializer}
    tensors: dict[str, Any] = {}
    for tensor in outside:
        try:
            held = mapped(tensor, path.parent)
        except ModelError as fault:
            raise fault.at(file=str(path)) from fault
        del tensor.external_data[:]
        if id(tensor) in own:
            tensors[tensor.name] = held
            tensor.external_data.add(key="location", value="tensors")
        else:
            tensor.raw_data = held.tobytes()
            tensor.data_location = onnx.TensorProto.DEFAULT
    try:
        return Source(bytes(model.SerializeToString(deterministic=True)), tensors)
    except (EncodeError, ValueError) as fault:
        raise ModelError(
            "the model exceeds 2 GiB without its external data", because=str(fault), code="NF-MODEL-027",
        ).at(file=str(path)) from fault


def whole(
    model: onnx.ModelProto, tensors: Mapping[str, Any], most: int = MOST
) -> tuple[onnx.ModelProto, dict[str, Array]]:
    """The model with its external tensors in it. Where they are more than `most` bytes, the large ones become
    inputs, and the second result is what to feed; CannotRunError where protobuf does not hold the others
    (those of types that numpy lacks)."""
    least = fed_from(sum(held.nbytes for held in tensors.values()), most)
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    outside = {t.name: t for t in copy.graph.initializer if t.data_location == EXTERNAL}
    fed = {
        name: tensors[name] for name, tensor in outside.items()
        if least and NAMES.get(tensor.data_type, "") in PLAIN and tensors[name].nbytes >= least
    }
    rest = sum(tensors[name].nbytes for name in outside if name not in fed)
    if rest > MOST:
        raise CannotRunError(f"tensors of {rest / (1 << 30):.2f} GiB cannot be fed, one file holds 2 GiB")
    ports = {port.name for port in copy.graph.input}
    for name, tensor in outside.items():
        if name in fed:
            kind = TensorType(tuple(tensor.dims), NAMES[tensor.data_type])
            copy.graph.input.extend([] if name in ports else [value_info(name, kind)])
            copy.graph.initializer.remove(tensor)
            continue
        tensor.raw_data = tensors[name].tobytes()
        tensor.data_location = onnx.TensorProto.DEFAULT
        del tensor.external_data[:]
    return copy, fed


def _decode(data: bytes) -> onnx.ModelProto:
    if len(data) > _KEPT:
        raise ModelError(
            "the ONNX file exceeds 2 GiB", hint="keep its weights as external data", code="NF-MODEL-030",
        )
    try:
        return onnx.load_model_from_string(data)
    except (DecodeError, ValueError, RuntimeError) as fault:
        raise ModelError(
            "not an ONNX model", because=f"{fault} ({len(data)} bytes)", code="NF-MODEL-002",
        ) from fault


def _tensors(model: onnx.ModelProto) -> Iterator[onnx.TensorProto]:
    def of(nodes: Any) -> Iterator[onnx.TensorProto]:
        for node in nodes:
            for attribute in node.attribute:
                if attribute.HasField("t"):
                    yield attribute.t
                yield from attribute.tensors
            for graph in subgraphs(node):
                yield from graph.initializer
                yield from of(graph.node)

    yield from model.graph.initializer
    yield from of(model.graph.node)
    for function in model.functions:
        yield from of(function.node)
