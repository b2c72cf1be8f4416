"""The bytes of a model, whose large tensors are written one by one.

Protobuf's own writer doubles its buffer as it grows, and copies it in the end.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import onnx

LARGE = 1 << 26                # bytes of a model from which on its tensors are written one by one
MOST = (1 << 31) - 1           # bytes of a message
MESSAGE = 2                    # the wire type of messages and bytes


def serialised(model: onnx.ModelProto) -> bytes:
    """The same bytes as `SerializeToString(deterministic=True)`; a ValueError beyond what a message holds."""
    size = model.ByteSize()
    if size < LARGE:
        return bytes(model.SerializeToString(deterministic=True))
    if size > MOST:
        raise ValueError(f"a message has at most {MOST:,} bytes, and this one {size:,}")
    sink = io.BytesIO()
    graph, tensors = _number(model, "graph"), _number(model.graph, "initializer")
    sink.write(_some(model, lambda number: number < graph))
    sink.write(_head(graph, model.graph.ByteSize()))
    sink.write(_some(model.graph, lambda number: number < tensors))
    for tensor in model.graph.initializer:
        sink.write(_head(tensors, tensor.ByteSize()))
        sink.write(tensor.SerializeToString(deterministic=True))
    sink.write(_some(model.graph, lambda number: number > tensors))
    sink.write(_some(model, lambda number: number > graph))
    return sink.getvalue()


def _number(message: Any, name: str) -> int:
    number: int = message.DESCRIPTOR.fields_by_name[name].number
    return number


def _some(message: Any, chosen: Callable[[int], bool]) -> bytes:
    """The bytes of some fields of a message, which are written in the order of their numbers."""
    part = type(message)()
    for field, value in message.ListFields():
        if not chosen(field.number):
            continue
        if hasattr(value, "extend"):
            getattr(part, field.name).extend(value)
        elif field.message_type is not None:
            getattr(part, field.name).CopyFrom(value)
        else:
            setattr(part, field.name, value)
    return bytes(part.SerializeToString(deterministic=True))


def _head(number: int, size: int) -> bytes:
    """What stands before a message in another: field and length, as numbers of 7 bits a byte."""
    found = bytearray()
    for value in (number << 3 | MESSAGE, size):
        while value > 127:
            found.append(value & 127 | 128)
            value >>= 7
        found.append(value)
    return bytes(found)
