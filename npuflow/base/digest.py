"""Digests: xxh3-128 over tagged, length-prefixed, canonical encodings; what cannot be encoded is an error."""

from __future__ import annotations

import math
import os
import struct
from typing import Any

import xxhash

ALGORITHM = "x3"
"""Every digest starts with the name of its algorithm."""

_BLOCK = 1 << 20
_CANONICAL_NAN = struct.pack(">d", math.nan)


class Hasher:
    """A streaming digest of raw bytes; the tag keeps equal bytes of different meaning apart."""

    __slots__ = ("_state", "size")

    def __init__(self, tag: str) -> None:
        self._state = xxhash.xxh3_128()
        self.size = 0
        head = tag.encode()
        self._state.update(struct.pack(">Q", len(head)) + head)

    def update(self, data: bytes | bytearray | memoryview) -> None:
        self._state.update(data)
        self.size += data.nbytes if isinstance(data, memoryview) else len(data)

    def hexdigest(self) -> str:
        # The length closes the stream; the state stays usable.
        end = self._state.copy()
        end.update(struct.pack(">Q", self.size))
        return f"{ALGORITHM}:{end.hexdigest()}"


def digest(value: object) -> str:
    """The digest of a value's canonical encoding."""
    return f"{ALGORITHM}:{xxhash.xxh3_128_hexdigest(encode(value))}"


def encode(value: object) -> bytes:
    """The canonical bytes of a value: equal values, and only those, have equal bytes."""
    out = bytearray()
    _encode(value, out)
    return bytes(out)


def digest_file(path: str | os.PathLike[str]) -> str:
    """The digest of a file's bytes, read in blocks."""
    hasher = Hasher("file")
    with open(path, "rb", buffering=0) as file:  # noqa: PTH123  (a path-like from anywhere)
        while block := file.read(_BLOCK):
            hasher.update(block)
    return hasher.hexdigest()


def bytes_digest(data: bytes) -> str:
    """The digest that a file of these bytes has."""
    hasher = Hasher("file")
    hasher.update(data)
    return hasher.hexdigest()


def digest_array(array: Any) -> str:
    """The digest of an array's logical content: dtype, shape, little-endian C-order
    bytes (numpy is not imported)."""
    dtype = array.dtype
    if dtype.hasobject or dtype.names is not None:
        raise TypeError(f"an array of {dtype} has no canonical bytes")
    little = dtype.newbyteorder("<")
    hasher = Hasher(f"array {little.str} {'x'.join(map(str, array.shape))}")
    for block in _blocks(array):
        hasher.update(memoryview(block.astype(little, order="C", copy=False).tobytes()))
    return hasher.hexdigest()


def _blocks(array: Any) -> Any:
    """Slices along the first axis of about one block each, so that a mapped file is
    never wholly in memory."""
    if array.ndim == 0 or array.nbytes <= _BLOCK:
        yield array
        return
    step = max(1, _BLOCK * array.shape[0] // array.nbytes)
    for start in range(0, array.shape[0], step):
        yield array[start : start + step]


_COUNTS = [struct.pack(">Q", count) for count in range(256)]


def _count(count: int) -> bytes:
    return _COUNTS[count] if count < 256 else struct.pack(">Q", count)


def _sized(tag: bytes, body: bytes, out: bytearray) -> None:
    size = len(body)
    out += tag + (_COUNTS[size] if size < 256 else struct.pack(">Q", size)) + body


def _encode(value: object, out: bytearray) -> None:
    # Exact types only: a subclass (a numpy scalar, a str with extra state) must not pass for its base.
    encoder = _ENCODERS.get(type(value))
    if encoder is not None:
        encoder(value, out)
    elif _is_enum(value):
        out += b"e"
        _encode(_qualified(type(value)), out)
        _encode(value.name, out)  # type: ignore[attr-defined]
        _encode(value.value, out)  # type: ignore[attr-defined]
    elif hasattr(type(value), "__dataclass_fields__"):
        _encode_dataclass(value, out)
    else:
        raise TypeError(
            f"a {_qualified(type(value))} has no canonical encoding, so it cannot take part in a key"
        )


def _is_enum(value: object) -> bool:
    from enum import Enum

    return isinstance(value, Enum)


def _encode_dataclass(value: Any, out: bytearray) -> None:
    if not value.__dataclass_params__.frozen:
        raise TypeError(f"{_qualified(type(value))} is not frozen, so it cannot take part in a key")
    # Only true fields: ClassVar and InitVar pseudo-fields are left out by dataclasses itself.
    from dataclasses import fields as fields_of  # slow to import, and rarely needed

    fields = sorted(field.name for field in fields_of(value))
    out += b"D"
    _encode(_qualified(type(value)), out)
    out += struct.pack(">Q", len(fields))
    for name in fields:
        _encode(name, out)
        _encode(getattr(value, name), out)


def _encode_float(value: Any, out: bytearray) -> None:
    out += b"f"
    out += _CANONICAL_NAN if value != value else struct.pack(">d", value)


def _encode_list(value: Any, out: bytearray) -> None:
    # A tuple and a list are one thing: records come back from JSON with lists.
    out += b"l" + _count(len(value))
    for item in value:
        _encode(item, out)


def _encode_dict(value: Any, out: bytearray) -> None:
    out += b"d" + _count(len(value))
    if not {str}.issuperset(map(type, value)):
        raise TypeError(
            f"the keys of a mapping must be str, not {next(k for k in value if type(k) is not str)!r}"
        )
    for key in sorted(value):
        _sized(b"s", key.encode("utf-8", "surrogatepass"), out)
        _encode(value[key], out)


def _encode_set(value: Any, out: bytearray) -> None:
    out += b"S"
    out += struct.pack(">Q", len(value))
    for item in sorted(map(encode, value)):
        _sized(b"i", item, out)


def _qualified(cls: type) -> str:
    return f"{cls.__module__}.{cls.__qualname__}"


def _none(_: Any, out: bytearray) -> None:
    out += b"N"


def _bool(value: Any, out: bytearray) -> None:
    out += b"T" if value else b"F"


_ENCODERS: dict[type, Any] = {
    type(None): _none,
    bool: _bool,
    int: lambda value, out: _sized(b"n", hex(value).encode(), out),
    float: _encode_float,
    str: lambda value, out: _sized(b"s", value.encode("utf-8", "surrogatepass"), out),
    bytes: lambda value, out: _sized(b"b", value, out),
    list: _encode_list,
    tuple: _encode_list,
    dict: _encode_dict,
    set: _encode_set,
    frozenset: _encode_set,
}
