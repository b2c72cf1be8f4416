"""What tests of the command line with checkpoints share."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder and a cache of the test's own."""
    monkeypatch.setenv("NPUFLOW_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
