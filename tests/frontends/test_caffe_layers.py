"""Caffe's layers against what Caffe's sources say of them, stated in numpy."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from npuflow.base.errors import ModelError
from tests.frontends.caffe_models import Blobs, draw, judged, layer, outputs, read

RNG = np.random.default_rng(3)
N, C, H, W = 2, 4, 6, 8
X = RNG.standard_normal((N, C, H, W)).astype(np.float32)
HEAD = f'input: "data"\ninput_shape {{ dim: {N} dim: {C} dim: {H} dim: {W} }}\n'
FACTOR, SHIFT, TABLE, PLANE = draw(C), draw(C), draw(5, 3), draw(1, C, H, W)
Statement = Callable[[np.ndarray], np.ndarray]


def mvn(x: np.ndarray, axes: tuple[int, ...], epsilon: float) -> np.ndarray:
    centred = x - x.mean(axes, keepdims=True)
    return centred / (np.sqrt((centred**2).mean(axes, keepdims=True)) + epsilon)


def within(x: np.ndarray, size: int, alpha: float, beta: float) -> np.ndarray:
    half = (size - 1) // 2
    padded = np.pad(x**2, ((0, 0), (0, 0), (half, half), (half, half)))
    sums = np.lib.stride_tricks.sliding_window_view(padded, (size, size), (2, 3)).sum((-1, -2))
    return x * (1 + alpha / size**2 * sums) ** -beta


def pyramid(x: np.ndarray, levels: int, largest: bool) -> np.ndarray:
    parts = []
    for bins in (2**i for i in range(levels)):
        kernel = [math.ceil(size / bins) for size in x.shape[2:]]
        over = [k * bins - size for k, size in zip(kernel, x.shape[2:], strict=True)]
        sides = [(0, 0), (0, 0), *(((o + 1) // 2, o - (o + 1) // 2) for o in over)]
        padded = np.pad(x, sides, constant_values=-np.inf if largest else 0.0)
        blocks = padded.reshape(N, C, bins, kernel[0], bins, kernel[1])
        pooled = blocks.max((3, 5)) if largest else blocks.mean((3, 5))
        parts.append(pooled.reshape(N, -1))
    return np.concatenate(parts, 1)


def darknet(x: np.ndarray, s: int) -> np.ndarray:
    """Darknet's loop, with the element's place in the image of fewer channels."""
    made, flat, few = np.zeros(x[0].size, np.float32), x.reshape(N, -1), C // (s * s)
    rows = []
    for image in flat:
        at = 0
        for k in range(C):
            for j in range(H):
                for i in range(W):
                    offset = k // few
                    column, row = i * s + offset % s, j * s + offset // s
                    made[at] = image[column + W * s * (row + H * s * (k % few))]
                    at += 1
        rows.append(made.reshape(C * s * s, H // s, W // s).copy())
    return np.stack(rows)


def bilinear(x: np.ndarray, high: int, wide: int) -> np.ndarray:
    """Corners on corners."""
    for axis, size in ((2, high), (3, wide)):
        at = np.arange(size) * (x.shape[axis] - 1) / max(size - 1, 1)
        low = np.minimum(at.astype(int), x.shape[axis] - 1)
        part = (at - low).reshape(-1, *(1,) * (3 - axis))
        upper = x.take(np.minimum(low + 1, x.shape[axis] - 1), axis)
        x = x.take(low, axis) * (1 - part) + upper * part
    return x


def channel(values: np.ndarray) -> np.ndarray:
    return values.reshape(-1, 1, 1)


CASES: dict[str, tuple[str, str, Blobs, Statement]] = {
    "mvn": ("MVN", "", {}, lambda x: mvn(x, (2, 3), 1e-9)),
    "mvn images": ("MVN", "mvn_param { across_channels: true }", {}, lambda x: mvn(x, (1, 2, 3), 1e-9)),
    "mvn means": (
        "MVN", "mvn_param { normalize_variance: false }", {}, lambda x: x - x.mean((2, 3), keepdims=True),
    ),
    "mvn epsilon": ("MVN", "mvn_param { eps: 0.1 }", {}, lambda x: mvn(x, (2, 3), 0.1)),
    "argmax": ("ArgMax", "", {}, lambda x: x.reshape(N, 1, -1).argmax(2)[..., None]),
    "argmax axis": ("ArgMax", "argmax_param { axis: 1 }", {}, lambda x: x.argmax(1)[:, None]),
    "argmax best": (
        "ArgMax", "argmax_param { axis: 2 top_k: 3 out_max_val: true }", {},
        lambda x: -np.sort(-x, 2)[:, :, :3],
    ),
    "argmax both": (
        "ArgMax", "argmax_param { top_k: 2 out_max_val: true }", {},
        lambda x: np.stack(
            [np.argsort(-x.reshape(N, -1))[:, :2].astype(np.float32), -np.sort(-x.reshape(N, -1))[:, :2]], 1
        ),
    ),
    "sum": ("Reduction", "", {}, lambda x: x.sum()),
    "sum of magnitudes": (
        "Reduction", "reduction_param { operation: ASUM axis: 1 coeff: 0.5 }", {},
        lambda x: np.abs(x).sum((1, 2, 3)) * 0.5,
    ),
    "sum of squares": (
        "Reduction", "reduction_param { operation: SUMSQ axis: 2 }", {}, lambda x: (x**2).sum((2, 3)),
    ),
    "mean": (
        "Reduction", "reduction_param { operation: MEAN axis: -1 coeff: 2 }", {}, lambda x: x.mean(3) * 2
    ),
    "tile": ("Tile", "tile_param { axis: 2 tiles: 3 }", {}, lambda x: np.tile(x, (1, 1, 3, 1))),
    "bias": ("Bias", "", {"y": [SHIFT]}, lambda x: x + channel(SHIFT)),
    "bias of an image": ("Bias", "bias_param { axis: 0 }", {"y": [PLANE]}, lambda x: x + PLANE),
    "scale": (
        "Scale", "scale_param { bias_term: true }", {"y": [FACTOR, SHIFT]},
        lambda x: x * channel(FACTOR) + channel(SHIFT),
    ),
    "interp": ("Interp", "interp_param { height: 9 width: 15 }", {}, lambda x: bilinear(x, 9, 15)),
    "interp zoom": (
        "Interp", "interp_param { zoom_factor: 3 pad_beg: -1 }", {},
        lambda x: bilinear(x[:, :, 1:, 1:], 13, 19),
    ),
    "interp shrink": ("Interp", "interp_param { shrink_factor: 2 }", {}, lambda x: bilinear(x, 3, 4)),
    "exp": (
        "Exp", "exp_param { base: 2 scale: 0.5 shift: 1 }", {}, lambda x: np.float32(2) ** (1 + 0.5 * x)
    ),
    "log": (
        "Log", "log_param { base: 10 scale: 0.1 shift: 2 }", {}, lambda x: np.log10(2 + 0.1 * x)
    ),
    "threshold": ("Threshold", "threshold_param { threshold: 0.3 }", {}, lambda x: x > 0.3),
    "clip": ("Clip", "clip_param { min: -0.5 max: 0.25 }", {}, lambda x: x.clip(-0.5, 0.25)),
    "bnll": ("BNLL", "", {}, lambda x: np.log1p(np.exp(x))),
    "elu": ("ELU", "elu_param { alpha: 0.7 }", {}, lambda x: np.where(x > 0, x, 0.7 * np.expm1(x))),
    "power": (
        "Power", "power_param { power: 3 scale: 2 shift: 0.1 }", {}, lambda x: (0.1 + 2 * x) ** 3,
    ),
    "lrn within": (
        "LRN", "lrn_param { norm_region: WITHIN_CHANNEL local_size: 3 alpha: 0.5 beta: 0.75 }", {},
        lambda x: within(x, 3, 0.5, 0.75),
    ),
    "spp": ("SPP", "spp_param { pyramid_height: 3 }", {}, lambda x: pyramid(x, 3, True)),
    "spp means": ("SPP", "spp_param { pyramid_height: 3 pool: AVE }", {}, lambda x: pyramid(x, 3, False)),
    "reorg": ("Reorg", "reorg_param { stride: 2 }", {}, lambda x: darknet(x, 2)),
    "flatten": ("Flatten", "flatten_param { axis: 1 end_axis: 2 }", {}, lambda x: x.reshape(N, C * H, W)),
    "flatten last": ("Flatten", "flatten_param { axis: -2 }", {}, lambda x: x.reshape(N, C, H * W)),
    "reshape some": (
        "Reshape", "reshape_param { shape { dim: 2 dim: -1 } axis: 1 num_axes: 1 }", {},
        lambda x: x.reshape(N, 2, C // 2, H, W),
    ),
    "reshape inserts": (
        "Reshape", "reshape_param { shape { dim: 1 } axis: -1 num_axes: 0 }", {}, lambda x: x[..., None]
    ),
    "bn of SegNet": ("BN", "", {"y": [FACTOR, SHIFT]}, lambda x: x * channel(FACTOR) + channel(SHIFT)),
    "bn of PSPNet": (
        "BN", "bn_param { eps: 0.001 }", {"y": [FACTOR, SHIFT, SHIFT * 2, FACTOR**2 + 1]},
        lambda x: (x - channel(SHIFT * 2)) / np.sqrt(channel(FACTOR**2 + 1.001)) * channel(FACTOR)
        + channel(SHIFT),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_layers_compute_what_caffe_states(name: str) -> None:
    kind, options, held, statement = CASES[name]
    (mine,) = outputs(read(HEAD + layer(kind, "data", "y", options), held), X)
    wanted = np.asarray(statement(X.astype(np.float64)))
    assert mine.shape == wanted.shape and mine.dtype == np.float32
    assert np.abs(mine - wanted).max() <= 1e-5 * max(1.0, np.abs(wanted).max())


def test_reorg_backwards_spreads_channels_over_blocks_of_pixels() -> None:
    text = layer("Reorg", "data", "y", "reorg_param { stride: 2 reverse: true }")
    (mine,) = outputs(read(HEAD + text, {}), X)
    blocks = X.reshape(N, 2, 2, C // 4, H, W)
    wanted = np.zeros((N, C // 4, 2 * H, 2 * W), np.float32)
    for i, j in np.ndindex(2, 2):
        wanted[:, :, i::2, j::2] = blocks[:, i, j]
    assert np.array_equal(mine, wanted)


def test_rows_of_a_table() -> None:
    text = 'input: "data"\ninput_shape { dim: 2 dim: 3 }\n'
    text += layer("Embed", "data", "y", "embed_param { input_dim: 5 num_output: 3 }")
    numbers = np.float32([[0, 4, 2], [1, 1, 3]])
    (mine,) = outputs(read(text, {"y": [TABLE, SHIFT[:3]]}), numbers)
    assert np.array_equal(mine, TABLE[numbers.astype(int)] + SHIFT[:3])


def test_blobs_as_factors_biases_and_parameters() -> None:
    """A scale and a bias that the network computes, and the blob of a Parameter layer."""
    text = layer("Reduction", "data", "m", "reduction_param { operation: MEAN axis: 2 }")
    text += layer("Scale", "data m", "s", "scale_param { axis: 0 bias_term: true bias_param { } }")
    text += layer("Bias", "s m", "b", "bias_param { axis: 0 }")
    text += 'layer { name: "p" type: "Parameter" top: "p" parameter_param { shape { dim: 4 } } }\n'
    text += layer("Bias", "b p", "y")
    means = X.mean((2, 3))[..., None, None]
    shift = draw(N, C)
    (mine,) = outputs(read(HEAD + text, {"s": [shift], "p": [FACTOR]}), X)
    wanted = X * means + shift[..., None, None] + means + channel(FACTOR)
    assert np.abs(mine - wanted).max() <= 1e-5 * np.abs(wanted).max()


def test_squeeze_and_excitation() -> None:
    text = layer("Pooling", "data", "m", "pooling_param { pool: AVE global_pooling: true }")
    text += layer("Axpy", "m data data", "y")
    (mine,) = outputs(read(HEAD + text, {}), X)
    assert np.abs(mine - X * (1 + X.mean((2, 3), keepdims=True))).max() <= 1e-5


def test_pixels_return_to_where_pooling_found_them() -> None:
    """SegNet and ENet: the mask of a pooling layer says where."""
    text = layer("Pooling", "data", "a mask", "pooling_param { pool: MAX kernel_size: 2 stride: 2 }")
    text += layer("Upsample", "a mask", "y", "upsample_param { scale: 2 }")
    (mine,) = outputs(read(HEAD + text, {}), X)
    blocks = X.reshape(N, C, H // 2, 2, W // 2, 2)
    largest = np.broadcast_to(blocks.max((3, 5), keepdims=True), blocks.shape)
    assert np.array_equal(mine, np.where(blocks == largest, blocks, 0).reshape(X.shape))


@pytest.mark.parametrize(
    "text",
    [
        layer("MVN", "data", "y", "mvn_param { across_channels: true }"),
        layer("Interp", "data", "y", "interp_param { height: 9 width: 15 }"),
        layer("Interp", "data", "y", "interp_param { zoom_factor: 2 }"),
        layer("LRN", "data", "y", "lrn_param { norm_region: WITHIN_CHANNEL local_size: 3 alpha: 0.5 }"),
        layer("Flatten", "data", "y", "flatten_param { axis: 1 end_axis: 2 }"),
        layer("Reshape", "data", "y", "reshape_param { shape { dim: 2 dim: -1 } axis: 1 num_axes: 1 }"),
        layer("BNLL", "data", "y"),
    ],
)
def test_layers_that_opencv_has_give_its_outputs(text: str, tmp_path: Path) -> None:
    (mine,) = outputs(read(HEAD + text, {}, folder=tmp_path), X)
    (wanted,) = judged(tmp_path, X)
    assert mine.shape == wanted.shape and np.abs(mine - wanted).max() <= 1e-5 * np.abs(wanted).max()


def test_old_names_of_kinds() -> None:
    """The form of before 2014 writes them in capitals; data and losses are left out."""
    text = HEAD + 'layers { name: "a" type: MVN bottom: "data" top: "a" }\n'
    text += 'layers { name: "y" type: ABSVAL bottom: "a" top: "y" }\n'
    text += 'layers { name: "l" type: EUCLIDEAN_LOSS bottom: "a" bottom: "y" top: "l" }\n'
    reading = read(text, {})
    assert reading.graph.outputs == ("y",)
    assert np.abs(outputs(reading, X)[0] - np.abs(mvn(X, (2, 3), 1e-9))).max() <= 1e-5


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (layer("Interp", "data", "y", "interp_param { pad_beg: 2 }"), "Interp: with padding"),
        (layer("Exp", "data", "y", "exp_param { base: -2 }"), "Exp: with the base -2"),
        (layer("SPP", "data", "y", "spp_param { pyramid_height: 2 pool: STOCHASTIC }"), "stochastic pooling"),
        (layer("Reorg", "data", "y", "reorg_param { stride: 3 }"), "Reorg: of 4 channels by 3 x 3"),
        (layer("Reduction", "data", "y", "reduction_param { operation: PROD }"), "Reduction: operation PROD"),
    ],
)
def test_forms_that_are_not_read_say_so(text: str, words: str) -> None:
    with pytest.raises(ModelError) as caught:
        read(HEAD + text, {})
    assert words in caught.value.because
