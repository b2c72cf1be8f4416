"""Builds in processes of their own, as a user starts them: their events, and the seconds that they took."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

Events = list[dict[str, Any]]


def built(path: Path, out: Path, cache: Path, settings: Sequence[str]) -> tuple[Events, float]:
    """The events of `npuflow build`, and wall time. `settings`: KEY=VALUE, each for a --set."""
    words = [sys.executable, "-m", "npuflow", "build", str(path), "--json"]
    words += ["--out", str(out), "--cache", str(cache), *(w for one in settings for w in ("--set", one))]
    started = time.perf_counter()
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    seconds = time.perf_counter() - started
    events = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    if done.returncode:
        raise SystemExit(f"{path}: {done.stderr.strip() or events[-1:]}")
    return events, seconds
