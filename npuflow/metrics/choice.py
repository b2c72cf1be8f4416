"""Questions with several continuations: the share whose right one the network finds the most likely."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from npuflow.base.errors import DataError
from npuflow.metrics import METRICS, Outputs, RowMetric
from npuflow.metrics._tokens import log_probabilities, scored, step, wrong_label


@METRICS.entry
@dataclass(frozen=True)
class Choice(RowMetric):
    """Samples are questions, `[evaluate] text = "questions.jsonl"`, with a context, choices and the right
    answer. A choice counts the log-likelihood of its tokens behind the context; `by_length` divides it by
    them, or by its characters, as longer choices are less likely. `output` names the scores (default: the
    first)."""

    by_length: Literal["no", "tokens", "characters"] = "no"
    output: str = ""

    def row(self, outputs: Outputs, reference: Outputs, label: Any) -> tuple[str, int, int, int, list[float]]:
        about = step(label)
        if not isinstance(about, dict):
            raise wrong_label("choice", "questions", about)
        asked = [token for token in about["next"] if token >= 0]
        found: list[float] = []
        if asked:
            levels = log_probabilities(outputs, self.output)
            found = [float(row[token]) for row, token in scored(levels, about["next"])]
        if len(found) < len(asked):
            raise DataError(
                "a run gives scores of its last token alone", because="choices are scored by all of theirs",
                hint='[model] outputs = ["logits:all"], or dims = { chunk = 1 }', code="NF-METRIC-044",
            )
        return about["question"], about["choice"], about["answer"], about["characters"], found

    def total(self, rows: Sequence[tuple[str, int, int, int, list[float]]]) -> dict[str, float]:
        levels: dict[str, dict[int, list[float]]] = {}
        lengths: dict[tuple[str, int], int] = {}
        answers: dict[str, int] = {}
        for question, choice, answer, characters, found in rows:
            levels.setdefault(question, {}).setdefault(choice, []).extend(found)
            lengths[question, choice], answers[question] = characters, answer
        right = []
        for question, own in levels.items():
            worth = {c: sum(found) / self._length(found, lengths[question, c]) for c, found in own.items()}
            right.append(max(worth, key=worth.__getitem__) == answers[question])
        return {"choice": float(np.mean(right))}

    def _length(self, found: Sequence[float], characters: int) -> int:
        return {"no": 1, "tokens": len(found), "characters": characters}[self.by_length] or 1
