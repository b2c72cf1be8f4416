"""Rules that change weights: normalisation before and after, padding, Gemm."""

from __future__ import annotations

import numpy as np
import pytest

from tests.networks.onnx_text import model, normal, ops, refused, rewritten

BN = {"s": abs(normal(1, 4)) + 0.5, "b": normal(2, 4), "m": normal(3, 4), "v": abs(normal(4, 4)) + 0.1}
NORM = "BatchNormalization(t, s, b, m, v)"
W = {"w": normal(0, 4, 3, 3, 3), "c": normal(9, 4)}


@pytest.mark.parametrize("bias", ["", ", c"])
def test_batch_normalisation_folds_into_the_convolution(bias: str) -> None:
    body = f"t = Conv<pads=[1,1,1,1]>(x, w{bias}) y = BatchNormalization(t, s, b, m, v)"
    done = rewritten(model("float[1,3,6,6] x => float[1,4,6,6] y", body, {**W, **BN}))
    assert ops(done) == ["conv"] and done.graph.nodes[0].outputs == ("y",)


def test_it_folds_into_grouped_transposed_convolutions() -> None:
    weights = {"w": normal(0, 6, 2, 3, 3), **BN}
    body = (
        "t = ConvTranspose<group=2, strides=[2,2]>(x, w) y = BatchNormalization<epsilon=0.1>(t, s, b, m, v)"
    )
    assert ops(rewritten(model("float[1,6,4,4] x => float[1,4,9,9] y", body, weights))) == ["convtranspose"]


@pytest.mark.parametrize("bias", ["", ", c"])
@pytest.mark.parametrize("transposed", [0, 1])
def test_it_folds_into_gemm(transposed: int, bias: str) -> None:
    weights = {"w": normal(0, 4, 5) if transposed else normal(0, 5, 4), "c": normal(9, 4), **BN}
    body = (
        f"t = Gemm<transB={transposed}, alpha=0.5, beta=2.0>(x, w{bias}) y = {NORM}"
    )
    assert ops(rewritten(model("float[2,5] x => float[2,4] y", body, weights))) == ["gemm"]


@pytest.mark.parametrize("shape", ["1,4,5", "2,4,5,6"])
def test_a_lone_one_becomes_a_depthwise_convolution(shape: str) -> None:
    done = rewritten(
        model(f"float[{shape}] x => float[{shape}] y", "y = BatchNormalization(x, s, b, m, v)", BN)
    )
    assert ops(done) == ["conv"] and done.graph.nodes[0].op.group == 4


def test_a_lone_one_of_another_rank_works_on_a_view() -> None:
    done = rewritten(model("float[3,4] x => float[3,4] y", "y = BatchNormalization(x, s, b, m, v)", BN))
    assert ops(done) == ["reshape", "conv", "reshape"]


def test_statistics_that_are_not_constants_are_refused() -> None:
    done = rewritten(model(
        "float[1,4,3,3] x, float[4] s => float[1,4,3,3] y", "y = BatchNormalization(x, s, b, m, v)",
        {k: v for k, v in BN.items() if k != "s"},
    ))
    assert "not constants" in refused(done, "fold_scale")


@pytest.mark.parametrize(
    "second", ["Mul(t, k)", "Div(t, k)", "Add(k, t)", "Sub(t, k)", "Sub(k, t)", "Mul(t, n)"]
)
def test_arithmetic_by_channel_folds_into_the_convolution(second: str) -> None:
    weights = {**W, "k": (normal(5, 4, 1, 1) + 3).astype(np.float32), "n": np.array(2.5, np.float32)}
    done = rewritten(
        model("float[1,3,6,6] x => float[1,4,4,4] y", f"t = Conv(x, w, c) y = {second}", weights)
    )
    assert ops(done) == ["conv"]


def test_arithmetic_by_column_is_left_alone() -> None:
    weights = {**W, "k": normal(5, 4)}
    done = rewritten(model("float[1,3,6,6] x => float[1,4,4,4] y", "t = Conv(x, w) y = Mul(t, k)", weights))
    assert ops(done) == ["conv", "mul"]


def test_a_result_that_is_read_twice_is_refused() -> None:
    body = "t = Conv(x, w) y = BatchNormalization(t, s, b, m, v) z = Sigmoid(t)"
    done = rewritten(model("float[1,3,4,4] x => float[1,4,2,2] y, float[1,4,2,2] z", body, {**W, **BN}))
    assert "read elsewhere" in refused(done, "fold_scale")


@pytest.mark.parametrize("first", ["Mul(x, k)", "Div(x, k)"])
def test_input_scaling_is_exact_under_padding(first: str) -> None:
    weights = {**W, "k": (normal(5, 1, 3, 1, 1) + 4).astype(np.float32)}
    body = f"t = {first} y = Conv<pads=[1,1,1,1]>(t, w, c)"
    assert ops(rewritten(model("float[1,3,6,6] x => float[1,4,6,6] y", body, weights))) == ["conv"]


def test_input_normalisation_folds_without_padding_and_in_groups() -> None:
    weights = {"w": normal(0, 4, 2, 3, 3), "k": normal(5, 4, 1, 1), "d": np.array(127.5, np.float32)}
    body = "t = Sub(x, k) u = Div(t, d) y = Conv<group=2>(u, w)"
    assert ops(rewritten(model("float[1,4,6,6] x => float[1,4,4,4] y", body, weights))) == ["conv"]


def test_an_offset_under_padding_is_refused() -> None:
    weights = {**W, "k": normal(5, 3, 1, 1)}
    done = rewritten(
        model("float[1,3,6,6] x => float[1,4,6,6] y", "t = Sub(x, k) y = Conv<pads=[1,1,1,1]>(t, w)", weights)
    )
    assert ops(done) == ["sub", "conv"] and "zero padding" in refused(done, "fold_input_scale")


def test_pads_merge_into_convolutions() -> None:
    weights = {**W, "p": np.array([0, 0, 0, 1, 0, 0, 2, 1])}
    body = "t = Pad(x, p) y = Conv<pads=[1,0,0,0]>(t, w)"
    done = rewritten(model("float[1,3,6,6] x => float[1,4,7,6] y", body, weights))
    assert ops(done) == ["conv"] and done.graph.nodes[0].op.pads == (1, 1, 2, 1)


@pytest.mark.parametrize(
    ("mode", "pads", "value", "reason"),
    [
        ("edge", [0, 0, 1, 1, 0, 0, 1, 1], 0.0, "mode is edge"),
        ("constant", [0, 0, 1, 1, 0, 0, 1, 1], 2.0, "writes 2"),
        ("constant", [0, 0, -1, 1, 0, 0, 1, 1], 0.0, "crops"),
    ],
)
def test_other_pads_stay(mode: str, pads: list[int], value: float, reason: str) -> None:
    weights = {**W, "p": np.array(pads), "v": np.array(value, np.float32)}
    height = 6 + pads[2] + pads[6] - 2
    body = f't = Pad<mode="{mode}">(x, p, v) y = Conv(t, w)'
    done = rewritten(model(f"float[1,3,6,6] x => float[1,4,{height},6] y", body, weights))
    assert ops(done) == ["pad", "conv"] and reason in refused(done, "merge_pad")


def test_a_pad_of_minus_infinity_merges_into_max_pooling() -> None:
    weights = {"p": np.array([0, 0, 1, 1, 0, 0, 1, 1]), "v": np.array(-np.inf, np.float32)}
    body = "t = Pad(x, p, v) y = MaxPool<kernel_shape=[2,2]>(t)"
    done = rewritten(model("float[1,2,6,6] x => float[1,2,7,7] y", body, weights))
    assert ops(done) == ["maxpool"]


@pytest.mark.parametrize("shape", ["3,5", "2,3,5", "1,2,3,5"])
def test_matmul_and_add_become_gemm(shape: str) -> None:
    lead = shape.rpartition(",")[0]
    weights = {"w": normal(0, 5, 4), "c": normal(1, 4)}
    done = rewritten(
        model(f"float[{shape}] x => float[{lead},4] y", "t = MatMul(x, w) y = Add(c, t)", weights)
    )
    assert "gemm" in ops(done) and set(ops(done)) <= {"gemm", "reshape"}


def test_an_addend_per_row_is_refused() -> None:
    weights = {"w": normal(0, 5, 4), "c": normal(1, 3, 1)}
    done = rewritten(model("float[3,5] x => float[3,4] y", "t = MatMul(x, w) y = Add(t, c)", weights))
    assert "per column" in refused(done, "matmul_to_gemm")
