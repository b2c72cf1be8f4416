"""Operators whose TFLite form nearly matches, in LiteRT beside the program: resizing, pooling, padding."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from npuflow.base.errors import ModelError
from npuflow.export_tflite.export import LiteModel, to_tflite
from npuflow.export_tflite.judge import Judgement, judge
from npuflow.hw.target import Numerics
from npuflow.ir.graph import Graph
from npuflow.quantise.config import Activations, Quantize
from npuflow.rewrite.rewrite import rewrite
from npuflow.testing.quantised import quantize_graph
from npuflow.testing.rule import graph_of
from npuflow.whole.export_c.network import network_of
from npuflow.whole.export_c.vectors import random_samples
from tests.networks.onnx_text import model, normal
from tests.networks.subjects import subject

pytest.importorskip("tflite")
pytest.importorskip("ai_edge_litert")
NUMERICS = Numerics(wide_acc_bits=48, weight_bits=(8, 16))
NARROW = Quantize()
WIDE = Quantize(activations=Activations(bits=16, symmetric=True, signed=True))
IMAGE = "float[1,4,9,8] x"
COORDINATES = ("half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric", "half_pixel_symmetric")
ROUNDINGS = ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")
SIZES = (((8, 8), (16, 16)), ((6, 5), (18, 15)), ((8, 8), (4, 4)), ((5, 7), (12, 13)), ((1, 4), (3, 8)))


def quantised(data: bytes, config: Quantize = NARROW) -> Graph:
    one = subject("near", rewrite(graph_of(data)).graph)
    return quantize_graph(one.graph, lambda _: True, one.ranges, config, NUMERICS).graph


def compared(data: bytes, config: Quantize = NARROW) -> tuple[LiteModel, Judgement]:
    graph = quantised(data, config)
    written = to_tflite(graph)
    return written, judge(written, random_samples(network_of(graph), NUMERICS, 2))


def resized(
    given: tuple[int, int], made: tuple[int, int], attributes: str, scale: float | None = None
) -> bytes:
    shapes = [",".join(map(str, (1, 4, *size))) for size in (given, made)]
    held = {"n": np.array([1, 1, scale, scale], np.float32)} if scale else {}
    more = "x, , n" if scale else "x, , , n"
    held = held or {"n": np.array([1, 4, *made], np.int64)}
    signature = f"float[{shapes[0]}] x => float[{shapes[1]}] y"
    return model(signature, f"y = Resize<{attributes}>({more})", held, opset=19)


def test_a_scale_that_is_not_the_ratio_of_the_sizes() -> None:
    """17 rows by 1.5 are 25: TFLite would take 25 / 17."""
    coordinates = 'mode="linear", coordinate_transformation_mode="half_pixel"'
    written, made = compared(resized((17, 17), (25, 25), coordinates, 1.5))
    assert made.worst <= 1 and "RESIZE_BILINEAR" not in written.operators
    written, made = compared(resized((16, 16), (32, 32), coordinates, 2.0))
    assert made.worst <= 1 and written.operators == {"RESIZE_BILINEAR": 1}


@pytest.mark.parametrize("coordinates", COORDINATES)
@pytest.mark.parametrize("bits", [8, 16])
def test_linear_resizing(coordinates: str, bits: int) -> None:
    attributes = f'mode="linear", coordinate_transformation_mode="{coordinates}"'
    for given, made in (*SIZES, ((17, 17), (33, 33)), ((8, 8), (1, 1))):
        _, found = compared(resized(given, made, attributes), WIDE if bits == 16 else Quantize())
        assert found.worst <= (1 if bits == 8 else 2), f"{given} {made}: {found}"


@pytest.mark.parametrize("rounding", ROUNDINGS)
@pytest.mark.parametrize("coordinates", (*COORDINATES, "tf_half_pixel_for_nn"))
def test_nearest_neighbours(coordinates: str, rounding: str) -> None:
    attributes = f'coordinate_transformation_mode="{coordinates}", nearest_mode="{rounding}"'
    for given, made in SIZES:
        _, found = compared(resized(given, made, f'mode="nearest", {attributes}'))
        assert found.differ == 0, f"{given} {made}: {found}"


def test_common_resizes_are_one_operator() -> None:
    for given, made, mode, coordinates in (
        ((8, 8), (16, 16), "nearest", 'asymmetric", nearest_mode="floor'),
        ((8, 8), (16, 16), "nearest", "half_pixel"),
        ((8, 8), (32, 32), "linear", "pytorch_half_pixel"),
        ((17, 17), (33, 33), "linear", "align_corners"),
    ):
        attributes = f'mode="{mode}", coordinate_transformation_mode="{coordinates}"'
        assert len(to_tflite(quantised(resized(given, made, attributes))).operators) == 1, attributes


def windows() -> list[tuple[str, str]]:
    """Pools and convolutions by kernel, stride and padding: signature and body."""
    found = []
    for kernel, stride, pads, ceil in itertools.product(
        ((2, 2), (3, 2)), (1, 2), ((0, 0, 0, 0), (1, 1, 1, 1), (0, 0, 1, 1), (1, 0, 0, 1)), (0, 1)
    ):
        rows, columns = (
            (size + before + after - k + (stride - 1 if ceil else 0)) // stride + 1
            for size, before, after, k in zip((9, 8), pads[:2], pads[2:], kernel, strict=True)
        )
        if ceil and ((rows - 1) * stride >= 9 + pads[0] or (columns - 1) * stride >= 8 + pads[1]):
            continue
        own = f"kernel_shape={list(kernel)}, strides={[stride] * 2}, pads={list(pads)}, ceil_mode={ceil}"
        signature = f"{IMAGE} => float[1,4,{rows},{columns}] y"
        found.append((signature, f"y = MaxPool<{own}>(x)"))
        found += [(signature, f"y = AveragePool<{own}, count_include_pad={c}>(x)") for c in (0, 1)]
    for pad, stride in itertools.product(("SAME_UPPER", "SAME_LOWER", "VALID"), (1, 2)):
        rows, columns = (-(-(n if pad != "VALID" else n - 2) // stride) for n in (9, 8))
        own = f'kernel_shape=[3,3], strides={[stride] * 2}, auto_pad="{pad}"'
        for operator in ("MaxPool", "AveragePool"):
            found.append((f"{IMAGE} => float[1,4,{rows},{columns}] y", f"y = {operator}<{own}>(x)"))
        found.append((f"{IMAGE} => float[1,5,{rows},{columns}] y", f"y = Conv<{own}>(x, w)"))
    return found


def test_windows_and_their_padding() -> None:
    """Each is within a code, or refused because its windows leave the image as TFLite's cannot."""
    written = 0
    for signature, body in windows():
        weights = {"w": normal(1, 5, 4, 3, 3)} if "Conv" in body else {}
        try:
            _, found = compared(model(signature, body, weights, opset=19))
        except ModelError as refused:
            assert "AveragePool" in body and "windows" in refused.message, refused.message
            continue
        written += 1
        assert found.worst <= 1, f"{body}: {found}"
    assert written >= 60


@pytest.mark.parametrize(
    ("made", "body", "held"),
    [
        ("1,2,9,8", "y = Gather<axis=1>(x, i)", {"i": [-1, 0]}),
        ("1,4,2,8", "y = Gather<axis=2>(x, i)", {"i": [3, -9]}),
        ("1,4,9,4", "y = Slice(x, b, e, a, s)", {"b": [-1], "e": [-100], "a": [3], "s": [-2]}),
        ("1,4,12,9", 'y = Pad<mode="reflect">(x, p)', {"p": [0, 0, 1, 1, 0, 0, 2, 0]}),
        ("1,7,9,8", "y = Pad(x, p)", {"p": [0, 1, 0, 0, 0, 2, 0, 0]}),
        ("1,1,9,8", "y = ReduceMax<axes=[1], keepdims=1>(x)", {}),
        ("1,4,9", "y = ReduceMean<axes=[3], keepdims=0>(x)", {}),
        ("1,1,18,16", 'y = DepthToSpace<blocksize=2, mode="CRD">(x)', {}),
        ("1,4,9,8", "y = LeakyRelu<alpha=-0.3>(x)", {}),
        ("1,4,9,8", "y = HardSigmoid<alpha=-0.5, beta=0.3>(x)", {}),
        ("1,4,9,8", "y = Softmax<axis=1>(x)", {}),
    ],
)
def test_other_operators_that_nearly_match(made: str, body: str, held: dict[str, list[int]]) -> None:
    weights = {name: np.array(values, np.int64) for name, values in held.items()}
    _, found = compared(model(f"{IMAGE} => float[{made}] y", body, weights))
    assert found.worst <= 1, found


def test_layers_behind_a_refused_one_are_judged_in_its_width() -> None:
    """A filling of 16 bits behind a Softplus."""
    held = {"p": np.array([0, 0, 1, 1, 0, 0, 1, 1]), "v": np.array(-3.0, np.float32)}
    data = model("float[1,4,6,6] x => float[1,4,8,8] y", "a = Softplus(x) y = Pad(a, p, v)", held)
    with pytest.raises(ModelError, match="1 layer without a TFLite form: a "):
        to_tflite(quantised(data, WIDE))
