"""No choice of a build sees the samples that verify it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from npuflow import build
from npuflow.flow.recipe import load
from npuflow.flow.recipe_build import Settings, open_cache
from npuflow.flow.run_state import Result
from npuflow.ir.op import OPS
from npuflow.onnx.export import export_model
from npuflow.stages.splits import Splits
from npuflow.stages.verdict import Verdict
from tests.networks.by_hand import Net
from tests.tiers import often

RECIPE = """
target = "edge-4t"
[model]
path = "net.onnx"
[data]
source = "calib.npz"
[calibrate]
method = "auto"
[tune]
[search]
[unify]
[equalize]
[round]
[precision]
strategy = "greedy"
sqnr_db = 40
[quantize.weights]
bits = 4
per = "tensor"
"""


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    net = Net(1, 4, 8, 8)
    net.conv("c1", "x", 8, clip=(0.0, float("inf")))
    net.conv("c2", "c1", 8, clip=(0.0, float("inf")))
    net.add("sum", OPS["add"](), "c1", "c2")
    net.conv("y", "sum", 4)
    (tmp_path / "net.onnx").write_bytes(export_model(net.graph("y")))
    save(tmp_path, net.rng.normal(size=(30, 4, 8, 8)).astype(np.float32))
    (tmp_path / "net.toml").write_text(RECIPE)
    return tmp_path / "net.toml"


def save(folder: Path, rows: np.ndarray) -> None:
    np.savez(folder / "calib.npz", x=rows)


def made(recipe: Path, until: str) -> Result:
    return build(recipe, cache=recipe.parent / "cache", out=recipe.parent / "out", until=until)


def parts(recipe: Path) -> Splits:
    store = open_cache(load(recipe), Settings(cache=recipe.parent / "cache"))
    return store.load(made(recipe, "splits").outputs["splits"], Splits)


def test_other_samples_that_verify_change_no_choice(recipe: Path) -> None:
    """Planted: samples a hundred times as large, which any range, width or rounding would follow."""
    before, divided = made(recipe, "verdict"), parts(recipe)
    rng, rows = np.random.default_rng(0), np.load(recipe.parent / "calib.npz")["x"]
    planted = 0
    for name in divided.verify:
        if planted == 3:
            break
        at, kept = int(name.partition("#")[2]), rows.copy()
        for _ in range(40):                                # until one is among those that verify, too
            rows[at] = 100 * rng.normal(size=rows[at].shape)
            save(recipe.parent, rows)
            now = parts(recipe)
            if (sorted(now.fit), sorted(now.choose)) == (sorted(divided.fit), sorted(divided.choose)):
                planted += 1
                break
        else:
            rows = kept
    save(recipe.parent, rows)
    assert planted >= 3, "no sample could be planted"
    after = made(recipe, "verdict")
    apart = {name for name, digest in before.outputs.items() if after.outputs[name] != digest}
    assert "verdict" in apart
    assert apart <= {"samples", "splits", "verify", "verdict", "input_check"}
    choosing = {"clipping", "search", "tune", "unify", "equalize", "rounded", "precision", "correct"}
    assert choosing <= {*after.status}


@pytest.mark.slow
def test_other_samples_that_choose_may_change_choices(recipe: Path) -> None:
    """The other way round: what is planted among these is seen."""
    before, divided = made(recipe, "quantize"), parts(recipe)
    rows = np.load(recipe.parent / "calib.npz")["x"]
    for name in divided.fit:
        rows[int(name.partition("#")[2])] *= 3.0
    save(recipe.parent, rows)
    assert made(recipe, "quantize").outputs["quantize"] != before.outputs["quantize"]


@pytest.mark.parametrize("count", often([2, 6], 2))
def test_samples_that_cannot_be_read_leave_no_part_empty(recipe: Path, count: int) -> None:
    rows = np.load(recipe.parent / "calib.npz")["x"][:count].copy()
    for at in range(count):
        broken = rows.copy()
        broken[at, 0, 0, 0] = np.nan
        save(recipe.parent, broken)
        divided = parts(recipe)
        named = {*divided.fit, *divided.choose, *divided.verify}
        assert len(named) == count - 1 and f"calib.npz#{at}" not in named
        assert divided.fit and (count == 2 or divided.choose)
        made(recipe, "clipping").check()


def test_few_samples_are_said_to_verify_nothing(recipe: Path) -> None:
    rows = np.load(recipe.parent / "calib.npz")["x"]
    save(recipe.parent, rows[:5])
    result = made(recipe, "verdict")
    assert not parts(recipe).verify
    store = open_cache(load(recipe), Settings(cache=recipe.parent / "cache"))
    verdict = store.load(result.outputs["verdict"], Verdict)
    assert verdict.samples == 1 and not verdict.verified
    assert "on 1 calibration sample that choices were made by" in verdict.statement.text
