"""Lines that native code prints to standard output, dropped without those of others."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import threading

import pytest

from npuflow.base.native_output import SOLVER, without_lines, without_prints

LIBRARY = ctypes.CDLL(None)


def test_lines_of_native_code_are_dropped_and_those_of_others_kept(
    capfd: pytest.CaptureFixture[str],
) -> None:
    LIBRARY.printf(b"solver: before\n")
    with without_lines(rb"solver"):
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
    with pytest.raises(ValueError, match="mine"), without_lines(rb"solver"):
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
        "from npuflow.base.native_output import SOLVER, without_lines, without_prints\n"
        "with without_lines(b'x'): print('ran', file=__import__('sys').stderr)\n"
    )
    done = subprocess.run([sys.executable, "-c", body], capture_output=True, text=True, check=False)
    assert "ran" in done.stderr


def test_lines_of_the_solver_are_known_by_their_beginning(capfd: pytest.CaptureFixture[str]) -> None:
    with without_lines(SOLVER):
        LIBRARY.printf(b"HighsMipSolverData::transformNewIntegerFeasibleSolution tmpSolver.run();\n")
        LIBRARY.printf(b"HighsSearch::selectBranchingCandidate Error fracval = 1 <= 1\n")
        LIBRARY.printf(b"HEkk::solve basis 3\nhighest: 5\n")
    assert capfd.readouterr().out == "highest: 5\n"


def test_nothing_of_native_code_is_printed_and_all_else_at_once(capfd: pytest.CaptureFixture[str]) -> None:
    """Also of a process that starts meanwhile, and before the body ends."""
    LIBRARY.printf(b"before\n")
    with without_prints():
        LIBRARY.printf(b"HighsSearch::selectBranchingCandidate Error fracval\n")
        LIBRARY.puts(b"Solution has violations")
        thread = threading.Thread(target=os.write, args=(1, b"another thread\n"))
        thread.start()
        thread.join()
        print("this one", flush=True)
        subprocess.run([sys.executable, "-c", "print('a process')"], check=True)
        LIBRARY.fflush(None)
        meanwhile = capfd.readouterr().out.splitlines()
    LIBRARY.printf(b"after\n")
    LIBRARY.fflush(None)
    assert sorted(meanwhile) == ["a process", "another thread", "before", "this one"]
    assert capfd.readouterr().out == "after\n"


def test_several_threads_may_be_inside(capfd: pytest.CaptureFixture[str]) -> None:
    first, second = threading.Event(), threading.Event()

    def body() -> None:
        with without_prints():
            first.set()
            second.wait(10)
            LIBRARY.printf(b"solver\n")

    thread = threading.Thread(target=body)
    thread.start()
    first.wait(10)
    with without_prints():
        LIBRARY.printf(b"solver\n")
    LIBRARY.printf(b"solver\n")                             # the other is still inside
    second.set()
    thread.join()
    LIBRARY.printf(b"both are out\n")
    LIBRARY.fflush(None)
    assert capfd.readouterr().out == "both are out\n"


def test_a_solver_that_prints_is_silent(capfd: pytest.CaptureFixture[str]) -> None:
    """The solver itself, on a program in which it reports a step of its own."""
    body = """
import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp
from npuflow.base.native_output import without_prints
import sys
def solve():
    for seed in range(40):
        rng = np.random.default_rng(seed)
        n, m = int(rng.integers(5, 40)), int(rng.integers(2, 15))
        a = rng.normal(size=(m, n)) * 10.0 ** rng.integers(-9, 4, size=(m, n))
        b = np.abs(rng.normal(size=m)) * 10.0 ** rng.integers(-6, 4, m)
        c, whole = rng.normal(size=n) * 10.0 ** rng.integers(-8, 4, n), (rng.random(n) < 0.7) * 1.0
        milp(c, constraints=LinearConstraint(a, -np.inf, b), integrality=whole, bounds=Bounds(0, 50))
if sys.argv[1] == "silent":
    with without_prints():
        solve()
else:
    solve()
print("done")
"""
    said = [
        subprocess.run([sys.executable, "-c", body, how], capture_output=True, text=True, check=True).stdout
        for how in ("plain", "silent")
    ]
    assert "HighsMipSolverData::" in said[0] and said[1] == "done\n"
