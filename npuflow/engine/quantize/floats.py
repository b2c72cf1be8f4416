"""Constants of a layer that computes in floats: weights in its type, biases in that of its sums."""

from __future__ import annotations

import numpy as np

from npuflow.ir.codes import encode
from npuflow.ir.op import Site
from npuflow.ir.types import Array, FloatType, QuantType


def constants(site: Site, quant: FloatType) -> dict[int, tuple[Array, QuantType | None]]:
    """By input: what the layer reads, and its type. Factors on products and bias are in them; a bias stays
    float32, one number for each channel."""
    found: dict[int, tuple[Array, QuantType | None]] = {}
    for i, stored in enumerate(site.consts):
        role = site.op.role(i) if stored is not None else ""
        if stored is not None and role == "weight":
            found[i] = encode(stored.astype(np.float64) * site.op.gain(), quant), quant
        elif stored is not None and role == "bias":
            scaled = stored.reshape(-1).astype(np.float64) * site.op.bias_factor()
            found[i] = np.broadcast_to(scaled, (site.out_shape[1],)).astype(np.float32), None
    return found
