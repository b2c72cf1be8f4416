"""A classifier that gives its best scores and their places: a build by defaults keeps it on the NPU."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnxruntime

import npuflow
from tests.networks import recipes
from tests.networks.onnx_text import model, normal
from tests.stages.builds import made, products

BODY = (
    "c = Conv<kernel_shape=[3,3], pads=[1,1,1,1]>(x, w) s = Sigmoid(c) flat = Flatten(s) v, p = TopK(flat, k)"
)


def test_a_build_by_defaults_keeps_a_ranking_on_the_npu(tmp_path: Path) -> None:
    """The search of widths took the positions' type for the scores' and moved the network to the host."""
    held = {"w": normal(1, 4, 3, 3, 3, scale=0.3), "k": np.array([5], np.int64)}
    signature = "float[1,3,8,8] x => float[1,5] v, int64[1,5] p, float[1,256] flat"
    (tmp_path / "net.onnx").write_bytes(model(signature, BODY, held))
    (tmp_path / "net.toml").write_text(recipes.RECIPE)
    np.savez(tmp_path / "calib.npz", x=normal(2, 24, 3, 8, 8))
    result = made(tmp_path / "net.toml", until="codegen")
    (quantized,) = products(tmp_path / "net.toml", result, "quantize")
    assert quantized.share == 1
    feed = {"x": normal(77, 1, 3, 8, 8)}
    names = ["v", "p", "flat"]
    session = onnxruntime.InferenceSession(tmp_path / "net.onnx")
    real = dict(zip(names, session.run(names, feed), strict=True))
    found = npuflow.Runner(tmp_path / "out" / "net" / "model.npu").run(feed)
    for name in ("v", "flat"):
        noise = np.square(real[name] - found[name]).sum() / np.square(real[name]).sum()
        assert noise < 10 ** -2.8, name
    np.testing.assert_array_equal(np.take_along_axis(found["flat"], found["p"], 1), found["v"])
