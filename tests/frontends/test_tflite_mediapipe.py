"""MediaPipe's custom operators, judged by their definitions written out in numpy."""

from __future__ import annotations

import struct

import numpy as np
import pytest

from npuflow.base.errors import ModelError
from npuflow.frontends import FRONTENDS, Bindings
from npuflow.onnx.export import export_model
from npuflow.onnx.run import run
from tests.frontends.tflite_models import Net

SAME, VALID = 1, 2


def raw(*fields: int) -> bytes:
    return struct.pack(f"<{len(fields)}i", *fields)


def outputs(data: bytes, x: np.ndarray) -> list[np.ndarray]:
    graph = FRONTENDS["tflite"]().read(data, Bindings()).graph
    return [np.asarray(v) for v in run(export_model(graph), {graph.inputs[0]: x})]


def scattered(
    x: np.ndarray, w: np.ndarray, b: np.ndarray, strides: tuple[int, int], same: bool
) -> np.ndarray:
    """Every input value adds the kernel at its place: images [1, H, W, C], kernel [out, h, w, in]."""
    taps, sizes = w.shape[1:3], x.shape[1:3]
    total = [
        max(0, k - (n - 1) % s - 1) if same else 0 for k, n, s in zip(taps, sizes, strides, strict=True)
    ]
    full = [s * (n - 1) + k for k, n, s in zip(taps, sizes, strides, strict=True)]
    made = np.zeros((*full, len(w)))
    for i in range(sizes[0]):
        for j in range(sizes[1]):
            top, left = i * strides[0], j * strides[1]
            made[top : top + taps[0], left : left + taps[1]] += np.einsum("ohwi,i->hwo", w, x[0, i, j])
    rows, columns = (
        slice(p // 2, p // 2 + n - p) for p, n in zip(total, full, strict=True)
    )
    return made[None, rows, columns] + b


@pytest.mark.parametrize(
    "kernel, strides, padding", [((2, 2), (2, 2), SAME), ((3, 3), (2, 2), SAME), ((4, 3), (2, 1), SAME),
                                 ((3, 2), (2, 3), VALID), ((2, 2), (3, 3), SAME)],
)
def test_a_transposed_convolution_with_a_bias(
    kernel: tuple[int, int], strides: tuple[int, int], padding: int
) -> None:
    rng = np.random.default_rng(0)
    x, w, b = (rng.standard_normal(s).astype(np.float32) for s in ((1, 5, 6, 3), (4, *kernel, 3), (4,)))
    wanted = scattered(x, w, b, strides, padding == SAME)
    net = Net()
    net.tensor("x", x.shape)
    net.tensor("y", wanted.shape)
    given = ["x", net.constant("w", w), net.constant("b", b)]
    net.op("Convolution2DTransposeBias", given, ["y"], raw=raw(padding, strides[1], strides[0]))
    (mine,) = outputs(net.done(["x"], ["y"]), x)
    assert mine.shape == wanted.shape and np.abs(mine - wanted).max() < 1e-5


def pooled(x: np.ndarray, height: int, width: int) -> tuple[np.ndarray, np.ndarray]:
    """The largest values, and what is left of the image when all others are zero."""
    values = np.zeros((1, x.shape[1] // height, x.shape[2] // width, x.shape[3]), np.float32)
    back = np.zeros_like(x)
    for i, j, c in np.ndindex(values.shape[1:]):
        part = x[0, i * height : (i + 1) * height, j * width : (j + 1) * width, c]
        dy, dx = np.unravel_index(part.argmax(), part.shape)
        values[0, i, j, c] = part.max()
        back[0, i * height + dy, j * width + dx, c] = part.max()
    return values, back


def pooling(reader: str = "", overlapping: bool = False) -> bytes:
    net = Net()
    net.tensor("x", (1, 4, 6, 3))
    net.tensor("values", (1, 2, 2, 3))
    net.tensor("places", (1, 2, 2, 3))
    options = raw(SAME, 3, 2, 3, 3 if overlapping else 2, 0)
    net.op("MaxPoolingWithArgmax2D", ["x"], ["values", "places"], raw=options)
    net.tensor("back", (1, 4, 6, 3))
    net.op("MaxUnpooling2D", ["values", "places"], ["back"], raw=options)
    if reader:
        net.tensor("other", (1, 2, 2, 3))
        net.op(reader, ["places"], ["other"])
    return net.done(["x"], ["values", "back", *(["other"] if reader else [])])


def test_pooling_with_places_and_its_reverse() -> None:
    x = np.random.default_rng(1).standard_normal((1, 4, 6, 3)).astype(np.float32)
    for mine, wanted in zip(outputs(pooling(), x), pooled(x, 2, 3), strict=True):
        assert np.array_equal(mine, wanted)


def resampled(x: np.ndarray, warp: np.ndarray) -> np.ndarray:
    made = np.zeros_like(x)
    height, width = x.shape[1:3]
    for i, j in np.ndindex(height, width):
        px, py = warp[0, i, j]
        for row in (int(np.floor(py)), int(np.floor(py)) + 1):
            for column in (int(np.floor(px)), int(np.floor(px)) + 1):
                if 0 <= row < height and 0 <= column < width:
                    share = max(0, 1 - abs(py - row)) * max(0, 1 - abs(px - column))
                    made[0, i, j] += share * x[0, row, column]
    return made


def test_a_resampler_reads_places_in_pixels() -> None:
    rng = np.random.default_rng(2)
    x, warp = rng.standard_normal((1, 5, 7, 2)), rng.uniform(-1.5, 7.5, (1, 5, 7, 2))
    x, warp = x.astype(np.float32), warp.astype(np.float32)
    net = Net()
    net.tensor("x", x.shape)
    net.tensor("y", x.shape)
    net.op("Resampler", ["x", net.constant("warp", warp)], ["y"])
    (mine,) = outputs(net.done(["x"], ["y"]), x)
    assert np.abs(mine - resampled(x, warp)).max() < 1e-5


def refused(data: bytes) -> str:
    with pytest.raises(ModelError) as caught:
        FRONTENDS["tflite"]().read(data, Bindings())
    assert caught.value.code == "NF-MODEL-066"
    return str(caught.value)


def test_forms_without_an_equivalent_say_why() -> None:
    assert "whose places are read by ABS, not by MaxUnpooling2D" in refused(pooling("ABS"))
    assert "windows that overlap" in refused(pooling(overlapping=True))
    net = Net()
    net.tensor("x", (1, 4, 4, 3))
    net.tensor("y", (1, 8, 8, 2))
    zero = np.zeros((2, 2, 2, 3), np.float32)
    given = ["x", net.constant("w", zero), net.constant("b", zero[0, 0, 0, :2])]
    net.op("Convolution2DTransposeBias", given, ["y"], raw=raw(SAME, 2))
    assert "its options have 8 bytes instead of 12" in refused(net.done(["x"], ["y"]))


def test_all_operators_without_an_equivalent_are_named_at_once() -> None:
    net = Net()
    net.tensor("x", (1, 8, 8, 3))
    for name in ("Landmarks2TransformMatrix", "TransformTensorBilinear", "Sphere"):
        net.tensor(name, (1, 8, 8, 3))
        net.op(name, ["x"], [name])
    said = refused(net.done(["x"], ["Sphere"]))
    for name in ("Landmarks2TransformMatrix", "TransformTensorBilinear"):
        assert f"CUSTOM {name} (of MediaPipe)" in said
    assert "CUSTOM Sphere" in said
