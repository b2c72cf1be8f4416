"""Word errors of recognised text: connectionist (CTC) scores of symbols against a label's text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from npuflow.base.errors import DataError
from npuflow.metrics import METRICS, Metric, Outputs
from npuflow.metrics._ragged import outputs_named


@METRICS.entry
@dataclass(frozen=True)
class Wer(Metric):
    """A label is a text. The output (default: the first) has a row of scores for every step: the best symbol
    of each, repeats joined, `blank` left out (-1: the last one). `alphabet` lists the other symbols in the
    order of the scores. `word_accuracy` is 1 - wer; wer and cer are edits over the length of the truth."""

    alphabet: str = " abcdefghijklmnopqrstuvwxyz'"
    blank: int = 0
    output: str = ""

    def __call__(self, outputs: Outputs, reference: Outputs, labels: list[Any] | None) -> dict[str, float]:
        words = characters = wrong_words = wrong_characters = 0
        steps = outputs[outputs_named(outputs, self.output)[0]]
        for sample, truth in zip(steps, self._texts(labels or []), strict=True):
            found = self._text(np.asarray(sample))
            words, characters = words + len(truth.split()), characters + len(truth)
            wrong_words += edits(truth.split(), found.split())
            wrong_characters += edits(truth, found)
        wer, cer = wrong_words / max(words, 1), wrong_characters / max(characters, 1)
        return {"word_accuracy": 1.0 - wer, "wer": wer, "cer": cer}

    def _texts(self, labels: Sequence[Any]) -> list[str]:
        """The labels as texts; some letter of theirs must be one that the model can write."""
        for number, label in enumerate(labels, 1):
            if not isinstance(label, str | int | float):
                raise DataError(
                    "labels must be texts",
                    because=f"that of sample {number} of the evaluation is {str(label)[:80]}",
                    hint='{"file": "a.wav", "label": "what is said"} a line of a .jsonl',
                    code="NF-METRIC-025",
                )
        texts = [str(label) for label in labels]
        letters = {letter for text in texts for letter in text if not letter.isspace()}
        if letters and not letters & set(self.alphabet):
            raise DataError(
                "no letter of the labels is in the alphabet",
                because=f"they are of {''.join(sorted(letters))[:40]!r}, the alphabet is {self.alphabet!r}",
                hint="[evaluate.wer] alphabet, or labels in its letters (upper or lower case)",
                code="NF-METRIC-026",
            )
        return texts

    def _text(self, scores: npt.NDArray[Any]) -> str:
        if scores.ndim < 1 or not -1 <= self.blank < scores.shape[-1]:
            raise DataError(
                f"an output of shape {list(scores.shape)} has no scores of a blank at place {self.blank}",
                because="each step has a score for every symbol and the blank",
                hint="[evaluate.wer] output names another output, blank the blank's place (-1: the last)",
                code="NF-METRIC-027",
            )
        rows = scores.reshape(-1, scores.shape[-1]).argmax(1).tolist()
        blank = self.blank % scores.shape[-1]
        symbols = [*range(blank), *range(blank + 1, scores.shape[-1])]
        if len(symbols) != len(self.alphabet):
            raise DataError(
                f"the output has {scores.shape[-1]} scores a step, the alphabet {len(self.alphabet)} symbols",
                because="one score is the blank's, each other one a symbol's",
                hint="[evaluate.wer] alphabet lists the symbols in the order of the scores",
                code="NF-METRIC-023",
            )
        letters = dict(zip(symbols, self.alphabet, strict=True))
        kept = [now for before, now in zip([None, *rows], rows, strict=False) if now != before]
        return "".join(letters[one] for one in kept if one != blank)


def edits(truth: Sequence[str], found: Sequence[str]) -> int:
    """The fewest insertions, deletions and substitutions between two sequences."""
    row = list(range(len(found) + 1))
    for i, wanted in enumerate(truth, 1):
        before, row[0] = row[0], i
        for j, one in enumerate(found, 1):
            before, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, before + (wanted != one))
    return row[-1]
