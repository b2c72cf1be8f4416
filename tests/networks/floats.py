"""Small float networks for corrections, grown layer by layer, and plain runs of them: floats
in numpy, integers exactly."""

from __future__ import annotations

from collections.abc import Sequence
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt

from npuflow.hw.target import Numerics
from npuflow.ir.graph import Graph, constant
from npuflow.ir.op import OPS, Node, Op
from npuflow.ir.types import TensorType, Value
from npuflow.quantise.config import Quantize
from npuflow.run.interpret import Interpreter
from npuflow.testing.quantised import quantize_graph

Array = npt.NDArray[Any]
Feed = dict[str, Array]
USUAL = Numerics()


class Net:
    """A float graph with one input "x"."""

    def __init__(self, seed: int, *shape: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.values: dict[str, Value] = {"x": Value("x", TensorType(shape))}
        self.consts: dict[str, Array] = {}
        self.nodes: list[Node] = []

    def const(self, name: str, array: Any) -> str:
        self.values[name], found = constant(name, np.asarray(array, np.float32))
        self.consts.update(found)
        return name

    def add(self, name: str, op: Op, *inputs: str) -> str:
        (kind,) = op.infer(*(self.values[i].type for i in inputs))
        self.values[name] = Value(name, kind)
        self.nodes.append(Node(op, inputs, (name,), (f"/{name}",)))
        return name

    def conv(
        self,
        name: str,
        source: str,
        channels: int,
        kernel: int = 3,
        *,
        bias: bool = True,
        depthwise: bool = False,
        spread: float = 0.0,
        **more: Any,
    ) -> str:
        """`spread`: channels differ in size by factors up to e^spread either way."""
        before = self.values[source].type.shape[1]
        shape = (channels, 1 if depthwise else before, kernel, kernel)
        weight = self.rng.normal(size=shape) / np.sqrt(np.prod(shape[1:]))
        weight *= np.exp(self.rng.uniform(-spread, spread, size=(channels, 1, 1, 1)))
        inputs = [source, self.const(f"{name}.w", weight)]
        if bias:
            inputs.append(self.const(f"{name}.b", self.rng.normal(size=channels)))
        pad = (kernel // 2,) * 4
        op = OPS["conv"]((kernel, kernel), (1, 1), (1, 1), pad, before if depthwise else 1, **more)
        return self.add(name, op, *inputs)

    def gemm(self, name: str, source: str, columns: int, **more: Any) -> str:
        rows = self.values[source].type.shape[1]
        weight = self.const(f"{name}.w", self.rng.normal(size=(rows, columns)) / np.sqrt(rows))
        bias = self.const(f"{name}.b", self.rng.normal(size=columns))
        return self.add(name, OPS["gemm"](**more), source, weight, bias)

    def graph(self, *outputs: str) -> Graph:
        return Graph(
            ("x",), outputs, tuple(self.nodes), MappingProxyType(self.values), MappingProxyType(self.consts)
        )

    def feeds(self, count: int, mean: float = 0.0) -> list[Feed]:
        shape = self.values["x"].type.shape
        return [{"x": self.rng.normal(mean, 1.0, size=shape).astype(np.float32)} for _ in range(count)]


def floats(graph: Graph, feed: Feed) -> Feed:
    """Every value of the float graph, by the operators' own numpy semantics."""
    found: Feed = dict(feed)
    for node in graph.nodes:
        given = [found[i] if i in found else graph.const(i) for i in node.inputs]
        found.update(zip(node.outputs, node.op.clipped(*given), strict=True))
    return found


def integers(graph: Graph, feed: Feed, numerics: Numerics = USUAL) -> Feed:
    """Every value of a quantised graph, by the integer specification; integers as
    the numbers they stand for."""
    found = Interpreter(graph, numerics).run(feed, keep=lambda _: True)
    for name, array in found.items():
        quant = graph.values[name].quant
        if quant is not None and quant.axis is None:
            found[name] = quant.scale[0] * (array.astype(np.float64) - quant.zero_point[0])
    return found


def quantised(
    graph: Graph,
    feeds: Sequence[Feed],
    config: Quantize | None = None,
    numerics: Numerics = USUAL,
    room: float = 1.0,
    host: Sequence[str] = (),
) -> Graph:
    """By the extrema over the feeds, times `room`; nodes that make values of `host` stay in float."""
    ranges: dict[str, tuple[float, float]] = {}
    for feed in feeds:
        for name, array in floats(graph, feed).items():
            lo, hi = ranges.get(name, (0.0, 0.0))
            ranges[name] = min(lo, float(array.min())), max(hi, float(array.max()))
    ranges = {name: (room * lo, room * hi) for name, (lo, hi) in ranges.items()}
    return quantize_graph(
        graph, lambda i: graph.nodes[i].outputs[0] not in host, ranges, config or Quantize(), numerics
    ).graph


def channel_means(arrays: Sequence[Array]) -> Array:
    """Mean of each channel (second dimension) over all arrays."""
    return np.mean(
        [a.astype(np.float64).mean(tuple(d for d in range(a.ndim) if d != 1)) for a in arrays], axis=0
    )
