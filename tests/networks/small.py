"""A small network with every kind of group: convolutions, depthwise, tables, movers,
branches, a classifier."""

from __future__ import annotations

from types import MappingProxyType

import numpy as np

from npuflow.hw.target import Numerics
from npuflow.ir.graph import Graph, constant
from npuflow.ir.op import OPS, Node, Op
from npuflow.ir.types import TensorType, Value
from npuflow.quantise.config import Activations, Quantize, Weights
from npuflow.testing.quantised import quantize_graph


class Builder:
    """Float graphs, node by node, with the values that the float reference computes."""

    def __init__(self) -> None:
        self.rng = np.random.default_rng(5)
        self.values: dict[str, Value] = {}
        self.consts: dict = {}
        self.arrays: dict[str, np.ndarray] = {}
        self.nodes: list[Node] = []

    def input(self, name: str, shape: tuple[int, ...]) -> str:
        self.arrays[name] = self.rng.normal(size=shape).astype(np.float32)
        self.values[name] = Value(name, TensorType(shape))
        return name

    def const(self, shape: tuple[int, ...], scale: float) -> str:
        name = f"c{len(self.values)}"
        self.arrays[name] = (self.rng.normal(size=shape) * scale).astype(np.float32)
        self.values[name], found = constant(name, self.arrays[name])
        self.consts.update(found)
        return name

    def add(self, op: Op, *inputs: str) -> str:
        results = op.clipped(*[self.arrays[i] for i in inputs])
        names = tuple(f"v{len(self.nodes)}_{k}" for k in range(len(results)))
        for name, array in zip(names, results, strict=True):
            self.arrays[name] = array
            self.values[name] = Value(name, TensorType(array.shape))
        self.nodes.append(Node(op, inputs, names, (f"{op.onnx}_{len(self.nodes)}",)))
        return names[0]

    def conv(
        self,
        x: str,
        out: int,
        kernel: int,
        stride: int = 1,
        depthwise: bool = False,
        clip: tuple[float, float] | None = None,
    ) -> str:
        channels = self.arrays[x].shape[1]
        w = self.const(
            (out, 1 if depthwise else channels, kernel, kernel),
            1 / kernel / (1 if depthwise else channels**0.5),
        )
        pad = kernel // 2
        op = OPS["conv"](
            (kernel, kernel), (stride, stride), (1, 1), (pad,) * 4, channels if depthwise else 1, clip=clip
        )
        return self.add(op, x, w, self.const((out,), 0.1))


def mixed(numerics: Numerics) -> tuple[Graph, dict[str, np.ndarray]]:
    b = Builder()
    x = b.input("x", (1, 3, 17, 15))
    stem = b.conv(x, 8, 3, 2, clip=(0.0, 6.0))
    deep = b.conv(stem, 8, 3, depthwise=True)
    wide = b.conv(b.add(OPS["sigmoid"](), deep), 8, 1)
    both = b.add(OPS["add"](), stem, wide)
    pooled = b.add(OPS["maxpool"]((3, 3), (1, 1), (1, 1), (1, 1, 1, 1)), both)
    joined = b.add(OPS["concat"](1), both, pooled)
    turned = b.add(OPS["transpose"]((0, 1, 3, 2)), joined)
    far = b.conv(turned, 12, 3)
    mean = b.add(OPS["globalaveragepool"](), far)
    flat = b.add(OPS["reshape"]((1, 12)), mean)
    y = b.add(OPS["gemm"](transB=1), flat, b.const((5, 12), 0.3), b.const((5,), 0.1))
    graph = Graph(("x",), (y, joined), tuple(b.nodes), MappingProxyType(b.values), MappingProxyType(b.consts))
    ranges = {k: (float(a.min()), float(a.max())) for k, a in b.arrays.items()}
    config = Quantize(
        weights=Weights(per="channel" if numerics.per_channel_weights else "tensor"),
        activations=Activations(symmetric=not numerics.activation_zero_point),
        on_refusal="error" if numerics.multiplier_bits > 1 else "host",
    )
    config = config if numerics.integers else Quantize(mode="fp16")
    done = quantize_graph(graph, lambda _: True, ranges, config, numerics)
    return done.graph, {"x": b.arrays["x"]}
