"""Products over few places of a larger image: samples side by side in one row, beside plain sums."""

from __future__ import annotations

import numpy as np
import pytest

from npuflow.kernels.products import fast_convolutions
from npuflow.kernels.products.fast_convolutions import _Shape


@pytest.mark.parametrize("samples", [1, 3, 8])
@pytest.mark.parametrize(("height", "width"), [(7, 1), (4, 3), (3, 3), (1, 5), (4, 20)])
def test_a_tile_of_one_tap_is_exact(height: int, width: int, samples: int) -> None:
    rng = np.random.default_rng(height * width)
    channels, outs, rows, columns, zero = 11, 13, 9, 24, 37
    image = rng.integers(0, 256, (samples, channels, rows, columns)).astype(np.uint8)
    weights = rng.integers(-128, 128, (outs, channels, 1)).astype(np.int16)
    strides = (0, rows * columns, columns, 1)
    skip = 2 * columns + 1
    shape = _Shape(
        (1, channels, height, width), strides, skip, (height, width), (1, 1), (1, 1), (1, 1), (0, 0)
    )
    count = outs * height * width
    sums = np.full(samples * count, 77, np.int32)
    kept: list[np.ndarray] = []

    def scratch(name: str, dtype: str, dims: tuple[int, ...]) -> np.ndarray:
        kept.append(np.full(dims, 99, dtype))  # what was there must not matter
        return kept[-1]

    source = (image.reshape(-1), skip, channels * rows * columns, strides, shape.dims, (0, zero, 0))
    end = (sums, np.arange(samples) * count, False, np.zeros(len(weights), np.int64), 0)
    fast_convolutions.product(scratch, shape, weights, 1, source, end)()
    tile = image[:, :, 2 : 2 + height, 1 : 1 + width].astype(np.int64) - zero
    wanted = np.einsum("oc,ncp->nop", weights[..., 0].astype(np.int64), tile.reshape(samples, channels, -1))
    np.testing.assert_array_equal(sums, wanted.reshape(-1))


@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize(("height", "width", "kernel"), [(6, 5, 5), (7, 4, 3), (5, 40, 3), (3, 1, 3)])
def test_planes_of_few_rows_by_channel_are_exact(height: int, width: int, kernel: int, stride: int) -> None:
    """The last plane ends where the memory does; scratch memory holds what other commands left."""
    rng = np.random.default_rng(height * width)
    channels, samples, per, zero, before = 9, 3, 2, 37, kernel // 2
    image = rng.integers(0, 256, (samples, channels, height, width)).astype(np.uint8)
    weights = rng.integers(-128, 128, (channels * per, 1, kernel * kernel)).astype(np.int16)
    size = tuple((extent - 1) // stride + 1 for extent in (height, width))
    strides = (0, height * width, width, 1)
    shape = _Shape(
        (1, channels, height, width), strides, 0, (size[0], size[1]), (kernel, kernel), (stride, stride),
        (1, 1), (-before, -before),
    )
    count = channels * per * size[0] * size[1]
    sums = np.full(samples * count, 77, np.int32)
    source = (image.reshape(-1), 0, channels * height * width, strides, shape.dims, (0, zero, 0))
    end = (sums, np.arange(samples) * count, False, np.zeros(len(weights), np.int64), 0)

    def scratch(name: str, dtype: str, dims: tuple[int, ...]) -> np.ndarray:
        return np.full(dims, 99, dtype)

    fast_convolutions.product(scratch, shape, weights, channels, source, end)()
    padded = np.pad(image.astype(np.int64) - zero, ((0, 0), (0, 0), (before, before), (before, before)))
    taps = np.lib.stride_tricks.sliding_window_view(padded, (kernel, kernel), (2, 3))
    factors = weights.reshape(channels, per, kernel, kernel).astype(np.int64)
    wanted = np.einsum("cpij,nchwij->ncphw", factors, taps[:, :, ::stride, ::stride])
    np.testing.assert_array_equal(sums, wanted.reshape(-1))
