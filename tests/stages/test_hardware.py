"""The target enters rewriting where a rule asks for it; other networks are rewritten once for all targets."""

from __future__ import annotations

import numpy as np
import pytest

from npuflow.frontends import FRONTENDS, Bindings
from npuflow.hw.target import Compute, Dma, Memory
from npuflow.rules import Hardware
from npuflow.stages.hardware import hardware
from npuflow.stages.model import Model
from tests.networks.onnx_text import model


@pytest.mark.parametrize(
    ("operator", "channels", "size", "asked"),
    [
        ("ConvTranspose<strides=[2,2]>", 2, 8, True),
        ("Conv", 2, 3, False),
        ("Conv<group=2>", 4, 3, True),
        ("Conv<group=2>", 2, 3, False),       # groups of one input channel
    ],
)
def test_the_target_is_known_where_a_rule_asks(operator: str, channels: int, size: int, asked: bool) -> None:
    weights = {"w": np.ones((2, channels // (2 if "group" in operator else 1), 2, 2), np.float32)}
    data = model(f"float[1,{channels},4,4] x => float[1,2,{size},{size}] y", f"y = {operator}(x, w)", weights)
    source = Model("onnx", FRONTENDS["onnx"]().read(data, Bindings()), {})
    compute = Compute(array_cols=16)
    found = hardware.function(source, compute, Memory(), Dma())
    assert found.hardware == (Hardware.of(compute, Memory(), Dma()) if asked else None)
    assert found.known.columns == (16 if asked else 32)
