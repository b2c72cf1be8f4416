"""Layers in floats: whether they can be, and their constants: weights in their type, biases in that of
sums."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from types import MappingProxyType

import numpy as np

from npuflow.hw.elements import ELEMENTS
from npuflow.ir.codes import encode
from npuflow.ir.forms import Arithmetic, float_table, has_form
from npuflow.ir.graph import Graph
from npuflow.ir.op import Node, Op, OpContext
from npuflow.ir.types import Array, FloatType, GroupedType, QuantType, float_type
from npuflow.ir.whole import spans_of
from npuflow.place.names import names_of
from npuflow.place.place import op_name
from npuflow.quantise.config import Quantize
from npuflow.quantise.scales import whole_types

NO_GROUPS: Mapping[int, GroupedType] = MappingProxyType({})


def constants(
    site: OpContext, quant: FloatType, blocks: str = "", groups: Mapping[int, GroupedType] = NO_GROUPS
) -> dict[int, tuple[Array, QuantType | None]]:
    """By input: what the layer reads, and its type. Factors on products and bias are in them; a bias stays
    float32, one number for each channel. `blocks`: the type of weights that are summed along an axis of
    theirs. `groups`: the types of weights in groups with float16 scales."""
    found: dict[int, tuple[Array, QuantType | None]] = {}
    for i, stored in enumerate(site.consts):
        role = site.op.role(i) if stored is not None else ""
        if stored is not None and role == "table":
            found[i] = encode(stored, quant), quant
        if stored is not None and i in groups:
            found[i] = encode(stored, groups[i]), groups[i]
        elif stored is not None and role == "weight":
            shared = ELEMENTS[blocks].block if blocks else None
            axis = site.op.block_axis(site, i, shared.size) if shared is not None else None
            kind = quant if axis is None else float_type(blocks, axis)
            found[i] = encode(stored.astype(np.float64) * site.op.gain(), kind), kind
        elif stored is not None and role == "bias":
            scaled = stored.reshape(-1).astype(np.float64) * site.op.bias_factor()
            found[i] = np.broadcast_to(scaled, (site.out_shape[1],)).astype(np.float32), None
    return found


def operator(site: OpContext, blocks: str = "") -> Op:
    """The operator without factors, which are in its constants; of two activations in blocks, where the array
    converts these to the type `blocks`."""
    op, shared = site.op.unit_gain().unit_bias(), ELEMENTS[blocks].block if blocks else None
    alone = all(stored is None for stored in site.consts)
    return op.in_pairs(blocks) if alone and shared is not None and shared.both else op


def float_layers(
    graph: Graph, on_npu: Callable[[int], bool], config: Quantize, room: int | None,
    caches: Collection[str] = (),
) -> tuple[dict[int, str], dict[int, str]]:
    """By node of the NPU the float type that it computes in (empty: integers); and why some do not compute in
    theirs. `caches`: what caches are made of, in integers."""
    nodes = {i: node for i, node in enumerate(graph.nodes) if on_npu(i)}
    numbers = {i: config.number(names_of(node), op_name(node)) for i, node in nodes.items()}
    numbers.update(dict.fromkeys(_of_whole(graph, nodes), ""))
    numbers.update((i, "") for i, node in nodes.items() if node.outputs[0] in caches)
    reasons = {i: refusal(nodes[i], number, room) for i, number in numbers.items() if number}
    return numbers, {i: reason for i, reason in reasons.items() if reason is not None}


def _of_whole(graph: Graph, nodes: Mapping[int, Node]) -> set[int]:
    """Nodes, by index, that move whole numbers or compute some: a type of floats would round these."""
    whole = set(whole_types(graph, list(nodes.values())))
    known = spans_of(graph) if whole else {}
    return {
        i for i, node in nodes.items()
        if node.outputs[0] in whole and (
            node.op.moves_data
            or (
                (node.outputs[0] in known or not has_form(node.op, Arithmetic.FLOATS))
                and any(v in whole for v in node.inputs)
            )
        )
    }


def refusal(node: Node, number: str, room: int | None) -> str | None:
    """Why a node does not compute in a float type with so many bytes of local memory, if it does not."""
    if not has_form(node.op, Arithmetic.FLOATS):
        return f"{op_name(node)} has no form in {number}"
    if room is not None and (table := float_table(node.op, number)) >= room:
        return (
            f"its table of {table:,} bytes for all numbers of {number} does not fit "
            f"{room:,} bytes of local memory"
        )
    return None
