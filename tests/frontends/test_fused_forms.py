"""onnxruntime's fused operators that the standard ones can say: whole on the NPU, with its results or,
where its CPU has none, with those of their definition."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import onnx
import pytest
from onnx import parser

from npuflow.frontends import FRONTENDS, Bindings
from npuflow.ir.graph import Graph
from npuflow.ir.queries import kind
from npuflow.onnx.export import export_model
from npuflow.onnx.run import run
from npuflow.rewrite.rewrite import rewrite
from tests.networks.onnx_text import normal

WEIGHTS = {
    "b": normal(1, 8),
    "gamma": normal(2, 8) + 1,
    "filter": normal(3, 4, 3, 3, 2),
    "bias": normal(4, 4),
    "words": normal(5, 30, 8),
    "places": normal(6, 6, 8),
    "kinds": normal(7, 2, 8),
    "cos": normal(8, 12, 2),
    "sin": normal(9, 12, 2),
    "five": np.array([5], np.int64),
}
Feeds = Mapping[str, np.ndarray]


def graph(signature: str, body: str) -> tuple[bytes, Graph]:
    inputs, outputs = signature.split("=>")
    text = (
        f'<ir_version: 10, opset_import: ["" : 20, "com.microsoft" : 1]> g ({inputs}) => ({outputs}) '
        f"{{ {body.replace('M.', 'com.microsoft.')} }}"
    )
    proto = parser.parse_model(text)
    read = {name for node in proto.graph.node for name in node.input}
    for name in sorted(read & set(WEIGHTS)):
        proto.graph.initializer.append(onnx.numpy_helper.from_array(WEIGHTS[name], name))
    data = bytes(proto.SerializeToString())
    done = rewrite(FRONTENDS["onnx"]().read(data, Bindings()).graph, careful=True).graph
    assert {kind(n) for n in done.nodes if kind(n).startswith("host:")} <= {"host:cast"}
    return data, done


@pytest.mark.parametrize(
    ("signature", "body"),
    [
        (
            "int32[2,4] i, int32[2,4] t, int32[2,4] m => float[2,4,8] y, float[2,4,8] s",
            "y, n, s = M.EmbedLayerNormalization<epsilon=0.01>(i, t, words, places, kinds, gamma, b, m)",
        ),
        (
            "int32[2,4] i, int32[2,4] p => float[2,4,8] y",
            'y, n = M.EmbedLayerNormalization(i, "", words, places, "", gamma, b, "", p)',
        ),
        ("float[2,3,5,4] x, int64[2,5] at => float[2,3,5,4] y", "y = M.RotaryEmbedding(x, at, cos, sin)"),
        ("float[2,5,12] x, int64[2,5] at => float[2,5,12] y", "y = M.RotaryEmbedding(x, at, cos, sin)"),
        ("float[2,3,5,4] x => float[2,3,5,4] y", "y = M.RotaryEmbedding<interleaved=1>(x, five, cos, sin)"),
    ],
)
def test_what_onnxruntime_runs(signature: str, body: str) -> None:
    data, done = graph(signature, body)
    feeds = {}
    for name in done.inputs:
        own = done.type(name)
        numbers = np.random.default_rng(3).integers(0, 2 if name in "tm" else 6, own.shape)
        feeds[name] = normal(7, *own.shape) if own.dtype == "float32" else numbers.astype(own.dtype)
    for found, wanted in zip(run(export_model(done), feeds), run(data, feeds), strict=True):
        np.testing.assert_allclose(found, wanted, 1e-4, 1e-5)


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def gelu(x: np.ndarray) -> np.ndarray:
    from math import erf

    return 0.5 * x * (1 + np.vectorize(erf)(x / np.sqrt(2)))


def softmax(x: np.ndarray) -> np.ndarray:
    e = np.exp(x - x.max(-1, keepdims=True))
    return np.asarray(e / e.sum(-1, keepdims=True))


def grouped(x: np.ndarray) -> np.ndarray:
    """Normalised over halves of the channels, which are last."""
    parts = x.reshape(1, 36, 2, 4)
    mean = parts.mean((1, 3), keepdims=True)
    y = (parts - mean) / np.sqrt(parts.var((1, 3), keepdims=True) + 1e-5)
    return np.asarray(y.reshape(x.shape) * WEIGHTS["gamma"] + WEIGHTS["b"])


def convolved(x: np.ndarray) -> np.ndarray:
    w, y = WEIGHTS["filter"], np.zeros((1, 4, 4, 4))
    for i in range(3):
        for j in range(3):
            y += np.einsum("nhwc,oc->nhwo", x[:, i : i + 4, j : j + 4], w[:, i, j])
    return y + WEIGHTS["bias"]


@pytest.mark.parametrize(
    ("signature", "body", "meaning"),
    [
        (
            "float[2,4,8] x, float[4,8] v => float[2,4,8] y",
            "y = M.BiasSoftmax<axis=2, is_inner_broadcast=0>(x, v)",
            lambda f: softmax(f["x"] + f["v"]),
        ),
        (
            "float[2,4,8] x, float[2,4,8] v => float[2,4,8] y",
            "y = M.BiasAdd(x, b, v)",
            lambda f: f["x"] + WEIGHTS["b"] + f["v"],
        ),
        ("float[2,4,8] x => float[2,4,8] y", "y = M.BiasDropout(x, b)", lambda f: f["x"] + WEIGHTS["b"]),
        (
            "float[2,4,8] x => float[2,4,4] y",
            "y = M.BiasSplitGelu(x, b)",
            lambda f: (f["x"] + WEIGHTS["b"])[..., :4] * gelu((f["x"] + WEIGHTS["b"])[..., 4:]),
        ),
        (
            "float[1,6,6,8] x => float[1,6,6,8] y",
            "y = M.GroupNorm<groups=2, activation=1>(x, gamma, b)",
            lambda f: grouped(f["x"]) * sigmoid(grouped(f["x"])),
        ),
        (
            "float[1,6,6,2] x => float[1,4,4,4] y",
            "y = M.NhwcConv<kernel_shape=[3,3]>(x, filter, bias)",
            lambda f: convolved(f["x"]),
        ),
    ],
)
def test_what_only_its_other_providers_run(
    signature: str, body: str, meaning: Callable[[Feeds], np.ndarray]
) -> None:
    _, done = graph(signature, body)
    feeds = {name: normal(7, *done.type(name).shape) for name in done.inputs}
    (found,) = run(export_model(done), feeds)
    np.testing.assert_allclose(found, meaning(feeds), 1e-3, 1e-4)
