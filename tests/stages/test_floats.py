"""A recipe in bf16 from end to end: nothing is calibrated, the program is exact, the report is written."""

from __future__ import annotations

from pathlib import Path

from npuflow.flow.recipe import load
from npuflow.flow.recipe_build import Settings, open_cache, plan_recipe, run_plan
from npuflow.flow.signature import signature
from npuflow.flow.stage import STAGES

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
