"""Calls the command line from tests: in this process, or in a fresh one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
RECIPE = '# counts words\n[texts]\nsource = "texts/*.txt"\n\n[count]\nleast = 1\n'


@dataclass(frozen=True)
class Ran:
    """What a command did."""

    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.out.splitlines()]


Npuflow = Callable[..., Ran]


def environment(**more: str) -> dict[str, str]:
    """The environment of a fresh process that sees this checkout and the toy stages."""
    paths = os.pathsep.join([str(HERE.parent.parent), str(HERE)])
    return {**os.environ, "PYTHONPATH": paths, "NO_COLOR": "1", **more}


def fresh(*args: str, **more: str) -> Ran:
    """Call the command line in a process of its own."""
    command = [sys.executable, "-m", "npuflow", *args]
    done = subprocess.run(
        command, capture_output=True, text=True, env=environment(**more), timeout=120, check=False
    )
    return Ran(done.returncode, done.stdout, done.stderr)
