"""A recipe in bf16 from end to end: nothing is calibrated, the program is exact, the report is written."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx import parser

from npuflow.flow.recipe import load
from npuflow.flow.recipe_build import Settings, open_cache, plan_recipe, run_plan
from npuflow.flow.signature import signature
from npuflow.flow.stage import STAGES
from npuflow.place.place import op_name

ROOT = Path(__file__).resolve().parents[2]
SETS = [
    'target="bm1684x"',
    'quantize.mode="bf16"',
    "data.count=3",
    "fidelity.samples=1",
    "simulate.samples=1",
    "qdq_check.samples=1",
    "evaluate.count=2",
    "tiling.level=1",
]


def test_a_network_in_bf16_is_built_without_calibration(tmp_path: Path) -> None:
    settings = Settings(cache=tmp_path / "cache", jobs=1, scheduler="threads", publish=False)
    recipe = load(ROOT / "recipes" / "fashion.toml", SETS)
    plan, store = plan_recipe(recipe, STAGES, settings), open_cache(recipe, settings)
    assert plan.off["statistics"] == '[quantize] mode = "bf16" leaves no integers: nothing is calibrated'
    assert not {"statistics", "thresholds", "precision", "baseline"} & {step.name for step in plan}
    result = run_plan(plan, recipe, store, settings).check()
    simulation, fidelity, quantized, report = (
        store.load(result.outputs[name], signature(STAGES[name]).output)
        for name in ("simulate", "fidelity", "quantize", "report")
    )
    seen = simulation.summary()
    assert (seen["different"], seen["hazards"]) == (0, 0) and seen["tensors"] > 40
    assert fidelity.summary()["worst_sqnr_db"] > 35
    assert quantized.summary()["host_macs"] == 0
    assert report.data["accuracy"]["ok"]


EMBEDDED = """<ir_version: 8, opset_import: ["" : 17]> g (int64[1,4] ids) => (float[1,4,2] y)
    { e = Gather (words, ids) y = MatMul (e, w) }"""


def test_indices_from_outside_are_integers_beside_floats(tmp_path: Path) -> None:
    """They are moved before the look-up, and have no range of their own."""
    model, rng = parser.parse_model(EMBEDDED), np.random.default_rng(4)
    for name, shape in (("words", (5, 3)), ("w", (3, 2))):
        real = rng.normal(size=shape).astype(np.float32)
        model.graph.initializer.append(onnx.numpy_helper.from_array(real, name))
    onnx.save(model, tmp_path / "model.onnx")
    np.savez(tmp_path / "ids.npz", ids=rng.integers(0, 5, (4, 4)))
    text = '[model]\npath = "model.onnx"\n[data]\nsource = "ids.npz"\n'
    (tmp_path / "recipe.toml").write_text(text)
    settings = Settings(cache=tmp_path / "cache", jobs=1, scheduler="threads", publish=False)
    recipe = load(tmp_path / "recipe.toml", ['target="bm1684x"', 'quantize.mode="bf16"'])
    plan, store = plan_recipe(recipe, STAGES, settings), open_cache(recipe, settings)
    result = run_plan(plan, recipe, store, settings).check()
    simulation, quantized = (
        store.load(result.outputs[name], signature(STAGES[name]).output) for name in ("simulate", "quantize")
    )
    assert (simulation.summary()["different"], quantized.summary()["host_macs"]) == (0, 0)
    assert {"lookup", "matmul"} <= {op_name(node) for node in quantized.graph.nodes}
