"""Turns half and double precision into float32, which the integers of an NPU stand for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx

from npuflow.ir.types import Array
from npuflow.onnx.nodes import subgraphs

OTHER = {"float16": 10, "float64": 11, "bfloat16": 16}     # floating-point types that become float32
FLOAT = 1
_TYPED = {"to", "dtype", "output_datatype", "output_dtype", "softmax_precision", "stash_type"}
BITS = ("BitCast",)                       # operators on the bits of numbers, which are not narrowed
_CODES = frozenset(OTHER.values())


def is_other(dtype: str) -> bool:
    return dtype in OTHER


def single(values: Any) -> Array:
    """An array as float32; finite numbers stay finite (the lowest double as a mask, 1e300)."""
    with np.errstate(over="ignore"):
        made = np.asarray(values).astype(np.float32)
    if values.dtype.itemsize > made.dtype.itemsize:
        limit = np.finfo(np.float32).max
        made = np.where(np.isinf(made) & np.isfinite(values), np.copysign(limit, made), made)
    return np.asarray(made)


def rounding(graph: onnx.GraphProto) -> float:
    """The relative rounding of the coarsest type that the graph computes in."""
    kinds = {t.data_type for t in graph.initializer} | {
        v.type.tensor_type.elem_type for v in (*graph.input, *graph.output)
    }
    for node in graph.node:
        kinds |= {a.i for a in node.attribute if a.name in _TYPED} | {a.t.data_type for a in node.attribute}
    inner = [rounding(part) for node in graph.node for part in subgraphs(node)]
    own = 2.0**-8 if OTHER["bfloat16"] in kinds else 2.0**-11 if OTHER["float16"] in kinds else 2.0**-24
    return max([own, *inner])


def narrow(node: onnx.NodeProto) -> bool:
    """Make the node, in place, compute in float32: types and tensors in its attributes and
    subgraphs. False: nothing to do."""
    changed = False
    for attribute in node.attribute:
        if attribute.type == onnx.AttributeProto.INT and attribute.name in _TYPED and attribute.i in _CODES:
            attribute.i, changed = FLOAT, True
        elif attribute.type == onnx.AttributeProto.TENSOR:
            changed |= _tensor(attribute.t)
        elif attribute.type == onnx.AttributeProto.TENSORS:
            changed |= sum(_tensor(t) for t in attribute.tensors) > 0
        elif attribute.type == onnx.AttributeProto.TYPE_PROTO:
            changed |= _type(attribute.tp)
    for graph in subgraphs(node):
        changed |= _graph(graph)
    return changed


def _graph(graph: onnx.GraphProto) -> bool:
    count = sum(_tensor(t) for t in graph.initializer) + sum(
        _tensor(s.values) for s in graph.sparse_initializer
    )
    count += sum(_type(v.type) for values in (graph.input, graph.output, graph.value_info) for v in values)
    return count + sum(narrow(node) for node in graph.node) > 0


def _tensor(tensor: onnx.TensorProto) -> bool:
    if tensor.data_type not in _CODES:
        return False
    from npuflow.frontends._nodes.tensors import array

    name = tensor.name
    tensor.CopyFrom(onnx.numpy_helper.from_array(single(array(tensor)), name))
    return True


def _type(kind: onnx.TypeProto) -> bool:
    """Tensors, and what is inside of sequences, optionals and maps."""
    which = kind.WhichOneof("value")
    if which in ("tensor_type", "sparse_tensor_type"):
        tensor = getattr(kind, which)
        if tensor.elem_type in _CODES:
            tensor.elem_type = FLOAT
            return True
        return False
    if which in ("sequence_type", "optional_type"):
        return _type(getattr(kind, which).elem_type)
    return _type(kind.map_type.value_type) if which == "map_type" else False


def said(counts: Mapping[str, int], ports: list[str]) -> str:
    """A note on what was read as float32."""
    kinds = ", ".join(f"{count} {name}" for name, count in sorted(counts.items()) if count)
    kept = f"; {', '.join(ports)} keep{'s' if len(ports) == 1 else ''} the declared type" if ports else ""
    return f"computed in float32: {kinds} tensors of the model{kept}"
