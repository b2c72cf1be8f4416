"""Kernels compiled beside the first long build: once for a version, those that networks need."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from npuflow.cli import _kernels


@pytest.fixture
def started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """What is started, in the cache of a user who has none yet."""
    found: list[list[str]] = []
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "user"))
    monkeypatch.delenv("NUMBA_CACHE_DIR", raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    monkeypatch.setattr(subprocess, "Popen", lambda line, **_: found.append(line))
    return found


def test_one_process_is_started_for_a_version(
    started: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(2):
        _kernels.compile_beside()
    assert started == [[sys.executable, "-m", "npuflow.cli._kernels"]]
    monkeypatch.setattr(_kernels, "__version__", "9.9")
    _kernels.compile_beside()
    assert len(started) == 2


def test_none_on_one_processor_nor_where_kernels_are_kept_elsewhere_or_not_at_all(
    started: list[list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as one:
        one.setattr(os, "cpu_count", lambda: 1)
        _kernels.compile_beside()
    with monkeypatch.context() as one:
        one.setenv("NUMBA_CACHE_DIR", str(tmp_path))
        _kernels.compile_beside()
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    _kernels.compile_beside()
    assert started == []


@pytest.mark.slow
def test_kernels_of_convolutions_are_there_afterwards(tmp_path: Path) -> None:
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path), "OMP_NUM_THREADS": "1"}
    environment.pop("NUMBA_CACHE_DIR", None)
    subprocess.run([sys.executable, "-m", "npuflow.cli._kernels"], env=environment, check=True)
    folders = [path for path in (tmp_path / "npuflow-kernels").iterdir() if path.is_dir()]
    made = {path.name.rpartition("-")[0] for path in folders}
    assert made >= {"npuflow.kernels.products.pairs", "npuflow.whole.execute.dense", "npuflow.isa.maxpool"}
