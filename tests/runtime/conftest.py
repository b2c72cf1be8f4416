"""The C runtime, compiled once for all tests."""

from __future__ import annotations

import ctypes

import pytest

from tests.runtime.harness import COMPILERS, UNDEFINED, library


@pytest.fixture(scope="session")
def runtime(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    """A process that does what C does not define ends at once."""
    if not COMPILERS:
        pytest.skip("no C compiler (CC, cc, gcc, clang) on the path")
    return library(tmp_path_factory.mktemp("runtime"), ("-O1", *UNDEFINED))
