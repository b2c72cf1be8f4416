"""Networks for the tests of the executor."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import numpy as np

from npuflow.engine.interpret import host_session
from npuflow.engine.to_onnx import export_model
from npuflow.ir.graph import Graph, Node, constant
from npuflow.ir.op import OPS, Op
from npuflow.ir.types import Array, TensorType, Value

Ranges = dict[str, tuple[float, float]]


class Net:
    """A float graph, node by node; types come from the operators."""

    def __init__(self, seed: int = 0) -> None:
        self.rng = np.random.default_rng(seed)
        self.values: dict[str, Value] = {}
        self.consts: dict[str, Array] = {}
        self.nodes: list[Node] = []
        self.inputs: list[str] = []

    def input(self, *shape: int) -> str:
        name = f"x{len(self.inputs)}"
        self.inputs.append(name)
        self.values[name] = Value(name, TensorType(shape))
        return name

    def const(self, *shape: int, scale: float = 1.0) -> str:
        name = f"c{len(self.values)}"
        array = (self.rng.normal(size=shape) * scale).astype(np.float32)
        self.values[name], found = constant(name, array)
        self.consts.update(found)
        return name

    def add(self, op: Op, *inputs: str) -> str:
        name = f"v{len(self.nodes)}"
        (kind,) = op.infer(*(self.values[i].type for i in inputs))
        self.values[name] = Value(name, kind)
        self.nodes.append(Node(op, inputs, (name,), (f"node {name}",)))
        return name

    def conv(
        self, x: str, out: int, kernel: int = 1, stride: int = 1, pad: int | None = None, groups: int = 1,
        dilation: int = 1, clip: tuple[float, float] | None = None,
    ) -> str:
        """A convolution over images or sequences, with a bias."""
        shape = self.values[x].type.shape
        rank = len(shape) - 2
        around = kernel // 2 if pad is None else pad
        op = OPS["conv"](
            (kernel,) * rank, (stride,) * rank, (dilation,) * rank, (around,) * (2 * rank), groups, clip=clip
        )
        w = self.const(out, shape[1] // groups, *(kernel,) * rank, scale=0.3)
        return self.add(op, x, w, self.const(out))

    def done(self, *outputs: str, count: int = 3) -> tuple[Graph, list[Mapping[str, Array]], Ranges]:
        """The graph, some samples, and the ranges that they have."""
        graph = Graph(
            tuple(self.inputs), outputs, tuple(self.nodes), MappingProxyType(self.values),
            MappingProxyType(self.consts),
        )
        feeds: list[Mapping[str, Array]] = [
            {v: self.rng.normal(size=self.values[v].type.shape).astype(np.float32) for v in self.inputs}
            for _ in range(count)
        ]
        names = [o for n in self.nodes for o in n.outputs]
        session = host_session(export_model(graph, names))
        ranges: Ranges = {}
        for feed in feeds[:1]:
            seen = {**feed, **dict(zip(names, session.run(names, dict(feed)), strict=True))}
            ranges = {v: (min(0.0, float(a.min())), max(0.1, float(a.max()))) for v, a in seen.items()}
        return graph, feeds, ranges


def small() -> tuple[Graph, list[Mapping[str, Array]], Ranges]:
    """A stem, a depthwise block with a residual sum, pooling, a classifier."""
    net = Net()
    x = net.conv(net.input(1, 3, 12, 12), 16, 3, 2, clip=(0.0, 6.0))
    y = net.conv(net.conv(x, 16, 3, groups=16, clip=(0.0, 6.0)), 16)
    z = net.add(OPS["maxpool"]((2, 2), (2, 2), (1, 1), (0, 0, 0, 0)), net.add(OPS["add"](), x, y))
    flat = net.add(OPS["reshape"]((1, 16)), net.add(OPS["globalaveragepool"](), z))
    return net.done(net.add(OPS["gemm"](transB=1), flat, net.const(10, 16), net.const(10)))
