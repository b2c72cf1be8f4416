"""Builds in processes of their own, as a user starts them: their events, and what they took."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Events = list[dict[str, Any]]


@dataclass(frozen=True)
class Spent:
    """What a build took: seconds of the clock, processor seconds of all its processes, and the bytes of the
    largest of these at its largest."""

    clock: float
    processor: float
    largest: int


def measured(path: Path, out: Path, cache: Path, settings: Sequence[str]) -> tuple[Events, Spent]:
    """The events of `npuflow build`, and what it took. `settings`: KEY=VALUE, each for a --set. SystemExit
    where the build fails."""
    words = [sys.executable, "-m", "npuflow", "build", str(path), "--json"]
    words += ["--out", str(out), "--cache", str(cache), *(w for one in settings for w in ("--set", one))]
    with tempfile.TemporaryFile("w+") as said, tempfile.TemporaryFile("w+") as errors:
        started = time.perf_counter()
        process = subprocess.Popen(words, stdout=said, stderr=errors)
        _, status, used = os.wait4(process.pid, 0)     # of the process, and of those that it has waited for
        process.returncode = os.waitstatus_to_exitcode(status)
        spent = Spent(time.perf_counter() - started, used.ru_utime + used.ru_stime, used.ru_maxrss * 1024)
        said.seek(0), errors.seek(0)
        events = [json.loads(line) for line in said if line.startswith("{")]
        if process.returncode:
            raise SystemExit(f"{path}: {errors.read().strip() or events[-1:]}")
    return events, spent


def built(path: Path, out: Path, cache: Path, settings: Sequence[str]) -> tuple[Events, float]:
    """The events of `npuflow build`, and wall time."""
    events, spent = measured(path, out, cache, settings)
    return events, spent.clock


COLUMNS = ("nodes", "cycles", "gap", "different, hazards", "seconds", "processor s", "largest process, GiB")


def figures_of(events: Events) -> dict[str, Any]:
    """Figures of the steps, by stage."""
    return {e["stage"]: e["figures"] for e in events if e.get("event") == "step" and e.get("figures")}


def columns(figures: dict[str, Any], spent: Spent) -> list[str]:
    """Cells of a row below `COLUMNS`."""
    plan, ran = figures["tiling"], figures["simulate"]
    wrong = f"{ran['different']}, {ran['hazards']}"
    counts = f"{figures['parse']['nodes']:,}", f"{ran['cycles']:,}", f"{plan['gap']:.2f}", wrong
    return [*counts, f"{spent.clock:.0f}", f"{spent.processor:.0f}", f"{spent.largest / 2**30:.2f}"]
