"""Convolutional networks drawn at random: chains, residuals, branches, strides,
padding, several outputs, batches."""

from __future__ import annotations

import random
from types import MappingProxyType

import numpy as np

from npuflow.hw.target import Compute, Dma, Memory, Numerics, Target
from npuflow.ir.graph import Graph
from npuflow.ir.op import OPS
from npuflow.quantise.config import Activations, Quantize, Weights
from npuflow.testing.quantised import quantize_graph
from tests.networks.small import Builder


def network(
    rng: random.Random, numerics: Numerics, depth: int = 7, weight_bits: int = 8, batch: int = 0
) -> tuple[Graph, dict[str, np.ndarray]]:
    """A quantised network and its input. `batch`: its samples; 0: one or two."""
    b = Builder()
    b.rng = np.random.default_rng(rng.randrange(1 << 30))
    samples = batch or rng.choice((1, 1, 1, 2))
    x = b.input("x", (samples, rng.randint(1, 6), rng.randint(5, 24), rng.randint(4, 14)))
    open_ = [x]
    for _ in range(depth):
        x = open_[-1] if rng.random() < 0.8 else rng.choice(open_)
        y = _layer(b, rng, x, open_)
        if y is not None:
            open_.append(y)
    read = {i for n in b.nodes for i in n.inputs}
    outputs = tuple(o for n in b.nodes for o in n.outputs if o not in read or rng.random() < 0.12)
    if not b.nodes:
        return network(rng, numerics, depth, weight_bits, batch)
    graph = Graph(("x",), outputs, tuple(b.nodes), MappingProxyType(b.values), MappingProxyType(b.consts))
    ranges = {k: (float(a.min()), float(a.max())) for k, a in b.arrays.items()}
    config = Quantize(
        weights=Weights(weight_bits, "channel" if numerics.per_channel_weights else "tensor"),
        activations=Activations(symmetric=not numerics.activation_zero_point, bits=rng.choice((8, 8, 8, 16))),
    )
    return quantize_graph(graph, lambda _: True, ranges, config, numerics).graph, {"x": b.arrays["x"]}


def _layer(b: Builder, rng: random.Random, x: str, open_: list[str]) -> str | None:
    n, c, h, w = b.arrays[x].shape
    kind = rng.choice((*("conv",) * 4, *("depthwise", "add") * 2, "pool", "table", "grouped", "resize"))
    if kind == "add":
        same = [v for v in open_ if b.arrays[v].shape == (n, c, h, w) and v != x]
        return b.add(OPS["add"](), x, rng.choice(same)) if same else None
    if kind == "table":
        return b.add(OPS[rng.choice(("sigmoid", "tanh", "relu"))](), x)
    if kind == "resize":
        if h * w > 150:
            return None
        return b.add(
            OPS["resize"]((n, c, 2 * h, 2 * w), (1.0, 1.0, 2.0, 2.0), rng.choice(("nearest", "linear"))), x
        )
    kernel = (rng.choice((1, 2, 3, 3, 5)), rng.choice((1, 3, 3)))
    stride, dilation = (rng.choice((1, 1, 2)), rng.choice((1, 1, 2))), (rng.choice((1, 1, 1, 2)), 1)
    pads = tuple(rng.randint(0, k // 2 * d) for k, d in zip(kernel * 2, dilation * 2, strict=True))
    reach = [(k - 1) * d + 1 - p - q for k, d, p, q in zip(kernel, dilation, pads[:2], pads[2:], strict=True)]
    if reach[0] > h or reach[1] > w:
        return None
    if kind == "pool":
        inner = tuple(min(p, k // 2) for p, k in zip(pads, kernel * 2, strict=True))
        return b.add(OPS["maxpool"](kernel, stride, (1, 1), inner), x)
    groups = (
        c
        if kind == "depthwise"
        else rng.choice([g for g in range(1, c + 1) if c % g == 0])
        if kind == "grouped"
        else 1
    )
    out = c * rng.choice((1, 1, 2)) if kind == "depthwise" else groups * rng.randint(1, max(1, 8 // groups))
    weight = b.const((out, c // groups, *kernel), 1 / (kernel[0] * kernel[1] * c // groups) ** 0.5)
    clip = rng.choice((None, (0.0, 2.0), (0.0, float("inf"))))
    return b.add(
        OPS["conv"](kernel, stride, dilation, pads, groups, clip=clip), x, weight, b.const((out,), 0.1)
    )


def target(rng: random.Random) -> Target:
    """A small machine with one to three cores."""
    pick, shares = rng.choice, random.Random(rng.getstate()[1][0]).random() < 0.7
    return Target(
        compute=Compute(
            cores=pick((1, 1, 2, 3)),
            array_rows=pick((2, 4, 8)),
            array_cols=pick((2, 4, 8)),
            depthwise_macs=pick((2, 9)),
            dataflow=pick(("weight_stationary", "output_stationary")),
            fill_cycles=4,
            command_cycles=2,
            vector_lanes=pick((4, 4, 32)),
        ),
        numerics=Numerics(acc_bits=pick((32, 32, 40))),
        memory=Memory(
            local_bytes=pick((4096, 8192, 8192, 16384, 1 << 16)),
            local_align=pick((4, 16)),
            burst=pick((1, 16)),
            external_bandwidth=pick((1.0, 4.0)),
            external_bytes=1 << 24,
        ),
        dma=Dma(channels=pick((1, 2)), setup_cycles=8, multicast=shares),
    )
