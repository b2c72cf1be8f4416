"""What a build says of its outputs is what its program gives, to the bit."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from onnx import parser

from npuflow import Runner, build
from npuflow.flow.recipe import load as recipe_of
from npuflow.flow.recipe_build import Settings, open_cache
from npuflow.stages.splits import Splits
from npuflow.stages.verdict import Verdict
from tests.networks.recipes import RECIPE

WIDE = "[quantize.activations]\nbits = 16\n"


def test_a_function_that_is_interpolated(tmp_path: Path) -> None:
    """An exponential over 16-bit codes: a table holds one in some hundred of them, and lines between. Real
    numbers rounded to 16 bits have another figure."""
    rng = np.random.default_rng(0)
    model = parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 17]> g (float[1,64] x) => (float[1,64] y) { y = Exp(x) }'
    )
    (tmp_path / "net.onnx").write_bytes(model.SerializeToString())
    rows = rng.uniform(0, 20, (40, 1, 64)).astype(np.float32)
    np.savez(tmp_path / "calib.npz", x=rows)
    recipe = tmp_path / "net.toml"
    recipe.write_text(RECIPE + WIDE)
    made = build(recipe, cache=tmp_path / "cache", out=tmp_path / "out")
    store = open_cache(recipe_of(recipe), Settings(cache=tmp_path / "cache"))
    (said,) = store.load(made.outputs["verdict"], Verdict).outputs
    verifying = store.load(made.outputs["splits"], Splits).verify
    program = Runner(made.products["program"])
    real = onnxruntime.InferenceSession(model.SerializeToString())
    signal = noise = 0.0
    for name in verifying:
        x = rows[int(name.partition("#")[2])]
        truth, found = real.run(None, {"x": x})[0].astype(np.float64), program.run({"x": x})["y"]
        signal, noise = signal + float((truth**2).sum()), noise + float(((truth - found) ** 2).sum())
    assert said.output.sqnr == pytest.approx(10 * np.log10(signal / noise), abs=1e-6)
