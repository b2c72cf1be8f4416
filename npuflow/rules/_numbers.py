"""Integer tensors as float32 tensors of whole numbers: what indices of look-ups are made of."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from npuflow.ir.graph import constant
from npuflow.ir.op import OPS
from npuflow.ir.queries import kind, maker
from npuflow.ir.types import Array, TensorType
from npuflow.ir.whole import whole_span
from npuflow.onnx.run import EXPORT_OPSET
from npuflow.rules._parts import Parts

INTEGERS = ("int64", "int32")
FLOAT = 1  # onnx's number of the type


def number(parts: Parts, value_id: str) -> str:
    """The float32 form of integers below 2^24: of moves of such, of what the NPU found as whole numbers, and
    else by a Cast."""
    held = parts.array(value_id)
    if held is not None:
        return parts.const(held.astype(np.float32), "numbers")
    node, kept = maker(parts.graph, value_id), parts.type(value_id)
    if node is not None and kind(node) == "host:cast":
        source = node.inputs[0]
        if parts.type(source).dtype == "float32" and whole_span(parts.graph, source) is not None:
            return source
        unsigned = parts.type(source).dtype.startswith("uint") and found(parts, value_id)
        if parts.type(source).dtype in INTEGERS or unsigned:
            return number(parts, source)
    if node is not None and kind(node) == "concat" and any(found(parts, i) for i in node.inputs):
        return parts.op_as(node.op, [number(parts, i) for i in node.inputs], "numbers")
    if node is not None and node.op.moves_data and len(node.outputs) == len(node.inputs) == 1:
        return parts.op_as(node.op, (number(parts, node.inputs[0]),), "numbers")
    cast = OPS["host"](
        op_type="Cast",
        version=EXPORT_OPSET,
        attributes=(("to", FLOAT),),
        types=(TensorType(kept.shape),),
    )
    return parts.op_as(cast, (value_id,), "numbers")


def columns(parts: Parts, value_id: str, sizes: Sequence[int]) -> list[str]:
    """Indices over several dimensions, as float32 numbers of each dimension [count, 1]. Those from outside
    are checked against their own dimension: where sizes differ, they are separated before the Cast."""
    depth = len(sizes)
    if len(set(sizes)) == 1 or found(parts, value_id):
        whole = number(parts, value_id)
        flat = parts.reshape(whole, (parts.type(whole).size // depth, depth))
        return [parts.slice(flat, 1, d, d + 1) for d in range(depth)]
    last = len(parts.shape(value_id)) - 1
    single = [parts.slice(value_id, last, d, d + 1) for d in range(depth)]
    return [parts.reshape(number(parts, v), (parts.type(v).size, 1)) for v in single]


def found(parts: Parts, value_id: str) -> bool:
    """Whether the value is integers that the NPU found (positions, counts, what was computed of such), or
    moves of them."""
    node = maker(parts.graph, value_id)
    if node is None:
        return False
    if kind(node) == "host:cast" and parts.type(node.inputs[0]).dtype == "float32":
        return whole_span(parts.graph, node.inputs[0]) is not None
    if kind(node) == "concat":
        return any(found(parts, i) for i in node.inputs)
    moved = node.op.moves_data or kind(node) == "host:cast"
    return moved and len(node.inputs) == 1 and found(parts, node.inputs[0])


def moved_indices(parts: Parts, value_id: str, steps: Array) -> str:
    """One index plus steps, [steps], by the host: floats of few bits need not tell the sums apart."""
    return of_integers(parts, "Add", value_id, steps)


def of_integers(parts: Parts, op_type: str, value_id: str, other: str | npt.ArrayLike) -> str:
    """An operator of integers and of others, [1 or steps]: a constant or a value; by the host."""
    kind = parts.type(value_id)
    if not isinstance(other, str):
        held = np.atleast_1d(np.asarray(other, kind.dtype))
        value, entry = constant(parts.name("steps"), held)
        parts.values[value.id] = value
        parts.consts.update(entry)
        other = value.id
    shape = (*kind.shape[:-1], max(kind.shape[-1], parts.shape(other)[-1]))
    made = OPS["host"](
        op_type=op_type, version=EXPORT_OPSET, types=(TensorType(shape, kind.dtype),), reason="indices",
    )
    return parts.op_as(made, (value_id, other), "places")
