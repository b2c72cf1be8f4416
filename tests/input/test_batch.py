"""A network of batch 1 made for several samples at once: what is rewritten, and what is refused by name."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest

from npuflow.base.errors import ModelError
from npuflow.input.batch import with_batch
from npuflow.ir.graph import Graph
from npuflow.onnx.export import export_model
from npuflow.onnx.run import run
from npuflow.testing.rule import graph_of
from tests.networks.onnx_text import model, normal

BATCH = 3


def ints(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


HEADS = """a = MatMul(x, w) s = Reshape(a, s1) q = Transpose<perm=[0,2,1,3]>(s)
    k = Transpose<perm=[0,2,3,1]>(s) m = MatMul(q, k) p = Softmax<axis=-1>(m) o = MatMul(p, q)
    t = Transpose<perm=[0,2,1,3]>(o) y = Reshape(t, s2)"""
SEQUENCE_FIRST = """t = Transpose<perm=[1,0,2]>(x) a = MatMul(t, w) s = Reshape(a, s1)
    q = Transpose<perm=[1,0,2]>(s) k = Transpose<perm=[1,2,0]>(s) m = MatMul(q, k) p = Softmax<axis=-1>(m)
    o = MatMul(p, q) u = Transpose<perm=[1,0,2]>(o) v = Reshape(u, s2) y = Transpose<perm=[1,0,2]>(v)"""
CLASS_TOKEN = """c = Conv<kernel_shape=[4,4], strides=[4,4]>(x, w) r = Reshape(c, s)
    t = Transpose<perm=[0,2,1]>(r) n = Concat<axis=1>(k, t) a = Add(n, p) f = Gather<axis=1>(a, z)
    y = MatMul(f, v)"""
LSTM = """t = Transpose<perm=[1,0,2]>(x) o, h, c = LSTM<hidden_size=6>(t, w, r) q = Squeeze(o, a)
    y = Transpose<perm=[1,0,2]>(q)"""
MADE: dict[str, tuple[str, str, Mapping[str, np.ndarray]]] = {
    "a leading 1 in a Reshape": (
        "float[1,3,4,4] x => float[1,5] y",
        "f = Reshape(x, s) y = MatMul(f, v)",
        {"s": ints(1, 48), "v": normal(1, 48, 5)},
    ),
    "heads": (
        "float[1,6,8] x => float[1,6,8] y", HEADS,
        {"w": normal(1, 8, 8), "s1": ints(1, 6, 2, 4), "s2": ints(1, 6, 8)},
    ),
    "heads, the sequence first": (
        "float[1,6,8] x => float[1,6,8] y", SEQUENCE_FIRST,
        {"w": normal(1, 8, 8), "s1": ints(6, 2, 4), "s2": ints(6, 1, 8)},
    ),
    "a class token": (
        "float[1,3,8,8] x => float[1,5] y", CLASS_TOKEN,
        {
            "w": normal(1, 6, 3, 4, 4), "s": ints(1, 6, 4), "k": normal(2, 1, 1, 6),
            "p": normal(3, 1, 5, 6), "z": np.array(0, np.int64), "v": normal(4, 6, 5),
        },
    ),
    "sizes of a Resize": (
        "float[1,2,4,4] x => float[1,2,8,8] y", "y = Resize(x, , , s)", {"s": ints(1, 2, 8, 8)}
    ),
    "the shape of an Expand": (
        "float[1,4] x => float[1,3,4] y", "u = Unsqueeze(x, a) y = Expand(u, s)",
        {"s": ints(1, 3, 4), "a": ints(1)},
    ),
    "an LSTM": (
        "float[1,5,4] x => float[1,5,6] y", LSTM,
        {"w": normal(1, 1, 24, 4), "r": normal(2, 1, 24, 6), "a": ints(1)},
    ),
    "layer norm": (
        "float[1,4,8] x => float[1,4,8] y", "y = LayerNormalization(x, w, b)",
        {"w": normal(1, 8), "b": normal(2, 8)},
    ),
}
REFUSED = {
    "softmax": ("float[1,6] x => float[1,6] y", "r = Relu(x) y = Softmax<axis=0>(r)"),
    "reducemean": ("float[1,6] x => float[6] y", "y = ReduceMean<axes=[0], keepdims=0>(x)"),
    "CumSum": ("float[1,4] x => float[1,4] y", "y = CumSum(x, a)"),
    "gather": ("float[1,4,8] x => float[4,8] y", "y = Gather<axis=0>(x, a)"),
    "concat": ("float[1,4] x, float[1,4] z => float[2,4] y", "y = Concat<axis=0>(x, z)"),
    "mul": ("float[1,4] x, float[1] t => float[1,4] y", "y = Mul(x, t)"),
    "matmul": ("float[1,6,8] x => float[6,6] y", "f = Reshape(x, s) t = Transpose(f) y = MatMul(f, t)"),
}


def outputs(graph: Graph, feed: Mapping[str, np.ndarray]) -> list[np.ndarray]:
    return run(export_model(graph), feed)


@pytest.mark.parametrize("name", MADE)
def test_each_sample_gives_what_it_gives_alone(name: str) -> None:
    signature, body, weights = MADE[name]
    graph = graph_of(model(signature, body, weights))
    made = with_batch(graph, BATCH)
    shapes = {i: graph.type(i).shape for i in graph.inputs}
    feeds = [{i: normal(9 * k + n, *shapes[i]) for n, i in enumerate(shapes)} for k in range(BATCH)]
    together = {i: np.concatenate([feed[i] for feed in feeds]) for i in graph.inputs}
    assert all(made.type(o).shape == (BATCH, *graph.type(o).shape[1:]) for o in graph.outputs)
    for k, found in enumerate(outputs(made, together)):
        wanted = np.concatenate([outputs(graph, feed)[k] for feed in feeds])
        np.testing.assert_allclose(found, wanted, 1e-4, 1e-5)


@pytest.mark.parametrize("name", REFUSED)
def test_an_operator_that_mixes_samples_is_named(name: str) -> None:
    signature, body = REFUSED[name]
    held = {"a": np.array(0, np.int64), "s": ints(6, 8)}
    graph = graph_of(model(signature, body, {k: v for k, v in held.items() if f"{k})" in body}))
    with pytest.raises(ModelError, match=rf"cannot be made for a batch of 4: \w+ \({name}\)") as raised:
        with_batch(graph, 4)
    assert raised.value.code == "NF-MODEL-372" and "file's own batch" in raised.value.hint


def test_an_input_without_a_batch_of_1() -> None:
    with pytest.raises(ModelError, match='the input "x" has no batch that could become 4') as raised:
        with_batch(graph_of(model("float[2,4] x => float[2,4] y", "y = Relu(x)")), 4)
    assert raised.value.because.startswith("its shape is [2, 4]")
    same = graph_of(model("float[4,2] x => float[4,2] y", "y = Relu(x)"))
    assert with_batch(same, 4) is same
