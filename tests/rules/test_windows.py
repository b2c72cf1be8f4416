"""Windows of three dimensions, and transposed convolutions by phase: onnxruntime's
results, whole on the NPU."""

from __future__ import annotations

import numpy as np
import pytest

from npuflow.place.place import place
from npuflow.rewrite.rewrite import rewrite
from npuflow.rules import Hardware
from npuflow.testing.rule import graph_of
from tests.networks.onnx_text import TARGET, model, normal, on_npu, ops, rewritten
from tests.tiers import often

THREE = (
    # operator and attributes, group, bias, input, weight, result
    ("Conv<pads=[1,1,1,1,1,1]>", True, (1, 3, 4, 5, 6), (4, 3, 3, 3, 3), (1, 4, 4, 5, 6)),
    ("Conv<strides=[2,1,2], dilations=[1,2,1]>", False, (2, 2, 5, 6, 7), (3, 2, 3, 2, 3), (2, 3, 2, 4, 3)),
    ("Conv<group=2, pads=[1,0,0,0,0,0]>", True, (1, 4, 3, 4, 4), (6, 2, 2, 1, 1), (1, 6, 3, 4, 4)),
    ("Conv", True, (1, 3, 1, 5, 6), (4, 3, 1, 3, 3), (1, 4, 1, 3, 4)),
    ("ConvTranspose<strides=[2,2,2]>", True, (1, 3, 3, 4, 4), (3, 4, 2, 2, 2), (1, 4, 6, 8, 8)),
    (
        "ConvTranspose<strides=[2,1,2], pads=[1,1,0,1,1,0]>",
        False,
        (1, 2, 3, 4, 4),
        (2, 3, 4, 3, 2),
        (1, 3, 6, 4, 8),
    ),
    ("ConvTranspose<group=2, strides=[1,2,1]>", True, (2, 4, 3, 3, 3), (4, 2, 3, 2, 1), (2, 4, 5, 6, 3)),
    (
        "ConvTranspose<strides=[2,2,2], output_padding=[1,1,1]>",
        True,
        (1, 2, 2, 3, 3),
        (2, 3, 3, 3, 3),
        (1, 3, 6, 8, 8),
    ),
)


def described(shape: tuple[int, ...]) -> str:
    return f"float[{','.join(map(str, shape))}]"


@pytest.mark.parametrize(("call", "bias", "x", "w", "y"), often(THREE, 3))
@pytest.mark.parametrize("after", often(["r = Relu(c) y = BatchNormalization(r, s, s, s, v)", ""], 2))
def test_convolutions(
    call: str, bias: bool, x: tuple[int, ...], w: tuple[int, ...], y: tuple[int, ...], after: str
) -> None:
    channels = y[1]
    weights = {
        "w": normal(1, *w),
        "b": normal(2, channels),
        "s": normal(3, channels),
        "v": normal(4, channels) ** 2 + 1,
    }
    body = f"{'c' if after else 'y'} = {call}(x, w{', b' if bias else ''}) {after}"
    done = rewritten(model(f"{described(x)} x => {described(y)} y", body, weights), rtol=1e-3, atol=1e-4)
    assert not place(done.graph, TARGET).reasons()
    on_npu(done)


@pytest.mark.parametrize(
    ("call", "y"),
    [
        ("MaxPool<kernel_shape=[2,2,2], strides=[2,2,2]>", (1, 3, 2, 2, 3)),
        ("MaxPool<kernel_shape=[3,3,3], pads=[1,1,1,1,1,1], strides=[2,1,2]>", (1, 3, 2, 5, 3)),
        ("MaxPool<kernel_shape=[2,3,2], strides=[2,2,2], ceil_mode=1>", (1, 3, 2, 2, 3)),
        ("AveragePool<kernel_shape=[2,2,2], strides=[2,2,2]>", (1, 3, 2, 2, 3)),
        ("AveragePool<kernel_shape=[3,3,3], pads=[1,1,1,1,1,1]>", (1, 3, 4, 5, 6)),
        ("AveragePool<kernel_shape=[3,3,3], pads=[1,1,1,1,1,1], count_include_pad=1>", (1, 3, 4, 5, 6)),
        ("GlobalAveragePool", (1, 3, 1, 1, 1)), ("GlobalMaxPool", (1, 3, 1, 1, 1)),
    ],
)
def test_pools(call: str, y: tuple[int, ...]) -> None:
    done = rewritten(model(f"float[1,3,4,5,6] x => {described(y)} y", f"y = {call}(x)", opset=19))
    assert not place(done.graph, TARGET).reasons()
    on_npu(done)


RANKS = (
    ("float[2,1,3,2,4] x, float[1,5,3,2,1] z => float[2,5,3,2,4] y", "y = Mul(x, z)"),
    ("float[1,2,3,2,4] x, float[4] z => float[1,2,3,2,4] y", "a = Add(x, z) y = Relu(a)"),
    ("float[1,2,3,2,4] x => float[1,2,3,2,4] y", "y = Sigmoid(x)"),
    ("float[1,2,3,2,4] x => float[1,2,3,2,4] y", "y = Softmax<axis=2>(x)"),
    ("float[1,2,3,2,4] x => float[1,2,1,1,4] y", "y = ReduceMean<axes=[2,3]>(x)"),
    ("float[2,2,3,2,4] x => float[2,3,4] y", "y = ReduceMax<axes=[1,3], keepdims=0>(x)"),
    ("float[1,2,3,2,4] x, float[1,2,3,4,5] z => float[1,2,3,2,5] y", "y = MatMul(x, z)"),
    ("float[2,2,3,2,4] x, float[3,4,5] z => float[2,2,3,2,5] y", "y = MatMul(x, z)"),
    ("float[2,2,3,2,4] x => float[2,2,3,2,5] y", "y = MatMul(x, w)"),
    ("float[1,2,3,2,4] x => float[1,2,3,2,4] y", "y = Clip(x, low)"),
)


@pytest.mark.parametrize(("signature", "body"), RANKS)
def test_five_dimensions(signature: str, body: str) -> None:
    weights = {"w": normal(1, 4, 5), "low": np.array(-0.5, np.float32)}
    done = rewritten(model(signature, body, weights))
    assert not any(name.startswith("host:") for name in ops(done))
    on_npu(done)


@pytest.mark.parametrize(
    ("call", "bias", "x", "w", "y"),
    [
        ("ConvTranspose<strides=[2,2]>", True, (1, 8, 5, 6), (8, 4, 2, 2), (1, 4, 10, 12)),
        ("ConvTranspose<strides=[2,2], pads=[1,1,1,1]>", True, (2, 8, 5, 6), (8, 4, 4, 4), (2, 4, 10, 12)),
        (
            "ConvTranspose<strides=[2,3], pads=[1,0,0,2], output_padding=[1,0]>",
            False,
            (1, 8, 4, 5),
            (8, 3, 3, 5),
            (1, 3, 9, 15),
        ),
        ("ConvTranspose<strides=[4,4], pads=[2,2,2,2]>", True, (1, 8, 4, 4), (8, 2, 8, 8), (1, 2, 16, 16)),
        ("ConvTranspose<strides=[3]>", True, (1, 8, 5), (8, 4, 5), (1, 4, 17)),
        ("ConvTranspose<strides=[2,2], dilations=[2,1]>", False, (1, 8, 4, 4), (8, 2, 3, 3), (1, 2, 11, 9)),
    ],
)
def test_transposed_convolutions(
    call: str, bias: bool, x: tuple[int, ...], w: tuple[int, ...], y: tuple[int, ...]
) -> None:
    weights = {"w": normal(1, *w), "b": normal(2, y[1])}
    body = f"c = {call}(x, w{', b' if bias else ''}) y = Relu(c)"
    done = rewritten(
        model(f"{described(x)} x => {described(y)} y", body, weights), rtol=1e-3, atol=1e-4,
        hardware=Hardware(rows=1, columns=1, front=0),
    )
    assert ("convtranspose" in ops(done)) == ("dilations" in call)      # rows without a tap there
    assert all(node.origin[0] == done.graph.nodes[0].origin[0] for node in done.graph.nodes)
    on_npu(done)


@pytest.mark.parametrize("bias", [False, True])
def test_a_group_that_fills_local_memory_is_a_convolution_of_its_own(bias: bool) -> None:
    """51,200 bytes of weights in a group: two do not fit beside each other, and a tile is whole groups."""
    weights = {"w": normal(1, 128, 32, 5, 5, scale=0.05), "b": normal(2, 128)}
    body = f"c = Conv<group=2, strides=[2,2], pads=[2,2,2,2]>(x, w{', b' if bias else ''}) y = Relu(c)"
    data = model("float[1,64,6,6] x => float[1,128,3,3] y", body, weights)
    done = rewritten(data, rtol=1e-3, atol=1e-4, hardware=Hardware(local_bytes=TARGET.memory.local_bytes))
    assert sorted(ops(done)) == ["concat", "conv", "conv", "slice", "slice"]
    on_npu(done)
    for larger in (Hardware(local_bytes=1 << 20), Hardware()):
        assert ops(rewritten(data, rtol=1e-3, atol=1e-4, hardware=larger)) == ["conv"]


def test_a_transposed_convolution_that_saves_little_stays() -> None:
    weights = {"w": normal(1, 24, 24, 2, 2)}
    body = "y = ConvTranspose<strides=[2,2]>(x, w)"
    done = rewritten(model("float[1,24,5,5] x => float[1,24,10,10] y", body, weights))
    assert ops(done) == ["convtranspose"]


def test_the_target_decides_whether_a_transposed_convolution_is_split() -> None:
    """Four channels hardly fill a wide array; a small one takes their zeros in less time than a copy."""
    weights = {"w": normal(1, 4, 4, 4, 4)}
    body = "y = ConvTranspose<strides=[2,2], pads=[1,1,1,1]>(x, w)"
    graph = graph_of(model("float[1,4,32,32] x => float[1,4,64,64] y", body, weights))
    wide = Hardware(rows=32, columns=64)
    small = Hardware(rows=16, columns=16, pixels=16, cores=3, bandwidth=20.0, front=112)
    assert "convtranspose" not in ops(rewrite(graph, hardware=wide))
    assert ops(rewrite(graph, hardware=small)) == ["convtranspose"]
