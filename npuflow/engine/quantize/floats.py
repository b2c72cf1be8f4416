"""Layers in floats: whether they can be, and their constants: weights in their type, biases in that of
sums."""

from __future__ import annotations

import numpy as np

from npuflow.engine.place import op_name
from npuflow.ir.codes import encode
from npuflow.ir.op import Node, Site
from npuflow.ir.types import Array, FloatType, QuantType, float_type


def constants(site: Site, quant: FloatType, blocks: str = "") -> dict[int, tuple[Array, QuantType | None]]:
    """By input: what the layer reads, and its type. Factors on products and bias are in them; a bias stays
    float32, one number for each channel. `blocks`: the type of weights that are summed along an axis of
    theirs."""
    found: dict[int, tuple[Array, QuantType | None]] = {}
    for i, stored in enumerate(site.consts):
        role = site.op.role(i) if stored is not None else ""
        if stored is not None and role == "weight":
            axis = site.op.group_axis(site, i) if blocks else None
            kind = quant if axis is None else float_type(blocks, axis)
            found[i] = encode(stored.astype(np.float64) * site.op.gain(), kind), kind
        elif stored is not None and role == "bias":
            scaled = stored.reshape(-1).astype(np.float64) * site.op.bias_factor()
            found[i] = np.broadcast_to(scaled, (site.out_shape[1],)).astype(np.float32), None
    return found


def refusal(node: Node, number: str, room: int | None) -> str | None:
    """Why a node does not compute in a float type with so many bytes of local memory, if it does not."""
    if not node.op.floats:
        return f"{op_name(node)} has no form in {number}"
    if room is not None and node.op.float_table >= room:
        return (
            f"its table of {node.op.float_table:,} bytes for all numbers of {number} does not fit "
            f"{room:,} bytes of local memory"
        )
    return None
