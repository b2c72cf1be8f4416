"""Lines that native code prints to standard output, dropped without those of others."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import threading

import pytest

from npuflow.base.native_output import without_lines

LIBRARY = ctypes.CDLL(None)


def test_lines_of_native_code_are_dropped_and_those_of_others_kept(
    capfd: pytest.CaptureFixture[str],
) -> None:
    LIBRARY.printf(b"solver: before\n")
    with without_lines(b"solver"):
        LIBRARY.printf(b"solver: trying\n")
        thread = threading.Thread(target=os.write, args=(1, b"another thread\n"))
        thread.start()
        thread.join()
        LIBRARY.printf(b"something else\nsolver: 50 %")
    LIBRARY.printf(b"solver: after\n")
    LIBRARY.fflush(None)
    lines = capfd.readouterr().out.splitlines()
    assert lines[0] == "solver: before" and lines[-1] == "solver: after"
    assert sorted(lines[1:-1]) == ["another thread", "something else"]


def test_it_ends_with_an_error_of_the_body(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ValueError, match="mine"), without_lines(b"solver"):
        LIBRARY.printf(b"solver: trying\n")
        raise ValueError("mine")
    os.write(1, b"solver: said on purpose\n")
    assert capfd.readouterr().out == "solver: said on purpose\n"


def test_it_can_be_nested(capfd: pytest.CaptureFixture[str]) -> None:
    with without_lines(b"outer"), without_lines(b"inner"):
        LIBRARY.printf(b"outer\ninner\nneither\n")
    assert capfd.readouterr().out == "neither\n"


def test_standard_output_may_be_closed() -> None:
    body = (
        "import os; os.close(1)\n"
        "from npuflow.base.native_output import without_lines\n"
        "with without_lines(b'x'): print('ran', file=__import__('sys').stderr)\n"
    )
    done = subprocess.run([sys.executable, "-c", body], capture_output=True, text=True, check=False)
    assert "ran" in done.stderr
