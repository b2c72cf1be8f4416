"""Networks by their shapes alone: ResNet-50 and MobileNetV2 at 1 x 3 x 224 x 224, and
single layers, with random weights.

No data goes through them: ranges are made up, so that cycles, bytes and memory can be had in seconds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

import numpy as np

from npuflow.hw.target import Numerics, Target
from npuflow.ir.graph import Graph, constant
from npuflow.ir.op import OPS, Node, Op
from npuflow.ir.types import TensorType, Value
from npuflow.program.codegen.generate import generate
from npuflow.quantise.config import Activations, Quantize, Weights
from npuflow.report.profile import Profile, profile
from npuflow.schedule.machine import Machine
from npuflow.search.plan import TilingPlan, plan_network
from npuflow.testing.quantised import quantize_graph

RELU, RELU6, LINEAR = (0.0, float("inf")), (0.0, 6.0), None
Clip = tuple[float, float] | None


class Shapes:
    """A float graph, node by node; types come from the operators."""

    def __init__(self) -> None:
        self.rng = np.random.default_rng(1)
        self.values: dict[str, Value] = {}
        self.consts: dict[str, np.ndarray] = {}
        self.ranges: dict[str, tuple[float, float]] = {}
        self.nodes: list[Node] = []

    def input(self, name: str, shape: tuple[int, ...]) -> str:
        self.values[name], self.ranges[name] = Value(name, TensorType(shape)), (-1.0, 1.0)
        return name

    def const(self, name: str, shape: tuple[int, ...], scale: float) -> str:
        self.values[name], found = constant(name, (self.rng.normal(size=shape) * scale).astype(np.float32))
        self.consts.update(found)
        return name

    def add(self, name: str, op: Op, *inputs: str) -> str:
        (kind,) = op.infer(*(self.values[i].type for i in inputs))
        self.values[name] = Value(name, kind)
        self.ranges[name] = (0.0, 1.0) if op.clip else (-1.0, 1.0)
        self.nodes.append(Node(op, inputs, (name,), (name,)))
        return name

    def conv(
        self,
        name: str,
        x: str,
        out: int,
        kernel: int,
        stride: int = 1,
        clip: Clip = LINEAR,
        depthwise: bool = False,
    ) -> str:
        channels = self.values[x].type.shape[1]
        w = self.const(f"{name}.w", (out, 1 if depthwise else channels, kernel, kernel), 0.1)
        pads = (kernel // 2,) * 4
        op = OPS["conv"](
            (kernel, kernel), (stride, stride), (1, 1), pads, channels if depthwise else 1, clip=clip
        )
        return self.add(name, op, x, w, self.const(f"{name}.b", (out,), 0.1))

    def classifier(self, x: str, classes: int) -> str:
        mean = self.add("mean", OPS["globalaveragepool"](), x)
        channels = self.values[x].type.shape[1]
        flat = self.add("flat", OPS["reshape"]((1, channels)), mean)
        weights = self.const("fc.w", (classes, channels), 0.03), self.const("fc.b", (classes,), 0.1)
        return self.add("fc", OPS["gemm"](transB=1), flat, *weights)

    def graph(self, output: str) -> Graph:
        inputs = tuple(v for v in self.values if self.values[v].const is None)[:1]
        return Graph(
            inputs, (output,), tuple(self.nodes), MappingProxyType(self.values), MappingProxyType(self.consts)
        )


def resnet50() -> tuple[Graph, dict[str, tuple[float, float]]]:
    b = Shapes()
    x = b.conv("stem", b.input("image", (1, 3, 224, 224)), 64, 7, 2, RELU)
    x = b.add("pool", OPS["maxpool"]((3, 3), (2, 2), (1, 1), (1, 1, 1, 1)), x)
    for stage, (width, blocks, first) in enumerate(((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)), 2):
        for block in range(blocks):
            stride, name = first if block == 0 else 1, f"s{stage}b{block}"
            side = b.conv(f"{name}.side", x, 4 * width, 1, stride) if block == 0 else x
            y = b.conv(f"{name}.a", x, width, 1, 1, RELU)
            y = b.conv(f"{name}.b", y, width, 3, stride, RELU)
            y = b.conv(f"{name}.c", y, 4 * width, 1)
            x = b.add(f"{name}.add", OPS["add"](clip=RELU), y, side)
    return b.graph(b.classifier(x, 1000)), b.ranges


def mobilenet_v2() -> tuple[Graph, dict[str, tuple[float, float]]]:
    b = Shapes()
    x = b.conv("stem", b.input("image", (1, 3, 224, 224)), 32, 3, 2, RELU6)
    channels, n = 32, 0
    for grow, out, blocks, first in (
        (1, 16, 1, 1),
        (6, 24, 2, 2),
        (6, 32, 3, 2),
        (6, 64, 4, 2),
        (6, 96, 3, 1),
        (6, 160, 3, 2),
        (6, 320, 1, 1),
    ):
        for block in range(blocks):
            stride, before = first if block == 0 else 1, x
            y = b.conv(f"b{n}.expand", x, channels * grow, 1, 1, RELU6) if grow > 1 else x
            y = b.conv(f"b{n}.dw", y, channels * grow, 3, stride, RELU6, depthwise=True)
            x = b.conv(f"b{n}.project", y, out, 1)
            if stride == 1 and channels == out:
                x = b.add(f"b{n}.add", OPS["add"](), x, before)
            channels, n = out, n + 1
    return b.graph(b.classifier(b.conv("head", x, 1280, 1, 1, RELU6), 1000)), b.ranges


NETWORKS = {"resnet50": resnet50, "mobilenet_v2": mobilenet_v2}


def quantised(
    graph: Graph,
    ranges: dict[str, tuple[float, float]],
    numerics: Numerics,
    on_npu: Callable[[int], bool] = lambda _: True,
) -> Graph:
    config = Quantize(
        weights=Weights(per="channel" if numerics.per_channel_weights else "tensor"),
        activations=Activations(symmetric=not numerics.activation_zero_point),
    )
    return quantize_graph(graph, on_npu, ranges, config, numerics).graph


def of_file(
    path: str, shapes: Mapping[str, tuple[int, ...]] = MappingProxyType({})
) -> tuple[Graph, dict[str, tuple[float, float]]]:
    """The graph of a model's file as the rules leave it, one sample at a time, with made-up ranges. `shapes`:
    of inputs with free dimensions; of the others these are 1."""
    from pathlib import Path

    from npuflow.frontends.onnx import Onnx
    from npuflow.stages.model import ModelTable
    from npuflow.stages.parse import parsed

    bound = free_inputs(path) | dict(shapes)
    graph = parsed(Path(path).read_bytes(), Onnx(), ModelTable(Path(path), inputs=bound)).graph
    return graph, dict.fromkeys(graph.values, (-1.0, 1.0))


def free_inputs(path: str) -> dict[str, tuple[int, ...]]:
    """Inputs with free dimensions, these at 1."""
    import onnx

    model, found = onnx.load(path, load_external_data=False), {}
    held = {i.name for i in model.graph.initializer}
    for one in model.graph.input:
        sizes = [d.dim_value for d in one.type.tensor_type.shape.dim]
        if one.name not in held and any(size <= 0 for size in sizes):
            found[one.name] = tuple(max(size, 1) for size in sizes)
    return found


def planned(graph: Graph, target: Target, level: int = 3) -> TilingPlan:
    return plan_network(graph, Machine(target.compute, target.memory, target.dma), target.numerics, level)


def measured(graph: Graph, target: Target, level: int = 3) -> Profile:
    return profile(generate(graph, planned(graph, target, level), target))


def target_named(name: str) -> Target:
    from pathlib import Path

    from npuflow.base.tables import parse, read

    path = Path(__file__).resolve().parent.parent / "npuflow" / "targets" / f"{name}.toml"
    tables, at = parse(path.read_text(), str(path), path.parent)
    target, faults = read(Target, tables, at)
    if target is None:
        raise SystemExit("\n".join(map(str, faults)))
    return target


def for_target(graph: Graph, target: Target) -> Graph:
    """A graph that the rules have rewritten, after those that ask what the target has."""
    from npuflow.rewrite.rewrite import rewrite
    from npuflow.rules import Hardware

    return rewrite(graph, hardware=Hardware.of(target.compute, target.memory, target.dma)).graph
