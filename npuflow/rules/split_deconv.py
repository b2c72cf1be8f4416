"""A transposed convolution with strides as plain ones: results at one place between
the inputs, then interleaved."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from math import prod

import numpy as np

from npuflow.ir.graph import Graph
from npuflow.ir.op import OPS, Node
from npuflow.rules import RULES, Change, Hardware, Refusal
from npuflow.rules._parts import Decomposition, Parts
from npuflow.rules._phases import SubPixelPhase, phases

_MOVED = 3                                # bytes that interleaving moves for each code of the result


@dataclass(frozen=True)
class Band:
    """Neighbouring phases of one axis that read the same window of the input."""

    first: int                            # the place of the first one
    phases: tuple[SubPixelPhase, ...]

    @property
    def size(self) -> int:
        low, high = self.phases[0].window
        return high - low + 1


@RULES.entry
class SplitDeconv(Decomposition):
    """Each multiplies by some taps of the kernel instead of by all of them and zeros between the inputs:
    strides as many times fewer products, for one more copy of the result. Phases that read the same inputs
    are channels of one convolution. Small arrays may take less time for the zeros than the copy does: the
    target decides."""

    order = 87
    asks = True
    triggers = ("convtranspose",)
    makes = ("conv", "pad", "slice", "reshape", "transpose", "concat")

    def rewrite(self, graph: Graph, node: Node) -> Change | Refusal | None:
        op = node.op
        assert isinstance(op, OPS["convtranspose"])
        ready = len(op.kernel_shape) <= 2 and prod(op.strides) > 1 and graph.const(node.inputs[1]) is not None
        return super().rewrite(graph, node) if ready else None

    def spelled(self, parts: Parts) -> tuple[str, ...] | str:
        op, weight = parts.node.op, parts.number(1)
        assert isinstance(op, OPS["convtranspose"]) and weight is not None
        rank = len(op.kernel_shape)
        out = parts.shape(parts.node.outputs[0])
        settings = zip(op.kernel_shape, op.strides, op.dilations, op.pads, strict=False)
        axes = [phases(k, s, d, p) for k, s, d, p in settings]
        if any(not phase.taps for axis in axes for phase in axis):
            return "places without a tap"
        bands = [_bands(axis) for axis in axes]
        counts = [-(-size // s) for size, s in zip(out[2:], op.strides, strict=True)]
        if op.group != 1 or not _worth(parts, bands, counts, self.hardware):
            return "a copy of the result costs more than the products that it saves"
        if rank == 1:
            rows = [_band(parts, weight, (band,), counts) for band in bands[0]]
            whole = parts.concat(rows, 1)
        else:
            whole = parts.concat([
                parts.concat([_band(parts, weight, (a, b), counts) for b in bands[1]], 2) for a in bands[0]
            ], 1)
        return (_interleaved(parts, whole, counts, op.strides, out),)


def _worth(parts: Parts, bands: list[list[Band]], counts: list[int], hardware: Hardware) -> bool:
    """Whether the array passes that go are worth the copy and a command for each convolution. On transposed
    convolutions of 13 sizes on the shipped targets the choice is the slower one in few cases."""
    op = parts.node.op
    assert isinstance(op, OPS["convtranspose"])
    inputs, result = parts.shape(parts.input(0))[1], parts.shape(parts.node.outputs[0])
    whole = hardware.passes(prod(op.kernel_shape), inputs, result[1], result[0] * prod(result[2:]))
    phased = [
        hardware.passes(
            prod(b.size for b in each), inputs, result[1] * prod(len(b.phases) for b in each),
            result[0] * prod(counts),
        )
        for each in product(*bands)
    ]
    return whole - sum(phased) > hardware.moved(_MOVED * prod(result)) + len(phased) * hardware.front


def _bands(axis: tuple[SubPixelPhase, ...]) -> list[Band]:
    found: list[Band] = []
    for r, phase in enumerate(axis):
        if found and found[-1].phases[0].window == phase.window:
            found[-1] = Band(found[-1].first, (*found[-1].phases, phase))
        else:
            found.append(Band(r, (phase,)))
    return found


def _band(parts: Parts, weight: np.ndarray, bands: tuple[Band, ...], counts: list[int]) -> str:
    """[batch, phases, ..., channels, rows, ...] of phases that one convolution makes."""
    op, x = parts.node.op, parts.input(0)
    rank, channels = len(bands), weight.shape[1]
    shape = tuple(len(b.phases) for b in bands)
    kernel = np.zeros((*shape, channels, weight.shape[0], *(b.size for b in bands)), np.float32)
    for at in np.ndindex(*shape):
        taps = [b.phases[i] for b, i in zip(bands, at, strict=True)]
        for places in np.ndindex(*(len(t.taps) for t in taps)):
            chosen = [t.taps[i] for t, i in zip(taps, places, strict=True)]
            index = tuple(offset - t.window[0] for (_, offset), t in zip(chosen, taps, strict=True))
            kernel[(*at, slice(None), slice(None), *index)] = weight[
                (slice(None), slice(None), *(k for k, _ in chosen))
            ].T
    before, after = [], []
    for axis, (band, count) in enumerate(zip(bands, counts, strict=True)):
        low, high = band.phases[0].window
        size = parts.shape(x)[2 + axis]
        x = parts.slice(x, 2 + axis, max(low, 0), min(size, count + high))
        before.append(max(-low, 0))
        after.append(max(count + high - size, 0))
    more: tuple[str, ...] = ()
    if parts.input(2):
        bias = parts.number(2)
        assert bias is not None
        more = (parts.const(np.tile(bias, prod(shape)), "bias"),)
    ones = (1,) * rank
    y = parts.op(
        "conv",
        (x, parts.const(kernel.reshape(-1, weight.shape[0], *kernel.shape[-rank:]), "weight"), *more),
        "phase",
        kernel_shape=tuple(b.size for b in bands),
        strides=ones,
        dilations=ones,
        pads=(*before, *after),
        group=1,
        clip=None
        if op.clip is None
        else tuple(c * prod(shape) if isinstance(c, tuple) else c for c in op.clip),
    )
    return parts.reshape(y, (parts.shape(x)[0], *shape, channels, *counts))


def _interleaved(
    parts: Parts, whole: str, counts: list[int], strides: tuple[int, ...], out: tuple[int, ...]
) -> str:
    """[batch, phases, ..., channels, rows, ...] in the places of the result, cut to its size."""
    rank = len(counts)
    order = [0, 1 + rank]
    for axis in range(rank):
        order += [2 + rank + axis, 1 + axis]
    full = tuple(c * s for c, s in zip(counts, strides, strict=True))
    y = parts.reshape(parts.transpose(whole, order), (out[0], out[1], *full))
    for axis, size in enumerate(out[2:]):
        y = parts.slice(y, 2 + axis, 0, size)
    return y
