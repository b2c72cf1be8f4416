"""Metrics of language models against figures worked by hand, and evaluations that keep no outputs."""

from __future__ import annotations

import math
import tracemalloc
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from npuflow.base.errors import DataError
from npuflow.checks.evaluate import score
from npuflow.metrics import METRICS

Array = np.ndarray[Any, Any]
RNG = np.random.default_rng(4)


def softmax(logits: Array) -> Array:
    raised = np.exp(logits)
    return raised / raised.sum(-1, keepdims=True)


class Given:
    """A model that gives these logits, a run after another."""

    def __init__(self, logits: Sequence[Array], more: Mapping[str, Array] | None = None) -> None:
        self.rest, self.more = iter(logits), dict(more or {})

    def run_many(self, samples: Sequence[Mapping[str, Array]]) -> list[dict[str, Array]]:
        return [{"logits": next(self.rest)[None], **self.more} for _ in samples]


def scored(name: str, mine: Array, theirs: Array, labels: Sequence[Any], **options: Any) -> Any:
    feeds = [({"tokens": np.zeros((1, 1))}, label) for label in labels]
    return score(feeds, Given(mine), Given(theirs), METRICS[name](**options), name, 1.0)


def test_perplexity_of_equal_scores_is_the_number_of_tokens() -> None:
    logits = np.full((6, 50), 3.5, np.float32)
    found = METRICS["perplexity"]()({"y": logits}, {"y": logits}, [[7]] * 6)
    assert found == {"perplexity": pytest.approx(50.0)}


def test_perplexity_is_of_the_tokens_that_follow() -> None:
    """By the product of probabilities; the run behind which no token is known counts nothing."""
    mine, theirs = (RNG.standard_normal((4, 9)).astype(np.float32) * 3 for _ in range(2))
    following = [3, 0, 8]
    got = scored("perplexity", mine, theirs, [[t] for t in [*following, -1]])
    for logits, figures in ((mine, got.figures), (theirs, got.baseline)):
        product = math.prod(softmax(logits)[i, t] for i, t in enumerate(following))
        assert figures["perplexity"] == pytest.approx(product ** (-1 / 3), rel=1e-5)
    assert got.better == "lower" and got.samples == 4
    assert got.agreement == np.mean(mine.argmax(1) == theirs.argmax(1))
    signal, noise = (float((one.astype(float) ** 2).sum()) for one in (theirs, mine - theirs))
    assert got.sqnr_db["logits"] == pytest.approx(10 * math.log10(signal / noise), abs=1e-4)


def test_a_run_of_several_tokens_is_scored_behind_each_or_behind_its_last() -> None:
    every = RNG.standard_normal((2, 1, 3, 9)).astype(np.float32)
    labels = [[3, 0, 8], [1, 2, -1]]
    levels = -np.log(softmax(every))
    wanted = np.exp(np.mean([levels[0, 0, 0, 3], levels[0, 0, 1, 0], levels[0, 0, 2, 8],
                             levels[1, 0, 0, 1], levels[1, 0, 1, 2]]))
    got = scored("perplexity", every[:, 0], every[:, 0], labels)
    assert got.figures["perplexity"] == pytest.approx(wanted, rel=1e-5)
    last = scored("perplexity", every[:, 0, 2], every[:, 0, 2], labels)
    assert last.figures["perplexity"] == pytest.approx(float(np.exp(levels[0, 0, 2, 8])), rel=1e-5)


def test_a_certain_mistake_has_a_number() -> None:
    logits = np.array([[0.0, 5000.0]])
    assert math.isfinite(METRICS["perplexity"]()({"y": logits}, {"y": logits}, [[0]])["perplexity"])


def test_kl_is_the_divergence_from_the_float_model() -> None:
    mine, theirs = (RNG.standard_normal((5, 9)).astype(np.float32) for _ in range(2))
    p, q = softmax(theirs.astype(float)), softmax(mine.astype(float))
    got = scored("kl", mine, theirs, [None] * 5)
    assert got.figures["kl"] == pytest.approx(float((p * np.log(p / q)).sum(1).mean()), rel=1e-6)
    assert got.baseline["kl"] == 0.0 and got.better == "lower"
    shifted = scored("kl", theirs + 3, theirs, [None] * 5)
    assert shifted.figures["kl"] == pytest.approx(0.0, abs=1e-6)


def question(name: str, answer: int, choice: int, tokens: Sequence[int], characters: int) -> list[Any]:
    about = {"question": name, "choice": choice, "answer": answer, "characters": characters}
    return [{**about, "next": [token]} for token in (*tokens, -1)]


def test_choice_takes_the_most_likely_continuation() -> None:
    """The right one of the first question is the most likely by a token, the other one in all."""
    logits = np.log(np.array([[0.5, 0.4, 0.1]] * 8, np.float32))
    steps = [
        *question("a", 0, 0, [0, 0], 9), *question("a", 0, 1, [1], 1),            # .25 of two, .4 of one
        *question("b", 1, 0, [1], 2), *question("b", 1, 1, [2], 8)[:-1],          # .4, .1
    ]
    for how, wanted in (("no", 0.0), ("tokens", 0.5), ("characters", 1.0)):
        got = scored("choice", logits, logits, steps, by_length=how)
        assert got.figures["choice"] == got.baseline["choice"] == wanted


def test_choice_needs_the_scores_behind_every_token() -> None:
    label = {"question": "a", "choice": 0, "answer": 0, "characters": 2, "next": [1, 2]}
    with pytest.raises(DataError, match="of its last token alone") as fault:
        scored("choice", RNG.standard_normal((1, 9)), RNG.standard_normal((1, 9)), [label])
    assert fault.value.where.key == "evaluate.choice"


@pytest.mark.parametrize(
    ("metric", "label", "said"),
    [
        ("perplexity", {"question": "a", "next": [1]}, "takes text"),
        ("perplexity", None, "takes text"),
        ("perplexity", [-1], "no token could be scored"),
        ("perplexity", [1, 2, 3], "scores behind 2 tokens"),
        ("choice", [3], "takes questions"),
    ],
)
def test_labels_of_another_kind_are_one_error(metric: str, label: Any, said: str) -> None:
    logits = RNG.standard_normal((1, 2 if "behind" in said else 1, 9))
    with pytest.raises(DataError, match=said) as fault:
        scored(metric, logits, logits, [label])
    assert fault.value.where.key == f"evaluate.{metric}"


def test_what_is_no_row_of_scores_is_an_error() -> None:
    with pytest.raises(DataError, match="has no scores of tokens"):
        METRICS["perplexity"]()({"y": np.zeros((3, 1))}, {"y": np.zeros((3, 1))}, [[0]] * 3)


def test_outputs_are_not_kept() -> None:
    """600 runs of 50,000 scores are 120 MB for each of both models."""
    def many() -> Iterator[Array]:
        rng = np.random.default_rng(0)
        for _ in range(600):
            yield rng.standard_normal(50_000, np.float32)

    feeds = (({"tokens": np.zeros((1, 1))}, [5]) for _ in range(600))
    tracemalloc.start()
    try:
        got = score(feeds, Given(many()), Given(many()), METRICS["perplexity"](), "perplexity", 1.0)
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert got.samples == 600 and most < 20e6
