"""Values of stored ONNX tensors; those kept in files beside the model are mapped into memory, not read."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import onnx

from npuflow.base.errors import ModelError
from npuflow.ir.types import Array
from npuflow.onnx.types import NAMES, PLAIN

EXTERNAL = onnx.TensorProto.EXTERNAL


def mapped(tensor: onnx.TensorProto, folder: Path) -> Array:
    """The values where numpy has the element type, else their bytes."""
    said = {entry.key: entry.value for entry in tensor.external_data}
    try:
        file, offset, size = _place(said, folder)
        dtype = NAMES.get(tensor.data_type, "")
        kind = np.dtype(dtype if dtype in PLAIN else "uint8").newbyteorder("<")
        shape = tuple(tensor.dims) if dtype in PLAIN else (size,)
        if dtype in PLAIN and prod(shape) * kind.itemsize != size:
            raise ValueError(
                f"{file.name} holds {size} bytes of it, {list(shape)} {dtype} takes "
                f"{prod(shape) * kind.itemsize}"
            )
        return np.memmap(file, kind, "r", offset, shape) if size else np.zeros(shape, kind)
    except (OSError, ValueError, TypeError) as fault:
        message = f'external data of tensor "{tensor.name}" cannot be read'
        raise ModelError(message, because=str(fault), code="NF-MODEL-015").at(value=tensor.name) from fault


def _place(said: dict[str, str], folder: Path) -> tuple[Path, int, int]:
    """File, offset and number of bytes; a file outside of the model's folder is refused."""
    file = (folder / said.get("location", "")).resolve()
    if not file.is_relative_to(folder.resolve()) or not file.is_file():
        raise ValueError(f'there is no file "{said.get("location", "")}" beside the model')
    whole, offset = file.stat().st_size, int(said.get("offset", 0))
    size = int(said.get("length", whole - offset))
    if offset < 0 or size < 0 or offset + size > whole:
        raise ValueError(f"{file.name} ends at byte {whole}, the tensor lies at {offset} to {offset + size}")
    return file, offset, size


def values(tensor: onnx.TensorProto, held: Array) -> Any:
    """What `mapped` gave, as the tensor's values."""
    if NAMES.get(tensor.data_type, "") in PLAIN:
        return held
    whole = onnx.TensorProto(
        data_type=tensor.data_type, dims=tensor.dims, name=tensor.name, raw_data=held.tobytes()
    )
    return onnx.numpy_helper.to_array(whole)


def array(tensor: onnx.TensorProto, tensors: Mapping[str, Any] = MappingProxyType({})) -> Any:
    """A tensor's values; a ModelError when its bytes do not fit its shape.
    `tensors`: those kept apart, by name."""
    if tensor.data_location == EXTERNAL and tensor.name not in tensors:
        raise ModelError(
            f'tensor "{tensor.name}" lies in an external file that was not read', code="NF-MODEL-028",
        )
    try:
        if tensor.data_location == EXTERNAL:
            return values(tensor, tensors[tensor.name])
        return onnx.numpy_helper.to_array(tensor)
    except Exception as fault:  # ValueError, TypeError, KeyError, by kind of damage
        raise ModelError(
            f'tensor "{tensor.name}" is damaged', because=str(fault), code="NF-MODEL-029",
        ).at(value=tensor.name) from fault
