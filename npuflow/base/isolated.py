"""Runs a function in a process of its own, so that a crash or hang is one clear error."""

from __future__ import annotations

import pickle
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from npuflow.base.errors import InputError, NpuflowError

T = TypeVar("T")

# What the function prints goes to stderr: stdout carries the answer alone.
_CHILD = """
import os, pickle, sys
answer = os.fdopen(os.dup(1), "wb")
os.dup2(2, 1)
sys.path[:], module, name, arguments = pickle.load(sys.stdin.buffer)
import importlib
from npuflow.base.errors import NpuflowError
try:
    given = True, getattr(importlib.import_module(module), name)(*arguments)
except NpuflowError as fault:
    given = False, fault
pickle.dump(given, answer)
answer.close()
"""


def isolated(function: Callable[..., T], path: Path, *more: Any, seconds: float = 600.0) -> T:
    """What a function of a module gives for a file (and plain values); an InputError where its process
    dies or takes too long."""
    task = pickle.dumps((sys.path, function.__module__, function.__qualname__, (path, *more)))
    try:
        done = subprocess.run(
            [sys.executable, "-c", _CHILD], input=task, capture_output=True, timeout=seconds, check=False
        )
    except subprocess.TimeoutExpired:
        raise InputError(
            f'parsing "{path.name}" took too long',
            because=f"the parser did not end within {seconds:.0f} s",
            hint="is the file damaged?",
            code="NF-MODEL-060",
        ).at(file=str(path)) from None
    if done.returncode:
        raise InputError(
            f'the parser of "{path.name}" stopped', because=f"the parser's process ended with {_end(done)}",
            hint="is the file damaged?", code="NF-MODEL-061",
        ).at(file=str(path))
    fine, given = pickle.loads(done.stdout)
    if not fine:
        assert isinstance(given, NpuflowError)
        raise given.at(file=str(path))
    answer: T = given
    return answer


def _end(done: subprocess.CompletedProcess[bytes]) -> str:
    """How a process ended: by a signal, or with the last line that it wrote."""
    if done.returncode < 0:
        return signal.Signals(-done.returncode).name
    said = done.stderr.decode(errors="replace").strip().split("\n")[-1]
    return f"exit code {done.returncode}" + (f": {said}" if said else "")
