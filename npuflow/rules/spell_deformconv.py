"""DeformConv as bilinear sampling at the moved places of every tap, and a 1x1 convolution over the taps."""

from __future__ import annotations

from math import prod

import numpy as np

from npuflow.rules import RULES
from npuflow.rules._match import attribute
from npuflow.rules._parts import Decomposition, Parts
from npuflow.rules._tents import MAKES, MOST, sampled, tents


@RULES.entry
class SpellDeformConv(Decomposition):
    """Version 2 too, with a mask of the taps."""

    triggers = ("host:deformconv",)
    makes = (*MAKES, "conv")

    def spelled(self, parts: Parts) -> tuple[str, ...] | str:
        x, weight, offset = parts.input(0), parts.number(1), parts.input(2)
        if weight is None or (parts.input(3) and parts.number(3) is None):
            return "its weights are not constants"
        if len(parts.shape(x)) != 4:
            return f"over {len(parts.shape(x)) - 2} dimensions"
        (count, channels, *image), kernel = parts.shape(x), weight.shape[2:]
        groups, taps, made = parts.integer("offset_group", 1), prod(kernel), parts.shape(offset)[2:]
        size = count * groups * prod(image) * taps * prod(made)
        if size > MOST:
            return f"sampling matrices of {size} elements, more than {MOST}"
        starts, each = _starts(parts, kernel, made), channels // groups
        moves = parts.reshape(offset, (count, groups * taps, 2, prod(made)))
        pieces = []
        for g in range(groups):
            own = parts.slice(moves, 1, g * taps, (g + 1) * taps)
            weights = []
            for d in range(2):
                shift = parts.reshape(parts.slice(own, 2, d, d + 1), (count, 1, taps * prod(made)))
                place = parts.add(shift, parts.const(starts[d].reshape(1, 1, -1), "starts"), "place")
                weights.append(tents(parts, place, image[d]))
            part = parts.reshape(parts.slice(x, 1, g * each, (g + 1) * each), (count, each, prod(image)))
            found = sampled(parts, part, *weights)
            if parts.input(4):
                mask = parts.slice(parts.input(4), 1, g * taps, (g + 1) * taps)
                found = parts.mul(found, parts.reshape(mask, (count, 1, taps * prod(made))), "masked")
            pieces.append(parts.reshape(found, (count, each * taps, *made)))
        flat = parts.const(weight.reshape(weight.shape[0], -1, 1, 1), "weights")
        more = (parts.input(3),) if parts.input(3) else ()
        return (
            parts.op(
                "conv",
                (parts.concat(pieces, 1), flat, *more),
                kernel_shape=(1, 1),
                strides=(1, 1),
                dilations=(1, 1),
                pads=(0, 0, 0, 0),
                group=parts.integer("group", 1),
            ),
        )


def _starts(parts: Parts, kernel: tuple[int, ...], made: tuple[int, ...]) -> list[np.ndarray]:
    """Row and column of every tap and place before it is moved, [taps, places]."""
    strides, dilations = (attribute(parts.node, name, (1, 1)) for name in ("strides", "dilations"))
    pads = attribute(parts.node, "pads", (0, 0))
    found = []
    for d in range(2):
        along = (-1, 1) if d == 0 else (1, -1)
        tap = (np.arange(kernel[d]) * dilations[d]).reshape(along)
        place = (np.arange(made[d]) * strides[d] - pads[d]).reshape(along)
        whole = np.broadcast_to(tap, kernel).reshape(-1, 1) + np.broadcast_to(place, made).reshape(1, -1)
        found.append(whole.astype(np.float32))
    return found
