"""Networks for the tests of the executor."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import numpy as np

from npuflow.ir.graph import Graph
from npuflow.ir.op import OPS
from npuflow.ir.types import Array
from tests.networks.small import Builder

Ranges = dict[str, tuple[float, float]]


class Net(Builder):
    """Convolutions of any kind, and samples for the whole."""

    def __init__(self, seed: int = 5) -> None:
        super().__init__()
        self.rng = np.random.default_rng(seed)

    def windowed(
        self,
        x: str,
        out: int,
        kernel: int = 1,
        stride: int = 1,
        pad: int | None = None,
        groups: int = 1,
        dilation: int = 1,
        clip: tuple[float, float] | None = None,
    ) -> str:
        """A convolution over images or sequences, with a bias."""
        shape = self.arrays[x].shape
        rank = len(shape) - 2
        around = kernel // 2 if pad is None else pad
        op = OPS["conv"](
            (kernel,) * rank, (stride,) * rank, (dilation,) * rank, (around,) * (2 * rank), groups, clip=clip
        )
        return self.add(
            op, x, self.const((out, shape[1] // groups, *(kernel,) * rank), 0.3), self.const((out,), 1)
        )

    def done(self, *outputs: str, count: int = 3) -> tuple[Graph, list[Mapping[str, Array]], Ranges]:
        """The graph, some samples, and the ranges that the first has."""
        made = {o for n in self.nodes for o in n.outputs}
        inputs = [v for v in self.values if self.values[v].const is None and v not in made]
        graph = Graph(
            tuple(inputs),
            outputs,
            tuple(self.nodes),
            MappingProxyType(self.values),
            MappingProxyType(self.consts),
        )
        more: list[Mapping[str, Array]] = [
            {v: self.rng.normal(size=self.arrays[v].shape).astype(np.float32) for v in inputs}
            for _ in range(count - 1)
        ]
        ranges = {v: (min(0.0, float(a.min())), max(0.1, float(a.max()))) for v, a in self.arrays.items()}
        return graph, [{v: self.arrays[v] for v in inputs}, *more], ranges


def small() -> tuple[Graph, list[Mapping[str, Array]], Ranges]:
    """A stem, a depthwise block with a residual sum, pooling, a classifier."""
    net = Net()
    x = net.windowed(net.input("x", (1, 3, 12, 12)), 16, 3, 2, clip=(0.0, 6.0))
    y = net.windowed(net.windowed(x, 16, 3, groups=16, clip=(0.0, 6.0)), 16)
    z = net.add(OPS["maxpool"]((2, 2), (2, 2), (1, 1), (0, 0, 0, 0)), net.add(OPS["add"](), x, y))
    flat = net.add(OPS["reshape"]((1, 16)), net.add(OPS["globalaveragepool"](), z))
    return net.done(net.add(OPS["gemm"](transB=1), flat, net.const((10, 16), 1), net.const((10,), 1)))
