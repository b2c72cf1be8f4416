"""Makes floats of a table's codes before rows of it are picked, so that the NPU picks them.
onnxruntime's quantize_dynamic does it behind: it picks and turns the codes of an embedding.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import numpy as np
import onnx

from npuflow.ir.types import Array
from npuflow.onnx.nodes import captured, rename_inputs

BACK = "DequantizeLinear"
CODES = ("int8", "uint8", "int16", "uint16")
PICKS = ("Gather", "GatherElements", "GatherND")
MOVES = (*PICKS, "Transpose", "Reshape", "Flatten", "Squeeze", "Unsqueeze", "Slice", "Identity")
SIZES = ("Shape", "Size")
Nodes = list[onnx.NodeProto]


def floats_first(
    nodes: Sequence[onnx.NodeProto], consts: Mapping[str, Array], outputs: Collection[str]
) -> Nodes:
    """The nodes, where each table of codes with one scale is made floats before its rows are picked, if that
    is all that is made of them in the end. `outputs`: of the network."""
    readers: dict[str, Nodes] = {}
    for node in nodes:
        for name in (*node.input, *captured(node)):
            readers.setdefault(name, []).append(node)
    place: dict[int, Nodes] = {}
    for node in nodes:
        held = consts.get(node.input[0]) if node.op_type in PICKS and not node.domain else None
        if held is not None and held.dtype.name in CODES and node.input[1] not in consts:
            backs = _backs(node, readers, outputs)
            if len({tuple(b.input[1:]) for b in backs}) == 1 and _one_scale(backs[0], consts):
                place.update(_turned(node, backs, readers))
    return [made for node in nodes for made in place.get(id(node), [node])]


def _backs(node: onnx.NodeProto, readers: Mapping[str, Nodes], outputs: Collection[str]) -> Nodes:
    """The DequantizeLinear that all paths from a move end with, but for those that ask for sizes; none where
    a path ends otherwise."""
    found: Nodes = []
    name = node.output[0]
    for reader in readers.get(name, []):
        more = [reader]
        if reader.domain or name in outputs or list(reader.input).count(name) != 1 or reader.input[0] != name:
            return []
        if reader.op_type in MOVES:
            more = _backs(reader, readers, outputs)
        if not more or (reader.op_type not in (BACK, *MOVES, *SIZES)):
            return []
        found += [one for one in more if one.op_type == BACK]
    return found


def _one_scale(back: onnx.NodeProto, consts: Mapping[str, Array]) -> bool:
    held = [consts.get(name) for name in back.input[1:] if name]
    return bool(held) and all(one is not None and np.size(one) == 1 for one in held)


def _turned(pick: onnx.NodeProto, backs: Nodes, readers: Mapping[str, Nodes]) -> dict[int, Nodes]:
    """What takes the place of each node: values have names of their own, as theirs are known as codes."""
    names = {back.input[0]: back.output[0] for back in reversed(backs)}
    found: dict[int, Nodes] = {}
    waiting = [pick]
    while waiting:
        node = waiting.pop()
        if node.op_type == BACK:
            first = names[node.input[0]] == node.output[0]
            same = onnx.helper.make_node("Identity", [names[node.input[0]]], [node.output[0]], node.name)
            found[id(node)] = [] if first else [same]
            continue
        made = onnx.NodeProto()
        made.CopyFrom(node)
        found[id(node)] = [made]
        if node.op_type not in SIZES:
            made.output[0] = names.setdefault(node.output[0], f"{node.output[0]}:floats")
            waiting += readers.get(node.output[0], [])
        if node is not pick:
            rename_inputs(made, names)
    table, back = f"{pick.output[0]}:table", onnx.NodeProto()
    back.CopyFrom(backs[0])
    back.input[0], back.output[0] = pick.input[0], table
    found[id(pick)][0].input[0] = table
    found[id(pick)].insert(0, back)
    return found
