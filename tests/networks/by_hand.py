"""Float graphs built by hand, node by node, with the values of one sample: to quantise and to run."""

from __future__ import annotations

from collections.abc import Sequence
from types import MappingProxyType
from typing import Any

import numpy as np

from npuflow.hw.target import Numerics
from npuflow.ir.graph import Graph, constant
from npuflow.ir.op import OPS, Node, Op
from npuflow.ir.types import Array, TensorType, Value
from npuflow.quantise.config import Quantize
from npuflow.quantise.graph import Quantization
from npuflow.run.interpret import interpret
from npuflow.testing.quantised import quantize_graph

PLAIN, USUAL = Quantize(), Numerics()


class Net:
    """Builds small float graphs node by node, and runs them."""

    def __init__(self, *shape: int) -> None:
        self.values: dict[str, Value] = {"x": Value("x", TensorType(shape))}
        self.consts: dict[str, Array] = {}
        self.nodes: list[Node] = []
        self.rng = np.random.default_rng(7)
        self.data: dict[str, Array] = {"x": self.rng.normal(size=shape).astype(np.float32)}

    def const(self, name: str, array: Any) -> str:
        self.values[name], found = constant(name, np.asarray(array, np.float32))
        self.consts.update(found)
        self.data[name] = np.asarray(array, np.float32)
        return name

    def add(self, name: str, op: Op, *inputs: str) -> str:
        (self.data[name],) = op.clipped(*(self.data[i] for i in inputs))
        (kind,) = op.infer(*(self.values[i].type for i in inputs))
        self.values[name] = Value(name, kind)
        self.nodes.append(Node(op, inputs, (name,), (f"/{name}",)))
        return name

    def conv(self, name: str, source: str, channels: int, **more: Any) -> str:
        before = self.values[source].type.shape[1]
        weight = self.const(f"{name}.w", more.pop("weight", self.rng.normal(size=(channels, before, 3, 3))))
        bias = self.const(f"{name}.b", more.pop("bias", self.rng.normal(size=channels)))
        op = OPS["conv"]((3, 3), (1, 1), (1, 1), (1, 1, 1, 1), **more)
        return self.add(name, op, source, weight, bias)

    def graph(self, *outputs: str) -> Graph:
        return Graph(
            ("x",), outputs, tuple(self.nodes), MappingProxyType(self.values), MappingProxyType(self.consts)
        )

    def quantised(
        self,
        outputs: Sequence[str],
        config: Quantize = PLAIN,
        numerics: Numerics = USUAL,
        host: Sequence[str] = (),
    ) -> Quantization:
        graph = self.graph(*outputs)
        ranges = {k: (float(a.min()), float(a.max())) for k, a in self.data.items() if k not in self.consts}
        return quantize_graph(
            graph, lambda i: graph.nodes[i].outputs[0] not in host, ranges, config, numerics
        )

    def run(self, done: Quantization, numerics: Numerics = USUAL, **inputs: Array) -> dict[str, Array]:
        return interpret(done.graph, {"x": self.data["x"], **inputs}, numerics, keep=lambda _: True)


def chain() -> Net:
    net = Net(1, 3, 8, 8)
    net.conv("c1", "x", 4, clip=(0.0, 6.0))
    net.add("p", OPS["maxpool"]((2, 2), (2, 2), (1, 1), (0, 0, 0, 0)), "c1")
    net.conv("c2", "p", 5)
    return net


def sqnr(real: Array, made: Array) -> float:
    noise = float(np.sum((real.astype(float) - made) ** 2))
    return float(10 * np.log10(np.sum(real.astype(float) ** 2) / noise))
