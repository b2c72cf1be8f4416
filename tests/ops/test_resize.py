"""Resize in exported models: sizes that do not hang on the runtime's arithmetic."""

from __future__ import annotations

import numpy as np
import pytest

from npuflow.onnx.export import export_model
from npuflow.onnx.run import run
from npuflow.testing.rule import graph_of
from tests.networks.onnx_text import model


@pytest.mark.parametrize(("size", "made"), [(6, 7), (7, 6), (5, 8), (3, 10), (49, 48), (8, 16)])
def test_sizes_are_kept(size: int, made: int) -> None:
    """6 times 7 / 6 in float32 is 7 there, and 6.99999976 in float64."""
    body = 'r = Resize<mode="linear">(x, none, none, to) y = Expand(r, wide)'
    weights = {
        "none": np.zeros(0, np.float32),
        "to": np.array([1, 1, made, 4]),
        "wide": np.array([2, 1, 1, 1]),
    }
    graph = graph_of(model(f"float[1,1,{size},4] x => float[2,1,{made},4] y", body, weights))
    (found,) = run(export_model(graph), {"x": np.ones((1, 1, size, 4), np.float32)})
    assert found.shape == (2, 1, made, 4)


def test_a_fraction_that_is_cut_keeps_its_scale() -> None:
    """5 rows by 1.25 are 6, sampled every 0.8 rows."""
    weights = {"none": np.zeros(0, np.float32), "by": np.array([1, 1, 1.25, 1], np.float32)}
    data = model("float[1,1,5,4] x => float[1,1,6,4] y", 'y = Resize<mode="linear">(x, none, by)', weights)
    x = np.random.default_rng(0).normal(size=(1, 1, 5, 4)).astype(np.float32)
    (found,), (wanted,) = run(export_model(graph_of(data)), {"x": x}), run(data, {"x": x})
    np.testing.assert_array_equal(found, wanted)
