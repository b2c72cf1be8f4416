"""Tiny random checkpoints of every family, judged by what transformers computed of them."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import numpy as np
import pytest

from tests.checkpoints.running import FAMILIES, Running
from tests.tiers import often

NAMES = sorted(path.name for path in FAMILIES.iterdir())
NEAR = 1e-4                               # of the largest logit


def expected(folder: Path) -> tuple[np.ndarray, np.ndarray]:
    with np.load(folder / "expected.npz") as held:
        return held["tokens"], held["logits"]


@pytest.mark.parametrize(
    ("name", "chunks", "rewrite"), often(product(NAMES, [(1,) * 24, (7, 7, 1, 1, 1, 7)], [True, False]), 3)
)
def test_logits_are_those_of_transformers(name: str, chunks: tuple[int, ...], rewrite: bool) -> None:
    """By onnxruntime: of operators that rules have spelled, and of its own attention."""
    tokens, logits = expected(FAMILIES / name)
    found = Running(FAMILIES / name, rewrite=rewrite).logits(tokens, chunks)
    wanted = logits[np.cumsum(chunks) - 1]
    assert np.abs(found - wanted).max() <= NEAR * np.abs(wanted).max()
