"""Codes that a file puts into others: TFLite's QUANTIZE of codes, as converters write it before a Concat."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("tflite", reason="npuflow[tflite] is not installed")
pytest.importorskip("ai_edge_litert", reason="the reference kernels (ai-edge-litert) are not installed")

import npuflow
from npuflow import build
from npuflow.stages.quantize import Quantized
from tests.frontends.building import Built
from tests.frontends.tflite_models import Net, reference

SIDE, SCALE, ZERO = 8, 0.05, 3
IMAGE = {
    "strideH": 1, "strideW": 1, "padding": 0, "fusedActivationFunction": 0, "dilationWFactor": 1,
    "dilationHFactor": 1,
}


def network(rng: np.random.Generator) -> bytes:
    """A convolution whose codes get two other scales: in front of another one, and in front of a Concat."""
    net = Net()
    for name, channels, scale, zero in (
        ("x", 8, SCALE, ZERO), ("a", 16, 0.2, -20), ("b", 16, 0.11, -60), ("c", 16, 0.3, 0),
        ("d", 16, 0.3, 0), ("y", 32, 0.3, 0),
    ):
        net.tensor(name, (1, SIDE, SIDE, channels), "int8", ([scale], [zero], 0))
    for source, made, scale in (("x", "a", SCALE), ("b", "c", 0.11)):
        weights = rng.normal(0, 0.2, (16, 3, 3, 8 if source == "x" else 16)).astype(np.float32)
        steps = (np.abs(weights).max((1, 2, 3)) / 127).astype(np.float32)
        codes = np.rint(weights / steps[:, None, None, None]).astype(np.int8)
        net.constant(f"{made}.w", codes, (steps.tolist(), [0] * 16, 0))
        net.constant(f"{made}.b", np.zeros(16, np.int32), ((steps * scale).tolist(), [0] * 16, 0))
    net.op("CONV_2D", ["x", "a.w", "a.b"], ["a"], "Conv2DOptions", version=3, **IMAGE)
    net.op("QUANTIZE", ["a"], ["b"], "QuantizeOptions", version=2)
    net.op("CONV_2D", ["b", "c.w", "c.b"], ["c"], "Conv2DOptions", version=3, **IMAGE)
    net.op("QUANTIZE", ["a"], ["d"], "QuantizeOptions", version=2)
    net.op("CONCATENATION", ["c", "d"], ["y"], "ConcatenationOptions", axis=3, fusedActivationFunction=0)
    return net.done(["x"], ["y"])


def test_the_host_has_no_part_of_it(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    data, codes = network(rng), rng.integers(-128, 128, (12, 1, SIDE, SIDE, 8)).astype(np.int8)
    floats = (codes.astype(np.float32) - ZERO) * np.float32(SCALE)
    np.savez(tmp_path / "data.npz", x=floats[:, 0])
    (tmp_path / "net.tflite").write_bytes(data)
    (tmp_path / "net.toml").write_text(
        'target = "edge-4t"\n[model]\npath = "net.tflite"\n[data]\nsource = "data.npz"\n'
    )
    done = build(tmp_path / "net.toml", cache=tmp_path / "cache", out=tmp_path / "out")
    graph = Built(tmp_path, done.outputs).artifact("quantize", Quantized).graph
    assert sum(not node.is_integer for node in graph.nodes) == 2     # into codes, and out of them
    runner = npuflow.Runner(next((tmp_path / "out").rglob("*.npu")))
    for one, fed in zip(codes[:4], floats[:4], strict=True):
        (wanted,), (made,) = reference(data, [one]), runner.run({"x": fed}).values()
        assert np.abs(np.rint(made / 0.3) - wanted).max() <= 1
