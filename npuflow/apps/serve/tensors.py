"""Tensors of the KServe v2 protocol: JSON lists or raw bytes, and numpy arrays."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

import numpy as np

from npuflow.runner.ports import Array

DATATYPES = {
    "BOOL": "bool",
    "UINT8": "uint8",
    "UINT16": "uint16",
    "UINT32": "uint32",
    "UINT64": "uint64",
    "INT8": "int8",
    "INT16": "int16",
    "INT32": "int32",
    "INT64": "int64",
    "FP16": "float16",
    "FP32": "float32",
    "FP64": "float64",
    "BYTES": "str",
}
NAMES = {dtype: name for name, dtype in DATATYPES.items()}
MAX_RANK = 16
GONE = 499  # the status that a request counts with whose client went away


class ProtocolError(Exception):
    """A request that is not what the protocol says; the message is the answer's."""

    def __init__(self, message: str, status: int = 400) -> None:
        super().__init__(message)
        self.status = status


def shape_of(value: Any, what: str) -> tuple[int, ...]:
    """A shape out of JSON."""
    if not isinstance(value, list) or len(value) > MAX_RANK:
        raise ProtocolError(f"{what}: shape is not a list of at most {MAX_RANK} numbers")
    if any(type(d) is not int or d < 0 or d >= 1 << 40 for d in value):
        raise ProtocolError(f"{what}: shape {value} is not of sizes")
    return tuple(value)


def of_bytes(data: memoryview, datatype: str, shape: tuple[int, ...], what: str) -> Array:
    """A tensor from its raw bytes, little endian, in C order; nothing is copied."""
    if datatype == "BYTES":
        return _strings(data, shape, what)
    dtype = np.dtype(DATATYPES[datatype])
    if prod(shape) * dtype.itemsize != len(data):
        raise ProtocolError(f"{what}: {len(data)} bytes for {datatype} {list(shape)}")
    return np.frombuffer(data, dtype.newbyteorder("<")).reshape(shape).astype(dtype, copy=False)


def of_json(data: Any, datatype: str, shape: tuple[int, ...], what: str) -> Array:
    """A tensor from JSON: numbers in C order, flat or nested."""
    flat = _flat(data, what)
    if len(flat) != prod(shape):
        raise ProtocolError(f"{what}: {len(flat)} elements for the shape {list(shape)}")
    if datatype == "BYTES":
        if not all(isinstance(item, str) for item in flat):
            raise ProtocolError(f"{what}: BYTES are strings in JSON")
        return np.array(flat, object).reshape(shape)
    kind = np.dtype(DATATYPES[datatype]).kind
    if datatype == "FP16":
        raise ProtocolError(f"{what}: FP16 is sent as binary data")
    if kind == "b" and not all(type(item) is bool for item in flat):
        raise ProtocolError(f"{what}: {datatype} takes true and false")
    if kind in "iu" and not all(type(item) is int for item in flat):
        raise ProtocolError(f"{what}: {datatype} takes whole numbers")
    if kind == "f" and not all(type(item) in (int, float) for item in flat):
        raise ProtocolError(f"{what}: {datatype} takes numbers")
    try:
        with np.errstate(over="raise"):
            return np.array(flat, DATATYPES[datatype]).reshape(shape)
    except (FloatingPointError, OverflowError, ValueError):
        raise ProtocolError(f"{what}: a number is outside of {datatype}") from None


def to_bytes(array: Array) -> bytes:
    """Raw bytes of a tensor."""
    if array.dtype.kind in "OSU":
        items = [
            item if isinstance(item, bytes) else str(item).encode() for item in array.reshape(-1).tolist()
        ]
        return b"".join(struct.pack("<I", len(item)) + item for item in items)
    return np.ascontiguousarray(array, array.dtype.newbyteorder("<")).tobytes()


def datatype_of(array: Array) -> str:
    return "BYTES" if array.dtype.kind in "OSU" else NAMES[array.dtype.name]


def _flat(data: Any, what: str) -> list[Any]:
    """The elements of nested lists, whose lengths agree at every level."""
    if not isinstance(data, list):
        raise ProtocolError(f"{what}: data is not a list")
    level: list[Any] = data
    depth = 0
    while level and isinstance(level[0], list):
        depth += 1
        if depth > MAX_RANK or len({len(i) if isinstance(i, list) else -1 for i in level}) > 1:
            raise ProtocolError(f"{what}: data is nested unevenly")
        level = [item for part in level for item in part]
    if any(item is None for item in level):
        raise ProtocolError(f"{what}: data holds null")
    if any(isinstance(item, list | dict) for item in level):
        raise ProtocolError(f"{what}: data is nested unevenly")
    return level


def _strings(data: memoryview, shape: tuple[int, ...], what: str) -> Array:
    found: list[str] = []
    at = 0
    while at < len(data):
        if at + 4 > len(data):
            raise ProtocolError(f"{what}: a string's length is cut off")
        (size,) = struct.unpack_from("<I", data, at)
        at += 4 + size
        if at > len(data):
            raise ProtocolError(f"{what}: a string is cut off")
        try:
            found.append(bytes(data[at - size : at]).decode())
        except UnicodeDecodeError:
            raise ProtocolError(f"{what}: a string is not UTF-8") from None
    if len(found) != prod(shape):
        raise ProtocolError(f"{what}: {len(found)} strings for the shape {list(shape)}")
    return np.array(found, object).reshape(shape)


def parameters(table: Mapping[str, Any], what: str) -> Mapping[str, Any]:
    """The parameters of a request or tensor."""
    found = table.get("parameters", {})
    if not isinstance(found, dict):
        raise ProtocolError(f"{what}: parameters are not an object")
    return found


def named(tables: Any, what: str) -> Sequence[Mapping[str, Any]]:
    """A list of objects with names that differ."""
    if not isinstance(tables, list) or any(
        not isinstance(t, dict) or not isinstance(t.get("name"), str) for t in tables
    ):
        raise ProtocolError(f"{what} is not a list of named tensors")
    names = [t["name"] for t in tables]
    if len({*names}) < len(names):
        raise ProtocolError(f"{what} has a tensor twice")
    return tables
