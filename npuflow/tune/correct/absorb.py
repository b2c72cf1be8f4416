"""High-bias absorption: what a channel never falls below is left to the bias of the layers that read it.
Exact in float.

Source: M. Nagel, M. van Baalen, T. Blankevoort, M. Welling, "Data-free quantization through weight
equalization and bias correction", 2019, section 4.1.3. There the constant is three deviations below the mean
of a batch normalisation, and what lies lower is lost. Here it is the least value seen, and the bounds of the
fused clip move along, so nothing is lost.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from npuflow.hw.target import Numerics
from npuflow.ir.graph import Graph, prune
from npuflow.ir.types import Array
from npuflow.tune.correct.channel_ends import channel_ends
from npuflow.tune.correct.equalize import Edit
from npuflow.tune.correct.groups import CHANNEL, ChannelGroup, LinearLayer, groups
from npuflow.tune.walk import Feed

Real = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Absorbed:
    """The network with lowered channels; per group what its channels were lowered by
    (None: nothing, or `obstacle`)."""

    graph: Graph
    groups: tuple[ChannelGroup, ...]
    shifts: tuple[Real | None, ...]


def absorb(graph: Graph, numerics: Numerics, feeds: Sequence[Feed]) -> Absorbed:
    """Lower every channel that is always above zero on the samples, where the layers
    that read it can take it up."""
    found = groups(graph, numerics)
    for group in found:
        if not group.obstacle and len(group.values) > 1:
            group.stop("other operators are between the layers")
        if not numerics.per_channel_clamp and any(m.node.op.clip is not None for m in group.makers):
            group.stop("a clip is between them, and the target clamps all channels alike")
    ends = channel_ends(graph, [g.values[0] for g in found if not g.obstacle], feeds)
    shifts: list[Real | None] = []
    for group in found:
        shift = None if group.obstacle else np.maximum(ends[group.values[0]][0], 0.0)
        taken = None if shift is None or not shift.any() else [_taken(graph, r, shift) for r in group.readers]
        if taken is None or any(t is None for t in taken):
            if taken is not None:
                group.stop("a layer that reads it pads with zeros, which would not be lowered")
            shifts.append(None)
            continue
        assert shift is not None
        graph = lowered(graph, group, shift, [t for t in taken if t is not None])
        shifts.append(shift)
    return Absorbed(prune(graph), tuple(found), tuple(shifts))


def _taken(graph: Graph, layer: LinearLayer, shift: Real) -> Real | None:
    """What the layer makes of `shift` in every place of its input, per output
    channel; None where edges get less."""
    site = graph.site(layer.node)
    shape = site.shape(0)
    flat = np.broadcast_to(shift.reshape([-1 if d == CHANNEL else 1 for d in range(len(shape))]), shape)
    weight = site.consts[1]
    assert weight is not None
    consts: list[Array | None] = [weight.astype(np.float64)]
    (made,) = layer.node.op.reference(np.ascontiguousarray(flat), *consts)
    by_channel = np.moveaxis(made, CHANNEL, 0).reshape(made.shape[CHANNEL], -1)
    first = by_channel[:, :1]
    return np.asarray(first[:, 0]) if np.allclose(by_channel, first, rtol=1e-9, atol=1e-12) else None


def lowered(graph: Graph, group: ChannelGroup, shift: Real, taken: Sequence[Real]) -> Graph:
    """The same network with the channels of a group's one value lowered by `shift`; `taken`:
    what each reader adds instead."""
    edit = Edit(graph)

    def add(layer: LinearLayer, amount: Real) -> None:
        gain = layer.node.op.bias_factor()
        old = (
            np.broadcast_to(edit.const(layer, 2).ravel(), amount.shape)
            if edit.has(layer, 2)
            else np.zeros_like(amount)
        )
        edit.put(layer, 2, old + amount / gain)

    for layer in group.makers:
        add(layer, -shift)
        edit.clip(layer, lambda bound: bound - shift)
    for layer, amount in zip(group.readers, taken, strict=True):
        add(layer, amount)
    return edit.graph()
