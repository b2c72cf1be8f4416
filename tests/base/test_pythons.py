"""Keys are made of the same bytes on every CPython that this machine has."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
WITNESS = Path(__file__).with_name("witness.py")
OTHERS = [minor for minor in (11, 12, 13, 14, 15) if minor != sys.version_info.minor]


@cache
def spoken(python: str, every: int = 1) -> dict[str, str]:
    """What the witness says under an interpreter, label -> digest. `every`: of files and stages, each so
    manieth."""
    env = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
    done = subprocess.run(
        [python, str(WITNESS), str(ROOT), str(every)], env=env, capture_output=True, text=True, timeout=240,
        check=True,
    )
    return {label: found for label, _, found in (line.rpartition(" ") for line in done.stdout.splitlines())}


def interpreter(minor: int) -> str | None:
    """A Python 3.`minor` that runs: on the path, or one that pyenv or uv keep."""
    kept = (Path.home() / ".pyenv/versions", Path.home() / ".local/share/uv/python")
    found = [str(path) for root in kept for path in sorted(root.glob(f"*3.{minor}.*/bin/python3"))]
    for place in (shutil.which(f"python3.{minor}"), *found):
        if (
            place is not None
            and subprocess.run([place, "-c", ""], capture_output=True, check=False).returncode == 0
        ):
            return place
    return None


@pytest.mark.slow
@pytest.mark.parametrize("minor", OTHERS)
def test_digests_are_equal(minor: int) -> None:
    place = interpreter(minor)
    if place is None:
        pytest.skip(f"no Python 3.{minor} here")
    here, there = spoken(sys.executable), spoken(place)
    assert len(here.keys() & there.keys()) > 300
    assert {k: v for k, v in there.items() if here.get(k, v) != v} == {}


@pytest.mark.slow
@pytest.mark.parametrize("every", [9, 1])
def test_the_witness_can_see_a_difference(every: int) -> None:
    """Every value, text and stage has a digest of its own."""
    own = [found for label, found in spoken(sys.executable, every).items() if not label.startswith("file ")]
    assert len(own) > 30
    assert len(set(own)) == len(own)
