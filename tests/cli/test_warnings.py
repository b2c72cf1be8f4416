"""Warnings of a build: each is printed once, whatever steps repeat it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from commandline import fresh

from tests.networks.ending_loops import CASES


@pytest.mark.slow
def test_a_warning_that_refinements_repeat_is_one(tmp_path: Path) -> None:
    """Ranges are chosen, then refined: both products say that a loop has not ended."""
    rng = np.random.default_rng(0)
    np.savez(tmp_path / "data.npz", x=(0.01 * rng.normal(size=(12, 1, 4))).astype(np.float32))
    (tmp_path / "net.onnx").write_bytes(CASES["plain"])
    (tmp_path / "net.toml").write_text(
        'target = "edge-4t"\n[model]\npath = "net.onnx"\nmax_steps = 5\n[data]\nsource = "data.npz"\n'
    )
    words = "build", str(tmp_path / "net.toml"), "--cache", str(tmp_path / "cache"), "--until", "clipping"
    for done in (fresh(*words), fresh(*words)):
        assert done.code == 0 and done.err.count("warning: a loop has not ended") == 1, done.err
        assert "1 warning" in done.out
    lines = fresh(*words, "--json").lines
    assert [one["stage"] for one in lines if one["event"] == "warning"] == ["thresholds"]
