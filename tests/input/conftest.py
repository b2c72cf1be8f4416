"""What tests of inputs share."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.checkpoints.texts import made


@pytest.fixture
def letters(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny checkpoint whose tokens are characters."""
    pytest.importorskip("tokenizers")
    return made(tmp_path_factory.mktemp("letters") / "net")
