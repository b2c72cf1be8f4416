"""What a change of the data recomputes: new samples alone, and nothing when only their
neighbours in a file are new."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import parser

from npuflow.flow.recipe import load
from npuflow.flow.recipe_build import Settings, open_cache, plan_recipe, run_plan
from npuflow.flow.stage import STAGES
from npuflow.stages.splits import Splits

TEXT = """<ir_version: 8, opset_import: ["" : 17]> g (float[1,3,8,8] x) => (float[1,4,8,8] y) {
    a = Conv<pads=[1,1,1,1]>(x, k) y = Relu(a) }"""
RECIPE = """
target = "edge-4t"
[model]
path = "net.onnx"
[data]
source = "%s"
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    proto = parser.parse_model(TEXT)
    weights = np.random.default_rng(0).normal(size=(4, 3, 3, 3)).astype(np.float32)
    proto.graph.initializer.append(onnx.numpy_helper.from_array(weights, "k"))
    onnx.save_model(proto, str(tmp_path / "net.onnx"))
    return tmp_path


DIVIDED = {"splits", "fit", "choose"}


def built(project: Path, until: str = "clipping") -> dict[str, int]:
    """Items and steps that ran, by stage."""
    settings = Settings(cache=project / "cache", until=until)
    recipe = load(project / "recipe.toml", [])
    plan, store = plan_recipe(recipe, STAGES, settings), open_cache(recipe, settings)
    ran: dict[str, int] = {}

    def count(event: object) -> None:
        if getattr(event, "status", None) == "ran":
            ran[event.stage] = ran.get(event.stage, 0) + 1  # type: ignore[attr-defined]

    run_plan(plan, recipe, store, settings, count).check()
    return ran


def parts(project: Path) -> Splits:
    """How the samples are divided."""
    settings = Settings(cache=project / "cache", until="splits")
    recipe = load(project / "recipe.toml", [])
    store = open_cache(recipe, settings)
    result = run_plan(plan_recipe(recipe, STAGES, settings), recipe, store, settings).check()
    return store.load(result.outputs["splits"], Splits)


def pictures(folder: Path, first: int, count: int) -> None:
    from PIL import Image

    rng = np.random.default_rng(first)
    folder.mkdir(exist_ok=True)
    for i in range(first, first + count):
        Image.fromarray(rng.integers(0, 256, (8, 8, 3), dtype=np.uint8)).save(folder / f"{i:04}.png")


def test_a_hundred_more_images_compute_a_hundred(project: Path) -> None:
    pictures(project / "images", 0, 20)
    (project / "recipe.toml").write_text(RECIPE % "images")
    first, before = built(project), parts(project)
    assert first["samples"] == 20 and first["statistics.items"] == len(before.fit) == 11
    pictures(project / "images", 20, 100)
    more, after = built(project), parts(project)
    assert more["samples"] == 100 and more["statistics.items"] == len({*after.fit} - {*before.fit}) < 70
    merges = {"statistics.merge1", "statistics.merge2", "statistics"}
    assert {*more} - DIVIDED - {"thresholds", "clipping"} == {"samples", "statistics.items", *merges}
    (project / "images" / after.fit[7]).unlink()
    less = built(project)
    moved = {*parts(project).fit} - {*after.fit}
    assert "samples" not in less and less.get("statistics.items", 0) == len(moved) <= 2
    # of several shards, those that it was in and that others came to
    assert less["statistics.merge1"] <= 1 + len(moved)
    assert built(project) == {}


def test_names_and_order_of_files_divide_nothing(project: Path) -> None:
    pictures(project / "images", 0, 20)
    (project / "recipe.toml").write_text(RECIPE % "images")
    built(project)
    before = parts(project)
    for path in sorted((project / "images").glob("*.png")):
        path.rename(path.with_name(f"x{99 - int(path.stem)}.png"))
    after = parts(project)
    assert [f"x{99 - int(name[:4])}.png" for name in before.verify] == list(after.verify)


def test_more_rows_in_a_file_are_read_again_but_observed_once(project: Path) -> None:
    rows = np.random.default_rng(1).normal(size=(30, 3, 8, 8)).astype(np.float32)
    (project / "recipe.toml").write_text(RECIPE % "d.npz")
    np.savez(project / "d.npz", x=rows[:11])
    assert built(project)["statistics.items"] == 7
    before = {name.partition("#")[2].zfill(2) for name in parts(project).fit}
    np.savez(project / "d.npz", x=rows)
    more = built(project)
    after = {name.partition("#")[2] for name in parts(project).fit}
    assert more["statistics.items"] == len(after - before) < len(after) == 17


def test_a_sample_with_nan_is_left_out_by_name(project: Path) -> None:
    rows = np.random.default_rng(1).normal(size=(20, 3, 8, 8)).astype(np.float32)
    rows[3, 0, 0, 0] = np.nan
    (project / "recipe.toml").write_text(RECIPE % "d.npz")
    np.savez(project / "d.npz", x=rows)
    settings = Settings(cache=project / "cache", until="statistics")
    recipe = load(project / "recipe.toml", [])
    plan, store = plan_recipe(recipe, STAGES, settings), open_cache(recipe, settings)
    result = run_plan(plan, recipe, store, settings).check()
    about = store.open(result.refs["statistics"].digest).json("about")
    assert [name for name, _ in about["broken"]] == ["d.npz#03"] and "1 NaN" in about["broken"][0][1]
    divided = parts(project)
    assert len(about["samples"]) == len(divided.fit)
    assert "d.npz#03" not in divided.fit and len({*divided.fit, *divided.choose, *divided.verify}) == 19
