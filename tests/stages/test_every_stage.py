"""The published suite of stages on every stage that a recipe with many tables runs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from npuflow.flow.stage import STAGES
from npuflow.testing.stage import Built, StageSuite, built, check_deterministic, check_keys, check_products
from tests.stages.test_sharded_builds import network

RECIPE = """
target = "edge-4t"
[model]
path = "net.onnx"
[data]
source = "x.npy"
count = 12
[calibrate]
method = "auto"
[evaluate]
source = "x.npy"
count = 4
[correct]
bias = "on"
[equalize]
[unify]
[round]
method = "coordinate"
[moments]
[prune]
pattern = "2:4"
permute = true
[prune.channels]
multiple = 2
[budget]
cycles = 1000000
[tiling]
minimise = "energy"
[ledger]
[sources]
[sequences]
[component]
outputs = ["y"]
[component.evaluation]
outputs = ["y"]
"""
NEVER = {"box_codes", "boxes", "channels", "judges", "judging", "labelled", "ranges", "search", "tune"}
NEVER |= {"shapes", "shape_programs", "package", "preprocess", "pixel_codes", "turned", "caches", "chunked"}
NEVER |= {"tokenizer"}
"""Stages that this recipe does not run: their tables exclude others, or need labels, detection heads, caches,
pictures, a checkpoint, a range of lengths or a search among widths; the tests of these stages check them."""


def recipe_in(folder: Path) -> Path:
    network(folder / "net.onnx")
    samples = np.random.default_rng(1).normal(0, 1, (16, 1, 12, 12)).astype(np.float32)
    np.save(folder / "x.npy", samples)
    (folder / "net.toml").write_text(RECIPE)
    return folder / "net.toml"


@pytest.fixture(scope="module")
def builds(tmp_path_factory: pytest.TempPathFactory) -> tuple[Built, Built]:
    folder = tmp_path_factory.mktemp("stages")
    recipe = recipe_in(folder)
    return built(recipe, folder / "one"), built(recipe, folder / "other", jobs=2)


@pytest.mark.parametrize("stage", [name for name in STAGES.names() if name not in NEVER])
def test_a_stage_is_deterministic_and_its_products_are_whole(stage: str, builds: tuple[Built, Built]) -> None:
    one, other = builds
    check_deterministic(one, other, stage)
    check_products(one, stage)


class TestStatistics(StageSuite):
    stage = "statistics"
    matters = ("data.count=9",)
    irrelevant = ("calibrate.method=minmax", "quantize.weights.bits=4")

    @pytest.fixture(autouse=True)
    def place(self, tmp_path: Path) -> None:
        recipe = recipe_in(tmp_path)
        # equalisation is judged by quantised networks: which graph statistics are of may follow their tables
        recipe.write_text(RECIPE.replace("[equalize]\n", ""))
        type(self).recipe = recipe


def test_the_suite_notices_a_key_that_does_not_count(tmp_path: Path) -> None:
    recipe = recipe_in(tmp_path)
    with pytest.raises(AssertionError, match=r"statistics: calibrate\.method=minmax does not change its key"):
        check_keys(recipe, tmp_path, "statistics", "calibrate.method=minmax", counts=True)
    with pytest.raises(AssertionError, match=r"data\.count=9 changes its key"):
        check_keys(recipe, tmp_path, "statistics", "data.count=9", counts=False)
