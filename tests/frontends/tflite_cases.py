"""TFLite networks of one operator, in floats, with inputs for them: what tests make tables of."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tests.frontends.tflite_models import Net

WINDOW = {"strideH": 2, "strideW": 1, "fusedActivationFunction": 0}
CONV = {**WINDOW, "dilationHFactor": 1, "dilationWFactor": 1}
F4, F2 = (1, 4, 6, 8), (3, 5)
Shape = tuple[int, ...]
Cases = dict[str, Callable[[], tuple[bytes, list[np.ndarray]]]]


def add(
    cases: Cases,
    name: str,
    kind: str,
    shapes: list[Shape],
    out: Shape | list[Shape],
    options: str = "",
    constants: tuple[Any, ...] = (),
    first: bool = False,
    dtype: str = "float32",
    given: str = "float32",
    positive: bool = False,
    before: bool = False,
    **fields: Any,
) -> None:
    """A network of one operator of `kind` under a name of its own.

    `constants`: operands behind the inputs, or before them where `first`. `before`: a convolution of one
    pixel is in front of the first input, so that it comes in the layout of convolutions.
    """

    def made() -> tuple[bytes, list[np.ndarray]]:
        rng, net = np.random.default_rng(len(name)), Net()
        inputs = [net.tensor(f"x{i}", shape, given) for i, shape in enumerate(shapes)]
        held = [net.constant(f"k{i}", value) for i, value in enumerate(constants)]
        outs = [
            net.tensor(f"y{i}", shape, dtype)
            for i, shape in enumerate(out if isinstance(out, list) else [out])
        ]
        used = list(inputs)
        if before:
            depth = shapes[0][3]
            net.constant("w", rng.standard_normal((depth, 1, 1, depth)).astype(np.float32))
            net.constant("b", np.zeros(depth, np.float32)), net.tensor("t", shapes[0])
            net.op("CONV_2D", ["x0", "w", "b"], ["t"], "Conv2DOptions", padding=1, **CONV | {"strideH": 1})
            used[0] = "t"
        net.op(kind, [*held, *used] if first else [*used, *held], outs, options, **fields)
        feeds: list[np.ndarray] = []
        for shape in shapes:
            if given == "bool":
                feeds.append(rng.integers(0, 2, shape).astype(bool))
            elif given.startswith("int"):
                feeds.append(rng.integers(1, 5, shape).astype(given))
            else:
                values = rng.standard_normal(shape)
                feeds.append((np.abs(values) + 0.1 if positive else values).astype(np.float32))
        return net.done(inputs, outs), feeds

    assert name not in cases
    cases[name] = made


def i32(*values: Any) -> np.ndarray:
    return np.array(values, np.int32)


def f32(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)
