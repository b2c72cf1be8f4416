"""A figure that an evaluation finds worse than the float network's is a warning of the build."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from npuflow import build
from npuflow.checks import evaluate as scoring
from npuflow.checks.evaluate import Score
from npuflow.flow.recipe import load
from npuflow.flow.recipe_build import Settings, open_cache
from npuflow.ir.op import OPS
from npuflow.metrics import METRICS, Metric, Outputs
from npuflow.stages.evaluate import Evaluation, score_axes
from tests.networks.floats import Net
from tests.networks.onnx_text import model

SCORE = Score("top1", 200, {"top1": 0.9}, {"top1": 0.9}, {}, None, 1.0)


def warning(score: Score) -> str:
    return str(Evaluation(score).summary().get("warning", ""))


@pytest.mark.parametrize("figure", (0.95, 0.9, 0.8901))
def test_a_point_or_less_is_no_warning(figure: float) -> None:
    assert warning(replace(SCORE, figures={"top1": figure})) == ""
    assert warning(replace(SCORE, figures={"top1": 0.99}, baseline={"top1": 1.0})) == ""


def test_more_than_a_point_is_one_with_both_figures() -> None:
    said = warning(replace(SCORE, figures={"top1": 0.86}))
    assert said == (
        "top1 is 4.0 points worse than the float network's (0.86, float 0.9) on 200 evaluation samples"
    )
    few = warning(replace(SCORE, figures={"top1": 0.86}, samples=50))
    assert few.endswith("on 50 evaluation samples (few samples: one is a point or more)")


def test_where_less_is_better_a_larger_figure_is_worse() -> None:
    score = replace(SCORE, figures={"ppl": 18.5}, baseline={"ppl": 18.0}, better="lower")
    assert "ppl is 2.8 % worse" in warning(score)
    assert warning(replace(score, figures={"ppl": 18.1})) == ""
    assert warning(replace(score, figures={"ppl": 17.0})) == ""
    rate = replace(score, figures={"errors": 0.06}, baseline={"errors": 0.025})
    assert "errors is 3.5 points worse" in warning(rate)


def test_decibels_of_the_float_network_against_itself_are_no_figure() -> None:
    assert warning(replace(SCORE, figures={"sqnr_db": 20.0}, baseline={"sqnr_db": 200.0})) == ""


def test_another_largest_value_of_what_is_no_row_of_scores_is_no_other_answer() -> None:
    score = replace(SCORE, figures={"agreement": 0.9}, baseline={"agreement": 1.0}, sqnr_db={"y": 28.0})
    assert warning(score) == ""                                     # a map: `agreement` is of its places
    assert "10.0 points worse" in warning(replace(score, agreement=0.9))
    assert warning(replace(score, agreement=0.9, sqnr_db={"y": 31.0})) == ""      # ties


class Fixed:
    """Gives the same outputs for every sample."""

    def __init__(self, **outputs: np.ndarray) -> None:
        self.outputs = outputs

    def run_many(self, samples: Sequence[object]) -> list[dict[str, np.ndarray]]:
        return [dict(self.outputs)] * len(samples)


class Listed:
    """Gives a row for each number of a sample."""

    def __init__(self, rows: np.ndarray) -> None:
        self.rows = rows

    def run_many(self, samples: Sequence[Mapping[str, np.ndarray]]) -> list[dict[str, np.ndarray]]:
        return [{"y": self.rows[sample["x"]]} for sample in samples]


def test_outputs_that_the_metric_depends_on_are_known_where_it_is_kept() -> None:
    """A metric that looks at the shape of another output does not depend on it."""
    pair = {"sure": np.array([[0.9]], np.float32), "box": np.array([[1.0, 2.0]], np.float32)}

    class Found(Metric):
        needs_labels = False

        def __call__(self, outputs: Outputs, reference: Outputs, labels: object) -> dict[str, float]:
            scores = next(a for a in outputs.values() if a.shape[-1] == 1)
            return {"found": float((scores > 0.5).mean())}

    feeds = [({}, None)] * 3
    kept = scoring.score(feeds, Fixed(**pair), Fixed(**pair), Found(), "found", 1.0)
    assert kept.reads == ("sure",)
    steps = Fixed(y=np.eye(4, dtype=np.float32)[None], z=np.ones((1, 3), np.float32))
    assert scoring.score(feeds, steps, steps, METRICS["agreement"](axis=-1), "agreement", 1.0).reads == ("y",)
    off = Fixed(**pair | {"sure": np.array([[0.1]], np.float32)})
    assert scoring.score(feeds, off, Fixed(**pair), Found(), "found", 1.0).reads == ()


@pytest.mark.parametrize(
    ("kind", "answers"),
    [("logits", True), ("probabilities", True), ("tags", True), ("embedding", False), ("unit", False)],
)
def test_the_greatest_number_of_an_embedding_is_no_answer(kind: str, answers: bool) -> None:
    """Another one is the greatest there after hardly any noise, and that is no reason for a warning."""
    rng = np.random.default_rng(1)
    made = rng.normal(size=(60, 128))
    if kind in ("logits", "probabilities", "tags"):
        made[np.arange(60), rng.integers(0, 128, 60)] += 9.0
    if kind == "probabilities":
        made = np.exp(made) / np.exp(made).sum(1, keepdims=True)
    elif kind == "tags":
        made = 1 / (1 + np.exp(4 - made))
    elif kind == "unit":
        made = np.maximum(made, 0) / np.linalg.norm(np.maximum(made, 0), axis=1, keepdims=True)
    noisy = made + 0.2 * np.abs(made).mean() * rng.normal(size=made.shape)
    feeds = [({"x": np.array([i])}, None) for i in range(60)]
    program, real = (Listed(rows.astype(np.float32)) for rows in (noisy, made))
    score = scoring.score(feeds, program, real, METRICS["agreement"](), "agreement", 1.0)
    assert (score.agreement is not None) == answers
    assert answers or (score.figures["agreement"] < 0.95 and score.loss == 0.0 and not score.kept)


@pytest.mark.parametrize(
    ("shape", "axis", "found"),
    [((1, 8, 3), -1, -1), ((1, 8, 3), 1, -2), ((1, 8), -1, None), ((1, 1, 8), -1, None)],
)
def test_scores_of_each_step_have_the_axis_of_their_softmax(
    shape: tuple[int, ...], axis: int, found: int | None
) -> None:
    net = Net(0, *shape)
    assert score_axes(net.graph(net.add("p", OPS["softmax"](axis=axis), "x"))) == {"p": found}
    plain = Net(0, *shape)
    assert score_axes(plain.graph(plain.add("p", OPS["tanh"](), "x"))) == {"p": None}


@pytest.mark.parametrize(
    ("options", "counts"), [({}, False), ({"output": "p"}, True), ({"axis": -1}, True)], ids=str
)
def test_equal_answers_count_of_the_output_that_has_an_axis(
    tmp_path: Path, options: dict[str, object], counts: bool
) -> None:
    """Not because another one has a Softmax: the greatest of all numbers of a map is no answer."""
    body = "h = MatMul(x, w) y = Tanh(h) p = Softmax(h)"
    signature = "float[1,6,4] x => float[1,6,5] y, float[1,6,5] p"
    rng = np.random.default_rng(0)
    (tmp_path / "net.onnx").write_bytes(model(signature, body, {"w": rng.normal(size=(4, 5)).astype("f4")}))
    np.savez(tmp_path / "x.npz", x=rng.normal(size=(20, 1, 6, 4)).astype(np.float32))
    said = "".join(f"[evaluate.agreement]\n{key} = {value!r}\n" for key, value in options.items())
    recipe = tmp_path / "net.toml"
    recipe.write_text(
        'target = "edge-4t"\n[model]\npath = "net.onnx"\n[data]\nsource = "x.npz"\n[precision]\n'
        f'strategy = "none"\n[evaluate]\nsource = "x.npz"\n{said}'
    )
    done = build(recipe, cache=tmp_path / "cache", out=tmp_path / "out", until="evaluate")
    store = open_cache(load(recipe), Settings(cache=tmp_path / "cache"))
    score = store.load(done.outputs["evaluate"], Evaluation).score
    assert (score.agreement is not None) == counts
    assert not counts or score.agreement == score.figures["agreement"]
