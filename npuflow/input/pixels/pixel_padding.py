"""Padding of pixels: its error against the source model's zeros, and the float graph without that error."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from npuflow.input.pixels.pixel_map import Reals
from npuflow.ir.builder import Builder
from npuflow.ir.graph import Graph, prune
from npuflow.ir.op import OPS, No, Op
from npuflow.ir.types import TensorType
from npuflow.ir.verify import verify


@dataclass(frozen=True)
class PixelBorder:
    """A layer that pads its pixels, or a Pad of them, by its output. `off`: by how many pixels each channel's
    padding misses the one that stands for 0; `plain`: by how many it would with one number for all channels.
    `copied`: the padding is an operator of its own.
    """

    output: str
    pads: tuple[int, ...]
    off: tuple[float, ...]
    plain: tuple[float, ...]
    copied: bool = False


def bordered(net: Builder, origin: tuple[str, ...], source: str, pads: Sequence[int], codes: Reals) -> str:
    """A border of one number per channel around pixels: each channel's by itself where they differ."""

    def pad(value_id: str, code: float) -> str:
        return added(
            net, OPS["pad"](tuple(pads), "constant", code), (value_id,), f"{value_id}:bordered", origin
        )

    if np.all(codes == codes[0]):
        return pad(source, float(codes[0]))
    parts = []
    for c, code in enumerate(codes.tolist()):
        one = added(net, OPS["slice"]((c,), (c + 1,), (1,), (1,)), (source,), f"{source}:{c}", origin)
        parts.append(pad(one, code))
    return added(net, OPS["concat"](1), tuple(parts), f"{source}:bordered", origin)


def added(net: Builder, op: Op, inputs: tuple[str, ...], name: str, origin: tuple[str, ...]) -> str:
    """The float32 result of one operator more, under this name or one like it."""
    (kind_,) = op.infer(*(net.type(i) for i in inputs))
    (found,) = net.add(op, inputs, (net.free(name),), origin, (TensorType(kind_.shape, "float32"),))
    return found


def exactly_padded(graph: Graph, borders: Sequence[PixelBorder]) -> Graph:
    """The float graph with the padding that the source model has, in fractions of pixels:
    what else differs is an error."""
    made = Builder.over(graph)
    producer, exact, plain = graph.producer(), dict[str, float](), dict[str, PixelBorder]()
    for one in borders:
        node = producer.get(one.output)
        if node is None:
            continue
        if not one.copied:
            plain[one.output] = one
            continue
        last = node if node.op.algebra in ("border", "join") else producer[node.inputs[0]]
        pads = [last.outputs[0]] if last.op.algebra == "border" else last.inputs
        exact.update(zip(pads, one.plain, strict=False))
    for node in graph.nodes:
        if node.outputs[0] in exact:
            border = node.op.border(graph.site(node))
            assert not isinstance(border, No)
            node = replace(node, op=node.op.with_border(border[0], exact[node.outputs[0]]))
        elif node.outputs[0] in plain:
            one = plain[node.outputs[0]]
            half, codes = len(one.pads) // 2, np.asarray(one.plain)
            widths = (0, 0, *one.pads[:half], 0, 0, *one.pads[half:])
            source = bordered(made, node.origin, node.inputs[0], widths, codes)
            bare = node.op.with_border((0,) * len(widths))
            node = replace(node, op=bare, inputs=(source, *node.inputs[1:]))
        made.nodes.append(node)
    padded = made.graph(graph.inputs, graph.outputs).replaced(state=graph.state, lengths=graph.lengths)
    return verify(prune(padded), "padding exactly")
