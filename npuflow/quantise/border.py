"""What padding with whole pixels costs: the largest error at the border of a layer,
from its weights alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np

from npuflow.input.pixels.pixel_padding import PixelBorder
from npuflow.ir.graph import Graph
from npuflow.ir.noise import decibels
from npuflow.ir.types import Array


@dataclass(frozen=True)
class BorderError:
    """The largest error at the border of one layer, in codes of its output, and a sentence about it."""

    node: str
    codes: float
    text: str


def bordered(graph: Graph, source: Graph, borders: Sequence[PixelBorder]) -> Iterator[BorderError]:
    """For every layer of the quantised graph that pads pixels. `source`: the float
    graph, which has its weights."""
    makers = source.producer()
    for one in borders:
        node, value = makers.get(one.output), graph.values.get(one.output)
        if node is None or len(node.inputs) < 2 or value is None or value.quant is None:
            continue
        weight, step = source.const(node.inputs[1]), value.quant.scale[0]
        if weight is None:
            continue
        group = node.op.column_groups()
        codes = largest(weight, one.off, one.pads, group) / step
        what = f"pads with whole pixels, at most {max(map(abs, one.off)):.2g} of a pixel off"
        if one.copied:
            plain = largest(weight, one.plain, one.pads, group) / step
            what += (
                f" (one number for all channels: {max(map(abs, one.plain)):.3g} pixels, {plain:.3g} codes "
                "of its output)"
            )
        below = (
            f", {decibels((value.quant.hi - value.quant.lo) ** 2, codes**2):.0f} dB below its range"
            if codes
            else ""
        )
        yield BorderError(
            node.name, codes, f"{what}: at its border at most {codes:.2g} codes of its output{below}"
        )


def largest(weight: Array, off: Sequence[float], pads: Sequence[int], group: int) -> float:
    """The largest absolute sum, over output channels and places at the border, of the taps that lie outside
    times what their padding is off by.
    """
    rows = weight.reshape(group, -1, *weight.shape[1:]).astype(np.float64)
    each = np.asarray(off).reshape(group, 1, weight.shape[1], *(1,) * (weight.ndim - 2))
    taps = (rows * each).sum(axis=2).reshape(weight.shape[0], *weight.shape[2:])
    total, half, found = taps.reshape(len(taps), -1).sum(axis=1), len(pads) // 2, 0.0
    sides = [
        [
            slice(a, b)
            for a in range(size + 1)
            for b in range(a, size + 1)
            if a <= pads[i] and size - b <= pads[i + half]
        ]
        for i, size in enumerate(taps.shape[1:])
    ]
    # the taps that may lie inside: at most the padding is outside on each side
    for box in product(*sides):
        inside = taps[(slice(None), *box)].reshape(len(taps), -1).sum(axis=1)
        found = max(found, float(np.abs(total - inside).max(initial=0.0)))
    return found
