"""Makes an encoder and a decoder that read digits, one of a line at a time, with data.

    python examples/components/make.py [FOLDER]

It takes a second and downloads nothing. The encoder turns a picture of three digits into three vectors. The
decoder takes them with a position, and says which digit stands there. Its weights are fitted by least squares
to what the encoder makes.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

DIGITS, SLOTS, SIZE, WIDTH = 10, 3, 8, 24
STROKES = (0x77, 0x24, 0x5D, 0x6D, 0x2E, 0x6B, 0x7B, 0x25, 0x7F, 0x6F)       # of each digit, a bit each


def glyph(digit: int) -> np.ndarray:
    """A digit of seven strokes on 8 x 8 pixels."""
    picture = np.zeros((SIZE, SIZE), np.float32)
    strokes = [
        (slice(0, 1), slice(1, 6)), (slice(0, 4), slice(1, 2)), (slice(0, 4), slice(5, 6)),
        (slice(3, 4), slice(1, 6)), (slice(3, 7), slice(1, 2)), (slice(3, 7), slice(5, 6)),
        (slice(6, 7), slice(1, 6)),
    ]
    for bit, stroke in enumerate(strokes):
        if STROKES[digit] >> bit & 1:
            picture[stroke] = 1
    return picture


def lines(count: int, seed: int) -> dict[str, np.ndarray]:
    """Pictures of three digits with noise, a position, and the digit there."""
    rng = np.random.default_rng(seed)
    digits = rng.integers(0, DIGITS, (count, SLOTS))
    clean = np.stack([np.concatenate([glyph(d) for d in row], 1) for row in digits])
    image = clean * rng.uniform(.6, 1, (count, 1, 1)) + rng.normal(0, .12, clean.shape)
    place = rng.integers(0, SLOTS, count)
    return {
        "image": image[:, None].astype(np.float32),
        "position": np.eye(SLOTS, dtype=np.float32)[place],
        "label": digits[np.arange(count), place],
    }


def model(nodes: list[onnx.NodeProto], ends: tuple[dict[str, list[int]], dict[str, list[int]]],
          weights: dict[str, np.ndarray]) -> onnx.ModelProto:
    """A float model of these inputs and outputs."""
    infos = [
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in end.items()]
        for end in ends
    ]
    graph = helper.make_graph(
        nodes, "part", *infos, [numpy_helper.from_array(a.astype(np.float32), n) for n, a in weights.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def encoder(width: int = 96) -> onnx.ModelProto:
    """A picture -> three vectors: a convolution, then all of a digit's pixels at once."""
    rng = np.random.default_rng(1)
    weights = {
        "w1": rng.normal(0, .35, (16, 1, 3, 3)), "b1": rng.normal(0, .1, 16),
        "w2": rng.normal(0, .09, (width, 16, SIZE, SIZE)), "b2": rng.normal(0, .1, width),
        "shape": np.array([1, width, SLOTS]),
    }
    nodes = [
        helper.make_node("Conv", ["image", "w1", "b1"], ["c1"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c1"], ["r1"]),
        helper.make_node("Conv", ["r1", "w2", "b2"], ["c2"], strides=[SIZE, SIZE]),
        helper.make_node("Relu", ["c2"], ["r2"]),
        helper.make_node("Squeeze", ["r2", "axes"], ["flat"]),
        helper.make_node("Transpose", ["flat"], ["memory"], perm=[0, 2, 1]),
    ]
    made = model(nodes, ({"image": [1, 1, SIZE, WIDTH]}, {"memory": [1, SLOTS, width]}),
                 {n: a for n, a in weights.items() if n != "shape"})
    made.graph.initializer.append(numpy_helper.from_array(np.array([2], np.int64), "axes"))
    return made


def decoder(weight: np.ndarray, bias: np.ndarray) -> onnx.ModelProto:
    """The vector at the position -> how much it looks like each digit."""
    width = len(weight)
    nodes = [
        helper.make_node("Unsqueeze", ["position", "axes"], ["row"]),
        helper.make_node("MatMul", ["row", "states"], ["chosen"]),
        helper.make_node("Squeeze", ["chosen", "axes"], ["vector"]),
        helper.make_node("Gemm", ["vector", "w", "b"], ["logits"]),
    ]
    made = model(
        nodes, ({"states": [1, SLOTS, width], "position": [1, SLOTS]}, {"logits": [1, DIGITS]}),
        {"w": weight, "b": bias},
    )
    made.graph.initializer.append(numpy_helper.from_array(np.array([1], np.int64), "axes"))
    return made


def fitted(first: onnx.ModelProto, data: dict[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Weights and bias that give 1 for the digit and 0 for others, by least squares."""
    session = onnxruntime.InferenceSession(first.SerializeToString(), providers=["CPUExecutionProvider"])
    states = np.concatenate([session.run(None, {"image": one[None]})[0] for one in data["image"]])
    vectors = (data["position"][:, None] @ states)[:, 0]
    whole = np.concatenate([vectors, np.ones((len(vectors), 1))], 1)
    square = whole.T @ whole + 1e-4 * len(whole) * np.eye(whole.shape[1])
    found = np.linalg.solve(square, whole.T @ np.eye(DIGITS)[data["label"]])
    return found[:-1] * 10, found[-1] * 10


def make(folder: Path) -> None:
    """Write both models, and the data."""
    folder.mkdir(parents=True, exist_ok=True)
    first = encoder()
    onnx.save(first, folder / "encoder.onnx")
    onnx.save(decoder(*fitted(first, lines(1200, 0))), folder / "decoder.onnx")
    np.savez(folder / "calib.npz", **{k: a for k, a in lines(64, 2).items() if k != "label"})
    np.savez(folder / "test.npz", **lines(200, 3))


if __name__ == "__main__":
    make(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent)
