"""The C runtime, compiled once for all tests."""

from __future__ import annotations

import ctypes
from functools import cache
from pathlib import Path

import pytest

from tests.runtime.harness import COMPILERS, UNDEFINED, library


@pytest.fixture(scope="session")
def runtime(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    """A process that does what C does not define ends at once."""
    if not COMPILERS:
        pytest.skip("no C compiler (CC, cc, gcc, clang) on the path")
    return compiled(tmp_path_factory.getbasetemp())


@cache
def compiled(base: Path) -> ctypes.CDLL:
    """One also for tests of other folders, where this fixture is one of their own."""
    (base / "runtime-of-c").mkdir()
    return library(base / "runtime-of-c", ("-O1", *UNDEFINED))
