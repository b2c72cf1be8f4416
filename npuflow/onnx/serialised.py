"""The bytes of a model, whose large tensors are written one by one.

Protobuf's own writer doubles its buffer as it grows, copies it in the end, and takes three times as long as
a copy does. To ask it for a size takes as long as to write.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import onnx

LARGE = 1 << 20                # bytes of a tensor from which on they are copied ...
MANY = 1 << 30                 # ... and of all together
MOST = (1 << 31) - 1           # bytes of a message
MESSAGE = 2                    # the wire type of messages and bytes


def serialised(model: onnx.ModelProto) -> bytes:
    """The same bytes as `SerializeToString(deterministic=True)`; a ValueError beyond what a message holds."""
    counts = [len(tensor.raw_data) for tensor in model.graph.initializer]
    if max(counts, default=0) < LARGE and sum(counts) < MANY:
        return bytes(model.SerializeToString(deterministic=True))
    graph, tensors = _number(model, "graph"), _number(model.graph, "initializer")
    before, behind = _around(model.graph, tensors)
    written = [_written(tensor) for tensor in model.graph.initializer]
    sizes = [len(head) + count + len(tail) for head, count, tail in written]
    own = len(before) + sum(len(_head(tensors, size)) + size for size in sizes) + len(behind)
    start, end = _around(model, graph)
    size = len(start) + len(_head(graph, own)) + own + len(end)
    if size > MOST:
        raise ValueError(f"a message has at most {MOST:,} bytes, and this one {size:,}")
    sink = io.BytesIO()
    sink.write(start + _head(graph, own) + before)
    for tensor, (head, count, tail), whole in zip(model.graph.initializer, written, sizes, strict=True):
        sink.write(_head(tensors, whole) + head)
        if count:
            sink.write(tensor.raw_data)
        sink.write(tail)
    sink.write(behind + end)
    return sink.getvalue()


def _written(tensor: onnx.TensorProto) -> tuple[bytes, int, bytes]:
    """What stands before the raw bytes of a tensor, how many these are, and what stands behind them; of a
    small one all is before them."""
    count = len(tensor.raw_data)
    if count < LARGE:
        return tensor.SerializeToString(deterministic=True), 0, b""
    raw = _number(tensor, "raw_data")
    head, tail = _around(tensor, raw)
    return head + _head(raw, count), count, tail


def _around(message: Any, field: int) -> tuple[bytes, bytes]:
    """The bytes of the fields before one and behind it."""
    return _some(message, lambda number: number < field), _some(message, lambda number: number > field)


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
