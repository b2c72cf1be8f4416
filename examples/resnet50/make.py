"""Write resnet50.onnx, the ResNet-50 v1.5 graph with seeded random weights, beside this script.

    python make.py

It has the shapes and the 4.1 GMAC of the real network, and is for time, memory and tiling, never for
accuracy. Batch norms carry the mean and variance that their inputs really have on a few noise images, so that
activations stay in a sane range from the first layer to the last. Needs numpy, onnx and onnxruntime only.
"""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from onnx import helper, numpy_helper
from onnx.onnx_pb import ModelProto, NodeProto

STAGES = ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2))   # width, blocks, stride of the first
EPSILON = 1e-5


class Network:
    """Nodes and weights in order. While measuring, a batch norm is spelled out so that
    its statistics are outputs."""

    def __init__(self, seed: int, statistics: dict[str, np.ndarray] | None) -> None:
        self.random = np.random.default_rng(seed)
        self.statistics = statistics
        self.nodes: list[NodeProto] = []
        self.weights: dict[str, np.ndarray] = {}

    def node(self, kind: str, inputs: list[str], name: str, **attributes: object) -> str:
        self.nodes.append(helper.make_node(kind, inputs, [name], name, **attributes))
        return name

    def weight(self, name: str, array: np.ndarray) -> str:
        self.weights[name] = np.asarray(array, np.float32)
        return name

    def conv(self, x: str, name: str, shape: tuple[int, int, int], stride: int = 1, gain: float = 1.0) -> str:
        """Convolution and batch norm; `shape` is outputs, inputs, kernel; `gain`
        scales the normalised result."""
        outputs, inputs, kernel = shape
        spread = np.sqrt(2 / (inputs * kernel * kernel))
        weight = self.weight(
            f"{name}.weight", self.random.normal(0, spread, (outputs, inputs, kernel, kernel))
        )
        pads = [kernel // 2] * 4
        x = self.node(
            "Conv", [x, weight], f"{name}.conv", kernel_shape=[kernel] * 2, strides=[stride] * 2, pads=pads
        )
        scale = self.weight(f"{name}.gamma", gain * self.random.uniform(0.7, 1.3, outputs))
        shift = self.weight(f"{name}.beta", gain * self.random.normal(0, 0.2, outputs))
        if self.statistics is not None:
            mean = self.weight(f"{name}.mean", self.statistics[f"{name}.mean"].reshape(-1))
            variance = self.weight(f"{name}.var", self.statistics[f"{name}.var"].reshape(-1))
            return self.node(
                "BatchNormalization", [x, scale, shift, mean, variance], f"{name}.bn", epsilon=EPSILON
            )
        return self.measured_norm(x, name, scale, shift)

    def measured_norm(self, x: str, name: str, scale: str, shift: str) -> str:
        mean = self.node("ReduceMean", [x], f"{name}.mean", axes=[0, 2, 3])
        centred = self.node("Sub", [x, mean], f"{name}.centred")
        square = self.node("Mul", [centred, centred], f"{name}.square")
        variance = self.node("ReduceMean", [square], f"{name}.var", axes=[0, 2, 3])
        deviation = self.node("Sqrt", [variance], f"{name}.std")
        unit = self.node("Div", [centred, deviation], f"{name}.unit")
        for suffix, vector in (("g", scale), ("b", shift)):
            self.weight(f"{name}.{suffix}", self.weights.pop(vector).reshape(-1, 1, 1))
        scaled = self.node("Mul", [unit, f"{name}.g"], f"{name}.scaled")
        return self.node("Add", [scaled, f"{name}.b"], f"{name}.bn")

    def bottleneck(self, x: str, name: str, inputs: int, width: int, stride: int) -> str:
        outputs = 4 * width
        y = self.node("Relu", [self.conv(x, f"{name}.1", (width, inputs, 1))], f"{name}.relu1")
        y = self.node("Relu", [self.conv(y, f"{name}.2", (width, width, 3), stride)], f"{name}.relu2")
        y = self.conv(y, f"{name}.3", (outputs, width, 1), gain=0.5)
        if stride != 1 or inputs != outputs:
            x = self.conv(x, f"{name}.down", (outputs, inputs, 1), stride)
        return self.node("Relu", [self.node("Add", [x, y], f"{name}.add")], f"{name}.relu")

    def build(self, batch: int) -> ModelProto:
        x = self.node("Relu", [self.conv("image", "stem", (64, 3, 7), 2)], "stem.relu")
        x = self.node("MaxPool", [x], "stem.pool", kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)
        inputs = 64
        for index, (width, blocks, stride) in enumerate(STAGES):
            for block in range(blocks):
                x = self.bottleneck(x, f"stage{index}.{block}", inputs, width, stride if block == 0 else 1)
                inputs = 4 * width
        x = self.node("Flatten", [self.node("GlobalAveragePool", [x], "pool")], "flat")
        weight = self.weight("fc.weight", self.random.normal(0, 0.02, (1000, inputs)))
        bias = self.weight("fc.bias", self.random.normal(0, 0.01, 1000))
        self.node("Gemm", [x, weight, bias], "logits", transB=1)
        outputs = ["logits"] if self.statistics is not None else list(self.measured())
        graph = helper.make_graph(
            self.nodes,
            "resnet50",
            [helper.make_tensor_value_info("image", onnx.TensorProto.FLOAT, [batch, 3, 224, 224])],
            [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None) for name in outputs],
            [numpy_helper.from_array(array, name) for name, array in self.weights.items()],
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
        return onnx.shape_inference.infer_shapes(model)

    def measured(self) -> Iterator[str]:
        return (n.output[0] for n in self.nodes if n.op_type == "ReduceMean")


def noise_images(count: int, size: int = 224) -> np.ndarray:
    """Smooth random images (amplitude falling with frequency, as in photographs),
    zero mean and unit variance."""
    random = np.random.default_rng(1)
    frequency = np.hypot(np.fft.fftfreq(size)[:, None], np.fft.rfftfreq(size)[None]) + 1 / size
    spectrum = np.fft.rfft2(random.normal(size=(count, 3, size, size))) / frequency
    images = np.fft.irfft2(spectrum, (size, size))
    images -= images.mean((2, 3), keepdims=True)
    return (images / images.std((2, 3), keepdims=True)).astype(np.float32)


def main() -> None:
    images = noise_images(4)
    session = onnxruntime.InferenceSession(Network(0, None).build(len(images)).SerializeToString())
    names = [output.name for output in session.get_outputs()]
    statistics = dict(zip(names, session.run(names, {"image": images}), strict=True))
    path = Path(__file__).resolve().parent / "resnet50.onnx"
    onnx.save(Network(0, statistics).build(1), path)
    print(path)


if __name__ == "__main__":
    main()
