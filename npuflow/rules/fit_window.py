"""Turns windows of three dimensions into ones of two.
A convolution takes the taps along the depth as channels, a pool goes twice.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from npuflow.ir.graph import Graph
from npuflow.ir.op import Node
from npuflow.ir.queries import kind
from npuflow.rules import RULES, Change, Refusal
from npuflow.rules._match import plain_float
from npuflow.rules._parts import Decomposition, Parts
from npuflow.rules._phases import SubPixelPhase, phases


@RULES.entry
class FitWindow(Decomposition):
    """Planes of the result stand in the batch, so that the sums of a convolution are rounded once. After
    folding and fusing, which know convolutions of any rank."""

    order = 86
    triggers = ("conv", "convtranspose", "maxpool", "averagepool")
    makes = (
        "conv",
        "convtranspose",
        "maxpool",
        "averagepool",
        "transpose",
        "reshape",
        "pad",
        "slice",
        "concat",
    )

    def rewrite(self, graph: Graph, node: Node) -> Change | Refusal | None:
        three = len(getattr(node.op, "kernel_shape", ())) == 3 and len(node.outputs) == 1
        return super().rewrite(graph, node) if three and plain_float(graph, node) else None

    def spelled(self, parts: Parts) -> tuple[str, ...] | str:
        if kind(parts.node) in ("maxpool", "averagepool"):
            return (_pooled(parts),)
        weight = parts.number(1)
        if weight is None:
            return "the weight is not a constant"
        return _convolved(parts, weight) if kind(parts.node) == "conv" else _deconvolved(parts, weight)


def _pooled(parts: Parts) -> str:
    """Rows and columns first, then the depth."""
    op, x = parts.node.op, parts.input(0)
    n, channels, depth, *_ = parts.shape(x)
    k, s, d, p = _settings(op)
    y = parts.op_as(op.with_(
        kernel_shape=k[1:], strides=s[1:], dilations=d[1:], pads=(*p[1:3], *p[4:]), clip=None,
    ), (parts.reshape(x, (n, channels * depth, *parts.shape(x)[3:])),), "planes")
    height, width = parts.shape(y)[2:]
    y = parts.op_as(op.with_(
        kernel_shape=(k[0], 1), strides=(s[0], 1), dilations=(d[0], 1), pads=(p[0], 0, p[3], 0),
    ), (parts.reshape(y, (n, channels, depth, height * width)),), "depth")
    return parts.reshape(y, parts.shape(parts.node.outputs[0]))


def _convolved(parts: Parts, weight: np.ndarray) -> tuple[str, ...]:
    op = parts.node.op
    k, s, d, p = _settings(op)
    count = parts.shape(parts.node.outputs[0])[2]
    taps = tuple(tap * d[0] - p[0] for tap in range(k[0]))
    planes = _stacked(parts, taps, count, s[0], op.group)  # type: ignore[attr-defined]
    flat = weight.transpose(0, 2, 1, 3, 4).reshape(weight.shape[0], -1, *k[1:])
    more = parts.node.inputs[2:]
    y = parts.op_as(op.with_(
        kernel_shape=k[1:], strides=s[1:], dilations=d[1:], pads=(*p[1:3], *p[4:]),
    ), (planes, parts.const(flat, "weight"), *more), "planes")
    return (_unstacked(parts, y, count),)


def _deconvolved(parts: Parts, weight: np.ndarray) -> tuple[str, ...] | str:
    """Planes of the result by their place between those of the input: each has taps of its own."""
    op = parts.node.op
    k, s, d, p = _settings(op)
    count = parts.shape(parts.node.outputs[0])[2]
    every = phases(k[0], s[0], d[0], p[0])
    if any(not phase.taps for phase in every) or getattr(op, "auto_pad", "NOTSET") != "NOTSET":
        return "planes without a tap, or pads that the model leaves open"
    rows, found = -(-count // s[0]), []
    for phase in every:
        offsets = [offset for _, offset in phase.taps]
        planes = _stacked(parts, offsets, rows, 1, op.group)  # type: ignore[attr-defined]
        found.append(_phase(parts, phase, planes, weight, rows))
    n, _, channels, height, width = shape = parts.shape(found[0])
    whole = parts.concat([parts.reshape(y, (n, rows, 1, *shape[2:])) for y in found], 2)
    whole = parts.slice(parts.reshape(whole, (n, rows * s[0], channels, height, width)), 1, 0, count)
    return (parts.transpose(whole, (0, 2, 1, 3, 4)),)


def _phase(parts: Parts, phase: SubPixelPhase, planes: str, weight: np.ndarray, rows: int) -> str:
    """[batch, rows, channels, height, width] of one phase."""
    op = parts.node.op
    k, s, d, p = _settings(op)
    group: int = op.group  # type: ignore[attr-defined]
    chosen = weight[:, :, [tap for tap, _ in phase.taps]]
    grouped = chosen.reshape(group, -1, *chosen.shape[1:]).transpose(0, 3, 1, 2, 4, 5)
    flat = grouped.reshape(-1, weight.shape[1], *k[1:])
    extra = (getattr(op, "output_padding", ()) or (0, 0, 0))[1:]
    y = parts.op_as(op.with_(
        kernel_shape=k[1:], strides=s[1:], dilations=d[1:], pads=(*p[1:3], *p[4:]), output_padding=extra,
    ), (planes, parts.const(flat, "weight"), *parts.node.inputs[2:]), "planes")
    n = parts.shape(parts.input(0))[0]
    return parts.reshape(y, (n, rows, *parts.shape(y)[1:]))


def _stacked(parts: Parts, offsets: Sequence[int], count: int, step: int, group: int) -> str:
    """Plane j of the result reads planes j * step + offset of the input: [batch * count, taps * channels,
    height, width], taps inside of groups."""
    n, channels, depth, height, width = parts.shape(parts.input(0))
    y = parts.transpose(parts.input(0), (0, 2, 1, 3, 4))
    before = max(0, -min(offsets))
    after = max(0, max(offsets) + (count - 1) * step + 1 - depth)
    if before or after:
        pads = (0, before, 0, 0, 0, 0, after, 0, 0, 0)
        y = parts.op("pad", (y,), pads=pads)
    y = parts.reshape(y, (n, depth + before + after, group, channels // group, height, width))
    starts = [offset + before for offset in offsets]
    planes = [parts.slice(y, 1, a, a + (count - 1) * step + 1, step, "plane") for a in starts]
    return parts.reshape(parts.concat(planes, 3), (n * count, len(offsets) * channels, height, width))


def _unstacked(parts: Parts, y: str, count: int) -> str:
    shape = parts.shape(y)
    return parts.transpose(parts.reshape(y, (shape[0] // count, count, *shape[1:])), (0, 2, 1, 3, 4))


def _settings(op: object) -> tuple[tuple[int, ...], ...]:
    """Kernel, strides, dilations and pads, defaults filled in."""
    kernel: tuple[int, ...] = op.kernel_shape  # type: ignore[attr-defined]
    rank = len(kernel)
    given = ((getattr(op, name) or (fill,) * (rank * twice)) for name, fill, twice in
             (("strides", 1, 1), ("dilations", 1, 1), ("pads", 0, 2)))
    return kernel, *given
