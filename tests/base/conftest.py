"""What several tests of code closures write their packages with."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest
from packages import Write

from npuflow.base import code


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Write]:
    """Writes files below a folder that is on the import path."""
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)

    def put(files: dict[str, str]) -> None:
        for name, text in files.items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(textwrap.dedent(text))
        code.forget()

    yield put
    code.forget()
    for name in [n for n in sys.modules if n.split(".")[0] in ("pk", "pq")]:
        del sys.modules[name]
