"""Scores of a vocabulary's tokens as probabilities, and the tokens that labels of texts say follow."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from npuflow.base.errors import DataError
from npuflow.ir.types import Array
from npuflow.metrics._ragged import judged_name


def log_probabilities(outputs: Mapping[str, Array], name: str) -> Array:
    """Natural logarithms of the probabilities of all tokens, [tokens of the run, vocabulary]: softmax of the
    named output, else of the first."""
    found = outputs[judged_name(outputs, name)]
    if found.dtype.kind != "f" or found.ndim < 1 or found.shape[-1] < 2:
        raise DataError(
            "the output has no scores of tokens", because=f"it is {found.dtype} {list(found.shape)}",
            hint='output = "logits" names that of the scores', code="NF-METRIC-040",
        )
    rows = np.asarray(found, np.float64).reshape(-1, found.shape[-1])
    rows = rows - rows.max(1, keepdims=True)
    scaled: Array = rows - np.log(np.exp(rows).sum(1, keepdims=True))
    return scaled


def step(label: Any) -> Any:
    """The label of one run, also of a text that is fed in a single one."""
    while isinstance(label, list) and len(label) == 1 and isinstance(label[0], list | dict):
        label = label[0]
    return label


def scored(levels: Array, following: Any) -> list[tuple[Array, int]]:
    """The rows of logarithms behind which a token is known, each with that token. Of a run of several tokens
    the network may give scores of the last alone: then that one counts."""
    known = [following] if isinstance(following, int) else list(following)
    if len(levels) not in (1, len(known)):
        raise DataError(
            f"the output has scores behind {len(levels)} tokens", because=f"the label is of {len(known)}",
            hint='output = "logits" names that of the scores', code="NF-METRIC-041",
        )
    pairs = zip(levels, known[-len(levels) :], strict=True)
    return [(row, token) for row, token in pairs if 0 <= token < len(row)]


def wrong_label(metric: str, wanted: str, label: Any) -> DataError:
    return DataError(
        f'the metric "{metric}" takes {wanted}', because=f"a label is {str(label)[:60]}",
        hint='text = "texts/*.txt" for "perplexity" and "kl", a .jsonl file of questions for "choice"',
        code="NF-METRIC-042",
    )
