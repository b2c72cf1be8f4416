"""What an import computes itself: shapes of static values, small constant-only nodes,
branches whose condition is known."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import onnx

from npuflow.base.tables_write import key
from npuflow.frontends._nodes.upgrade import schema
from npuflow.ir.op import Node
from npuflow.ir.types import UNRANKED, Array, TensorType, Value
from npuflow.onnx.nodes import captured, plain, rename, subgraphs
from npuflow.onnx.run import CannotRunError, run_node
from npuflow.onnx.types import PLAIN

LIMIT = 1 << 27       # elements of a folded result
_RANDOM = {
    "Bernoulli",
    "Multinomial",
    "RandomNormal",
    "RandomNormalLike",
    "RandomUniform",
    "RandomUniformLike",
}


def folded(
    node: onnx.NodeProto,
    version: int,
    known: Mapping[str, TensorType],
    arrays: Mapping[str, Array],
    types: Sequence[TensorType],
) -> list[Array] | None:
    """The node's outputs (absent ones left out) when they are known now and small enough, else None."""
    if node.domain:
        return None
    shape = _shape_of(node, known)
    if shape is not None:
        return shape
    inputs = [i for i in node.input if i]
    constant = all(i in arrays for i in inputs) and not any(True for _ in subgraphs(node))
    bounded = all(t.dtype in PLAIN and t.shape != UNRANKED and t.is_static and t.size <= LIMIT for t in types)
    found = schema(node.op_type, version, "")
    if not (constant and bounded) or node.op_type in _RANDOM or found is None or not node.output:
        return None
    if node.op_type == "Dropout" and len(inputs) > 2:
        return None                      # training mode draws numbers
    if node.op_type == "ConstantOfShape":
        fill = next((plain(a) for a in node.attribute if a.name == "value"), np.zeros(1, np.float32))
        return [np.full(types[0].shape, fill.reshape(-1)[0], fill.dtype)] if fill.size == 1 else None
    try:
        results = run_node(node, version, [known[i] for i in inputs], [arrays[i] for i in inputs])
    except CannotRunError:
        return None
    results = [np.asarray(r) for r in results]
    wanted = [t for t, o in zip(types, node.output, strict=True) if o]
    if any(r.dtype.name != t.dtype or r.shape != t.shape for r, t in zip(results, wanted, strict=True)):
        return None
    return results


def _shape_of(node: onnx.NodeProto, known: Mapping[str, TensorType]) -> list[Array] | None:
    """Shape and Size of a static value need no data."""
    if node.op_type not in ("Shape", "Size") or not known[node.input[0]].is_static:
        return None
    dims = np.array(known[node.input[0]].shape, np.int64)
    if node.op_type == "Size":
        return [np.array(dims.prod(), np.int64)]
    attributes = {a.name: a.i for a in node.attribute}
    rank = len(dims)
    start, end = (
        min(max(v + rank if v < 0 else v, 0), rank)
        for v in (attributes.get("start", 0), attributes.get("end", rank))
    )
    return [dims[start:end]]


def chosen_branch(node: onnx.NodeProto, arrays: Mapping[str, Array]) -> onnx.GraphProto | None:
    """The branch an If takes when its condition is constant."""
    if node.op_type != "If" or node.domain or node.input[0] not in arrays or arrays[node.input[0]].size != 1:
        return None
    wanted = "then_branch" if bool(arrays[node.input[0]].reshape(-1)[0]) else "else_branch"
    branch = next(a.g for a in node.attribute if a.name == wanted)
    return branch if len(branch.output) == len(node.output) else None


def undecided(
    condition: str, nodes: Sequence[Node], values: Mapping[str, Value], arrays: Mapping[str, Array]
) -> str:
    """Why an If cannot be replaced by one of its branches: what its condition is computed from."""
    made = {o: n for n in nodes for o in n.outputs}
    roots, waiting = set[str](), [condition]
    while waiting:
        value = waiting.pop()
        if value in made:
            waiting += [i for i in made[value].inputs if i]
        elif value not in arrays:
            roots.add(value)
    if not roots or any(not values[root].type.is_static or values[root].type.size != 1 for root in roots):
        return "its branch depends on data"
    named = " and ".join(f'"{root}"' for root in sorted(roots))
    held = ", ".join(f"{key(root)} = NUMBER" for root in sorted(roots))
    return f"its branch depends on {named}; [model] constants = {{ {held} }} chooses one for good"


def rename_all(nodes: Iterable[onnx.NodeProto], names: Mapping[str, str]) -> None:
    """Rename values in place, in subgraphs too where they are taken from outside."""
    for node in nodes:
        outside = {n: names[n] for n in captured(node) if n in names}
        for field in (node.input, node.output):
            for index, name in enumerate(field):
                if name in names:
                    field[index] = names[name]
        rename(node, outside)
        if node.name:
            node.name = names.get(node.name, node.name)
