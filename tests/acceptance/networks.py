"""A small network as a user has it: a model, calibration data and a recipe."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

RECIPE = """target = "edge-4t"

[model]
path = "net.onnx"

[data]
source = "calibration.npz"
"""


def small_network(folder: Path) -> Path:
    """The recipe of x [1, 3, 8, 8] -> convolution, relu, product -> y [1, 5], with 16 samples."""
    rng = np.random.default_rng(0)
    weights = {"w": (4, 3, 3, 3), "g": (5, 144)}
    stored = [numpy_helper.from_array(rng.normal(0, 0.2, s).astype("f"), n) for n, s in weights.items()]
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["a"], name="first"),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("Flatten", ["b"], ["c"]),
        helper.make_node("Gemm", ["c", "g"], ["y"], name="last", transB=1),
    ]
    ends = [
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, s)]
        for n, s in (("x", [1, 3, 8, 8]), ("y", [1, 5]))
    ]
    graph = helper.make_graph(nodes, "net", *ends, stored)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    onnx.save(model, folder / "net.onnx")
    np.savez(folder / "calibration.npz", x=samples(16))
    (folder / "net.toml").write_text(RECIPE)
    return folder / "net.toml"


def samples(count: int) -> np.ndarray:
    """Inputs of the network; some are equal to those of another call."""
    return np.random.default_rng(1).normal(size=(count, 3, 8, 8)).astype(np.float32)
