"""Between the graph's types and ONNX's: element types by name, shapes with free
dimensions, non-tensor types as text."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from npuflow.ir.types import UNKNOWN, UNRANKED, UNTYPED, TensorType

if TYPE_CHECKING:
    import onnx

ELEMENTS = {
    "float32": 1,
    "uint8": 2,
    "int8": 3,
    "uint16": 4,
    "int16": 5,
    "int32": 6,
    "int64": 7,
    "string": 8,
    "bool": 9,
    "float16": 10,
    "float64": 11,
    "uint32": 12,
    "uint64": 13,
    "complex64": 14,
    "complex128": 15,
    "bfloat16": 16,
    "float8e4m3fn": 17,
    "float8e4m3fnuz": 18,
    "float8e5m2": 19,
    "float8e5m2fnuz": 20,
    "uint4": 21,
    "int4": 22,
    "float4e2m1": 23,
    "float8e8m0": 24,
    "uint2": 25,
    "int2": 26,
}
NAMES = {number: name for name, number in ELEMENTS.items()}
# numpy has them
PLAIN = frozenset(name for name, number in ELEMENTS.items() if number <= 15 and name != "string")


def from_proto(proto: onnx.TypeProto | None) -> TensorType:
    """The graph's type for an ONNX type; anything but a dense tensor becomes text in `dtype`."""
    kind = proto.WhichOneof("value") if proto is not None else None
    if proto is None or kind is None:
        return TensorType(UNRANKED, UNTYPED)
    if kind != "tensor_type":
        return TensorType(UNRANKED, _text(proto))
    tensor = proto.tensor_type
    dtype = NAMES.get(tensor.elem_type, f"type{tensor.elem_type}") if tensor.elem_type else UNTYPED
    return TensorType(_shape(tensor), dtype)


def to_proto(kind: TensorType) -> onnx.TypeProto | None:
    """The ONNX type; None when nothing is known."""
    import onnx

    if kind.dtype == UNTYPED or "opaque" in kind.dtype:
        return None
    proto = onnx.TypeProto()
    if kind.dtype in ELEMENTS or re.fullmatch(r"type\d+", kind.dtype):
        _fill(proto.tensor_type, kind)
    else:
        _parse(_Text(kind.dtype), proto)
    return proto


def is_tensor(kind: TensorType) -> bool:
    return kind.dtype in ELEMENTS


def value_info(name: str, kind: TensorType) -> onnx.ValueInfoProto:
    import onnx

    info = onnx.ValueInfoProto(name=name)
    proto = to_proto(kind)
    if proto is not None:
        info.type.CopyFrom(proto)
    return info


def element(dtype: str) -> int:
    return ELEMENTS[dtype] if dtype in ELEMENTS else int(dtype.removeprefix("type"))


def _shape(tensor: Any) -> tuple[int, ...]:
    if not tensor.HasField("shape"):
        return UNRANKED
    return tuple(
        d.dim_value if d.HasField("dim_value") and d.dim_value >= 0 else UNKNOWN for d in tensor.shape.dim
    )


def _fill(tensor: Any, kind: TensorType) -> None:
    tensor.elem_type = element(kind.dtype)
    if kind.shape == UNRANKED:
        return
    tensor.shape.SetInParent()
    for size in kind.shape:
        dim = tensor.shape.dim.add()
        if size >= 0:
            dim.dim_value = size


def _text(proto: onnx.TypeProto) -> str:
    kind = proto.WhichOneof("value")
    if kind in ("tensor_type", "sparse_tensor_type"):
        tensor = getattr(proto, kind)
        shape = _shape(tensor)
        dims = "*" if shape == UNRANKED else ",".join("?" if d < 0 else str(d) for d in shape)
        name = NAMES.get(tensor.elem_type, f"type{tensor.elem_type}")
        return f"{'sparse ' if kind != 'tensor_type' else ''}{name}[{dims}]"
    if kind == "sequence_type":
        return f"sequence({_text(proto.sequence_type.elem_type)})"
    if kind == "optional_type":
        return f"optional({_text(proto.optional_type.elem_type)})"
    if kind == "map_type":
        return f"map({NAMES.get(proto.map_type.key_type, 'int64')},{_text(proto.map_type.value_type)})"
    return "opaque[]"


class _Text:
    """A type's text, read from the left."""

    def __init__(self, text: str) -> None:
        self.rest = text

    def take(self, pattern: str) -> str:
        found = re.match(pattern, self.rest)
        if found is None:
            raise ValueError(f"not a type: {self.rest!r}")
        self.rest = self.rest[found.end() :]
        return found.group(0)


def _parse(text: _Text, proto: onnx.TypeProto) -> None:
    word = text.take(r"sparse |\w+")
    if word in ("sequence", "optional"):
        text.take(r"\(")
        _parse(text, getattr(proto, f"{word}_type").elem_type)
        text.take(r"\)")
    elif word == "map":
        proto.map_type.key_type = element(text.take(r"\(\w+,")[1:-1])
        _parse(text, proto.map_type.value_type)
        text.take(r"\)")
    else:
        tensor: Any = proto.tensor_type
        if word == "sparse ":
            tensor, word = proto.sparse_tensor_type, text.take(r"\w+")
        dims = text.take(r"\[[^\]]*\]")[1:-1]
        shape = (
            UNRANKED if dims == "*" else tuple(UNKNOWN if d == "?" else int(d) for d in dims.split(",") if d)
        )
        _fill(tensor, TensorType(shape, word))
