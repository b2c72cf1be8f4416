"""ONNX models whose large tensors lie in a file beside them: written, and read as models that are
fed them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from npuflow.base.errors import ModelError
from npuflow.ir.types import Array
from npuflow.onnx.fed import FedModel, SessionModel
from npuflow.onnx.types import ELEMENTS, NAMES, PLAIN

if TYPE_CHECKING:
    import onnx

ALIGN = 4096                   # what a tensor's place in the file is a multiple of, so that it can be mapped


def with_external(model: FedModel, location: str) -> bytes:
    """The model's bytes, its constants as tensors in the file `location` beside it, which has the bytes of
    `external_bytes`."""
    import onnx

    proto = onnx.load_model_from_string(model.proto)
    kept = [port for port in proto.graph.input if port.name not in model.constants]
    del proto.graph.input[:]
    proto.graph.input.extend(kept)
    at = 0
    for name in sorted(model.constants):
        array = model.constants[name]
        tensor = proto.graph.initializer.add(
            name=name, data_type=ELEMENTS[array.dtype.name], dims=array.shape,
            data_location=onnx.TensorProto.EXTERNAL,
        )
        for key, value in (("location", location), ("offset", at), ("length", array.nbytes)):
            tensor.external_data.add(key=key, value=str(value))
        at += array.nbytes + -array.nbytes % ALIGN
    return bytes(proto.SerializeToString(deterministic=True))


def external_bytes(model: FedModel) -> Iterator[bytes | memoryview]:
    """What the file beside the model holds, in parts."""
    for name in sorted(model.constants):
        array = model.constants[name]
        own = np.ascontiguousarray(array, array.dtype.newbyteorder("<")).reshape(-1)
        yield own.view(np.uint8).data
        yield bytes(-array.nbytes % ALIGN)


def read_model(path: Path, folder: Path | None = None) -> SessionModel:
    """A model file for a session; tensors beside it, or in `folder`, are mapped and fed, and a ModelError
    where that cannot be. Bytes that are no model are given out: the session says what is wrong."""
    import onnx
    from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

    data = path.read_bytes()
    try:
        proto = onnx.load_model_from_string(data)
    except (DecodeError, ValueError, RuntimeError):
        return data
    outside = [t for t in proto.graph.initializer if t.data_location == onnx.TensorProto.EXTERNAL]
    if not outside:
        return data
    constants = {t.name: _mapped(t, folder or path.parent) for t in outside}
    for tensor in outside:
        proto.graph.initializer.remove(tensor)
    ports = {port.name for port in proto.graph.input}
    for name, array in constants.items():
        if name not in ports:
            kind = onnx.helper.make_tensor_value_info(name, ELEMENTS[array.dtype.name], array.shape)
            proto.graph.input.append(kind)
    return FedModel(bytes(proto.SerializeToString(deterministic=True)), constants)


def _mapped(tensor: onnx.TensorProto, folder: Path) -> Array:
    said = {entry.key: entry.value for entry in tensor.external_data}
    file, kind = (folder / said.get("location", "")).resolve(), NAMES.get(tensor.data_type, "")
    message = f'external data of tensor "{tensor.name}" cannot be read'
    if not file.is_relative_to(folder.resolve()) or kind not in PLAIN:
        because = f'"{said.get("location", "")}" is not beside the model' if kind in PLAIN else f"type {kind}"
        raise ModelError(message, because=because, code="NF-MODEL-015").at(value=tensor.name)
    dtype = np.dtype(kind).newbyteorder("<")
    try:
        return np.asarray(np.memmap(file, dtype, "r", int(said.get("offset", 0)), tuple(tensor.dims)))
    except (OSError, ValueError) as fault:
        raise ModelError(message, because=str(fault), code="NF-MODEL-015").at(value=tensor.name) from fault
