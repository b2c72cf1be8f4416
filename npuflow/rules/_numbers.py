"""Integer tensors as float32 tensors of whole numbers: what indices of look-ups are made of."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from npuflow.ir.op import OPS
from npuflow.ir.queries import kind, maker
from npuflow.ir.types import TensorType
from npuflow.onnx.run import EXPORT_OPSET
from npuflow.rules._parts import Parts

INTEGERS = ("int64", "int32")
FLOAT = 1  # onnx's number of the type
SELECTIONS = ("argextreme", "topk")  # operators whose results are whole numbers


def number(parts: Parts, value_id: str) -> str:
    """The float32 form of integers below 2^24: of moves of such, of what the NPU found as whole numbers, and
    else by a Cast."""
    held = parts.array(value_id)
    if held is not None:
        return parts.const(held.astype(np.float32), "numbers")
    node, kept = maker(parts.graph, value_id), parts.type(value_id)
    if node is not None and kind(node) == "host:cast":
        source = node.inputs[0]
        if parts.type(source).dtype == "float32" and _found(parts, source):
            return source
        if parts.type(source).dtype in INTEGERS:
            return number(parts, source)
    if node is not None and kind(node) == "concat" and any(_found(parts, i) for i in node.inputs):
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
    if len(set(sizes)) == 1 or _found(parts, value_id):
        whole = number(parts, value_id)
        flat = parts.reshape(whole, (parts.type(whole).size // depth, depth))
        return [parts.slice(flat, 1, d, d + 1) for d in range(depth)]
    last = len(parts.shape(value_id)) - 1
    single = [parts.slice(value_id, last, d, d + 1) for d in range(depth)]
    return [parts.reshape(number(parts, v), (parts.type(v).size, 1)) for v in single]


def _found(parts: Parts, value_id: str) -> bool:
    """Whether the value is positions that the NPU found, or moves of such."""
    node = maker(parts.graph, value_id)
    while node is not None and (node.op.moves_data or kind(node) == "host:cast") and len(node.inputs) == 1:
        node = maker(parts.graph, node.inputs[0])
    if node is not None and kind(node) == "concat":
        return any(_found(parts, i) for i in node.inputs)
    return node is not None and kind(node) in SELECTIONS
