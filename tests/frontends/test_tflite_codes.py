"""int8 operators of TFLite alone: the integer layer's codes against those of LiteRT's reference kernels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

pytest.importorskip("tflite", reason="npuflow[tflite] is not installed")
pytest.importorskip("ai_edge_litert", reason="the reference kernels (ai-edge-litert) are not installed")

from tests.frontends.tflite_models import Net, per_layer

X, Y, UNIT, ODD = (0.05, 3), (0.07, -9), (1 / 256, -128), (1 / 128, 0)
IMAGE = (1, 6, 6, 8)


def net(
    kind: str,
    operands: Sequence[tuple[float, int]],
    shape: Sequence[int],
    result: tuple[float, int],
    options: str = "",
    constants: Sequence[np.ndarray] = (),
    **fields: Any,
) -> bytes:
    made = Net()
    names = [made.tensor(f"x{i}", IMAGE, "int8", ([s], [z], 0)) for i, (s, z) in enumerate(operands)]
    more = [made.constant(f"k{i}", held) for i, held in enumerate(constants)]
    made.tensor("y", shape, "int8", ([result[0]], [result[1]], 0))
    made.op(kind, [*names, *more], ["y"], options, **{"version": 2} | fields)
    return made.done(names, ["y"])


# Operator -> its network, the least share of equal codes, the largest difference.
CASES: dict[str, tuple[bytes, float, int]] = {
    "ADD": (net("ADD", [X, Y], IMAGE, (0.09, 5), "AddOptions", fusedActivationFunction=0), 0.995, 1),
    "SUB": (net("SUB", [X, Y], IMAGE, (0.09, 5), "SubOptions", fusedActivationFunction=0), 0.995, 1),
    "MUL": (net("MUL", [X, Y], IMAGE, (0.2, -3), "MulOptions", fusedActivationFunction=1), 0.995, 1),
    "LOGISTIC": (net("LOGISTIC", [X], IMAGE, UNIT), 0.95, 1),
    "TANH": (net("TANH", [X], IMAGE, ODD), 0.95, 1),
    "HARD_SWISH": (net("HARD_SWISH", [X], IMAGE, Y, "HardSwishOptions", version=1), 0.9, 1),
    "LEAKY_RELU": (net("LEAKY_RELU", [X], IMAGE, Y, "LeakyReluOptions", alpha=0.3), 0.95, 1),
    "RELU": (net("RELU", [X], IMAGE, X), 1.0, 0),
    "MAX_POOL_2D": (
        net(
            "MAX_POOL_2D",
            [X],
            (1, 3, 3, 8),
            X,
            "Pool2DOptions",
            strideH=2,
            strideW=2,
            filterHeight=3,
            filterWidth=3,
            padding=0,
            fusedActivationFunction=0,
        ),
        1.0,
        0,
    ),
    "MEAN": (
        net("MEAN", [X], (1, 1, 1, 8), Y, "ReducerOptions", [np.array([1, 2], np.int32)], keepDims=True),
        0.9,
        1,
    ),
    "RESIZE_BILINEAR": (
        net(
            "RESIZE_BILINEAR",
            [X],
            (1, 12, 12, 8),
            X,
            "ResizeBilinearOptions",
            [np.array([12, 12], np.int32)],
            halfPixelCenters=True,
            version=3,
        ),
        0.9,
        1,
    ),
    "CONCATENATION": (
        net(
            "CONCATENATION",
            [X, X],
            (1, 6, 6, 16),
            X,
            "ConcatenationOptions",
            axis=3,
            fusedActivationFunction=0,
        ),
        1.0,
        0,
    ),
    "SOFTMAX": (net("SOFTMAX", [X], IMAGE, UNIT, "SoftmaxOptions", beta=1.0), 0.95, 1),
}


@pytest.mark.parametrize("kind", CASES)
def test_an_operator_gives_the_reference_s_codes(kind: str) -> None:
    data, least, apart = CASES[kind]
    shares = per_layer(data, 8)
    assert len(shares) >= 1, "no integer layer was compared"
    for name, (equal, worst) in shares.items():
        assert worst <= apart and equal >= least, (name, equal, worst)
