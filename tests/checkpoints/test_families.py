"""Tiny random checkpoints of every family, judged by what transformers computed of them."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import numpy as np
import pytest

from npuflow import Runner
from npuflow.base.errors import DataError
from tests.checkpoints.running import FAMILIES, Running
from tests.tiers import often

NAMES = sorted(path.name for path in FAMILIES.iterdir())
WINDOWED = sorted(path.parent.name for path in FAMILIES.glob("*/long.npz"))
NEAR = 1e-4                               # of the largest logit


def expected(folder: Path, file: str = "expected.npz") -> tuple[np.ndarray, np.ndarray]:
    with np.load(folder / file) as held:
        return held["tokens"], held["logits"]


@pytest.mark.parametrize(
    ("name", "chunks", "rewrite"), often(product(NAMES, [(1,) * 24, (7, 7, 1, 1, 1, 7)], [True, False]), 5)
)
def test_logits_are_those_of_transformers(name: str, chunks: tuple[int, ...], rewrite: bool) -> None:
    """By onnxruntime: of operators that rules have spelled, and of its own attention."""
    tokens, logits = expected(FAMILIES / name)
    found = Running(FAMILIES / name, rewrite=rewrite).logits(tokens, chunks)
    wanted = logits[np.cumsum(chunks) - 1]
    assert np.abs(found - wanted).max() <= NEAR * np.abs(wanted).max()


def test_families_with_windows_have_a_longer_text() -> None:
    assert WINDOWED == ["gemma2", "gemma3", "gemma3-six", "mistral", "phi3", "qwen2-window"]


@pytest.mark.parametrize(
    ("name", "chunks", "rewrite"),
    often(product(WINDOWED, [(1,) * 96, (7,) * 6 + (1,) * 5 + (7,) * 7], [True, False]), 3),
)
def test_rings_give_the_logits_of_a_text_of_several_turns(
    name: str, chunks: tuple[int, ...], rewrite: bool
) -> None:
    """96 tokens over rings of 16 rows: chunks begin at any row, and go round the end."""
    tokens, logits = expected(FAMILIES / name, "long.npz")
    running = Running(FAMILIES / name, context=96, rewrite=rewrite)
    found = running.logits(tokens, chunks)
    graph, _ = running.graph(chunks[0])
    (ring,) = graph.rings
    rows = {graph.type(given).shape[2] for _, given in graph.state if given != "position"}
    assert ring.rows == 16 and ring.rows in rows and rows <= {16, 96}
    wanted = logits[np.cumsum(chunks) - 1]
    assert np.abs(found - wanted).max() <= NEAR * np.abs(wanted).max()


@pytest.mark.parametrize("name", ["mistral", "gemma3"])
def test_a_session_of_a_checkpoint_goes_over_several_turns(name: str) -> None:
    """In floats: the context is that of the dimension, whatever rings hold."""
    tokens, logits = expected(FAMILIES / name, "long.npz")
    session = Runner(FAMILIES / name, dims={"context": 96}).session()
    assert (session.model.context, session.model.chunks) == (96, (1,))
    found = [session.append([int(token)]) for token in tokens[0]]
    assert np.abs(np.stack(found) - logits).max() <= NEAR * np.abs(logits).max()
    with pytest.raises(DataError, match="1 token behind 96"):
        session.append([5])
    session.trim(90)
    again = session.append([int(token) for token in tokens[0, 90:95]])
    np.testing.assert_allclose(again, found[94], atol=NEAR * np.abs(logits).max())
    with pytest.raises(DataError, match="cannot be trimmed to 80 any more"):
        session.trim(80)


def test_windows_that_a_ring_would_not_shorten_have_whole_caches() -> None:
    """A window of 7 and a chunk of 7 need 13 rows: 16 as they are counted."""
    for context, chunk, rows in ((16, 1, 16), (17, 1, 16), (24, 7, 16), (24, 18, 24), (96, 26, 32)):
        graph, _ = Running(FAMILIES / "mistral", context=context).graph(chunk)
        assert graph.type("cache.0.key").shape == (1, 2, rows, 16), (context, chunk)
        assert bool(graph.rings) is (rows < context)
