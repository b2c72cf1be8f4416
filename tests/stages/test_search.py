"""Search by a task metric: labelled samples judge, and take no part in the evaluation."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from npuflow import build, load_recipe
from npuflow.base.errors import RecipeError
from npuflow.flow.recipe_build import Settings, open_cache
from npuflow.flow.refs import Files, Item
from npuflow.ir.op import OPS
from npuflow.metrics import METRICS
from npuflow.stages.evaluate import Evaluation, without
from npuflow.stages.labelled import identities
from npuflow.stages.search import RatedRanges, RivalRanges, ScoredRanges, winner
from npuflow.stages.thresholds import Thresholds
from npuflow.tune.judge import Judge, Rating
from npuflow.tune.metric import MetricJudge
from npuflow.tune.precision.range_search import SearchTable
from tests.networks.floats import Net

EXAMPLE = Path(__file__).resolve().parent.parent.parent / "examples/fashion"
RECIPE = f"""
target = "edge-4t"
[model]
path = "{EXAMPLE}/fashion.onnx"
inputs = {{ image = [1, 1, 28, 28] }}
[data]
source = "{EXAMPLE}/calib.npz"
count = 12
[[data.steps]]
normalize = {{ mean = [72.94], std = [90.02] }}
[[data.steps]]
layout = "nchw"
[search]
methods = ["minmax", "nstd"]
objective = "metric"
mix = false
samples = 4
[search.labelled]
source = "{EXAMPLE}/test.npz"
count = 30
[evaluate]
source = "{EXAMPLE}/test.npz"
count = 50
metric = "top1"
by = "reference"
"""


def rivals() -> dict[str, RivalRanges]:
    return {n: RivalRanges({"a": (0.0, float(i))}, {"a": n}) for i, n in enumerate(("recipe", "kl", "ema"))}


def picked(
    marks: dict[str, float] | None, sqnr: tuple[float, ...] = (10.0, 20.0, 19.0), objective: str = "metric"
) -> str:
    names = list(rivals())
    rated = {n: RatedRanges(Rating(db, 0.9)) for n, db in zip(names, sqnr, strict=True)}
    scored = {n: ScoredRanges({"top1": v}, {"top1": 1.0}) for n, v in (marks or {}).items()}
    marked = None if marks is None else scored
    first = Thresholds({"a": (0.0, 9.0)}, {"a": "mse"})
    return winner(rated, first, rivals(), marked, SearchTable(objective=objective)).methods["a"]  # type: ignore[arg-type]


def test_the_metric_decides_and_among_equals_the_outputs_do() -> None:
    assert picked({"recipe": 0.5, "kl": 0.6, "ema": 0.7}) == "ema"
    assert picked({"recipe": 0.7, "kl": 0.7, "ema": 0.6}) == "kl"
    # what the recipe's own method gave
    assert picked({"recipe": 0.7, "kl": 0.6, "ema": 0.6}) == "mse"
    assert picked({"recipe": 0.5, "kl": 0.6, "ema": 0.7}, objective="sqnr") == "kl"


def test_without_labelled_samples_the_metric_is_refused_by_its_key() -> None:
    with pytest.raises(RecipeError) as error:
        picked(None)
    assert error.value.where.key == "search.objective" and "[search.labelled]" in str(error.value)


def test_marks_are_the_metric_of_outputs_by_name() -> None:
    rows = [np.eye(4, dtype=np.float32)[[k]] for k in (2, 0, 3)]
    net = Net(1, 1, 4)
    judge = Judge(net.graph(net.add("scores", OPS["relu"](), "x")), [{"x": row} for row in rows])
    by = MetricJudge(judge, METRICS["top1"](), [2, 0, 1])
    assert by.truth["scores"].shape == (3, 4) and by.baseline == {"top1": pytest.approx(2 / 3)}
    assert by.marks([rows]) == by.baseline and by.drop([[-row for row in rows]]).drop == pytest.approx(2 / 3)


def test_samples_are_known_by_their_content_whatever_they_are_called(tmp_path: Path) -> None:
    paths = [tmp_path / name for name in ("a.png", "b.png", "c.png")]
    for path, text in zip(paths, ("one", "one", "two"), strict=True):
        path.write_text(text)
    picture, row = {"kind": "picture"}, {"kind": "arrays", "row": 3}
    rows = [("r3", (paths[0],), row), ("r4", (paths[0],), {**row, "row": 4})]
    found = dict(identities([*((p.name, (p,), picture) for p in paths), *rows]))
    assert found["a.png"] == found["b.png"] and len(set(found.values())) == 4
    files = Files({p.name: Item((p,), {"read": picture, "label": 0}) for p in paths})
    assert list(without(files, {found["a.png"]})) == ["c.png"]
    assert without(files, ()) is files


@pytest.mark.slow
def test_a_build_searches_by_its_labels_and_evaluates_on_others(tmp_path: Path) -> None:
    recipe = tmp_path / "net.toml"
    recipe.write_text(RECIPE)
    result = build(recipe, until="evaluate", cache=tmp_path / "cache")
    store = open_cache(load_recipe(recipe), Settings(cache=tmp_path / "cache"))
    assert store.load(result.outputs["evaluate"], Evaluation).score.samples == 20
    # never nstd
    assert set(store.load(result.outputs["search"], Thresholds).methods.values()) <= {"minmax", "mse", "kl"}
    again = build(recipe, ["search.labelled.count=31"], until="search.marked", cache=tmp_path / "cache")
    assert sum(how == "ran" for how in again.status["labelled"].values()) == 1
