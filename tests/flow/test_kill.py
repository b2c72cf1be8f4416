"""`kill -9` before any change to the cache: the next build is right, reuses what was
finished, and leaves nothing."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import toys

from tests.tiers import often

HERE = Path(__file__).parent


def campaign(seed: int, count: int, tmp_path: Path) -> None:
    print(f"seed {seed}, {count} kills")
    done = subprocess.run(
        [sys.executable, str(HERE / "kill_campaign.py"), str(seed), str(count), str(tmp_path)],
        env=toys.environment(), capture_output=True, text=True, check=False,
    )
    assert done.returncode == 0, done.stderr
    first, *kills = map(json.loads, done.stdout.splitlines())
    calm: dict[str, Any] = first["calm"]
    assert len(kills) == count and len(first["kinds"]) >= 8
    assert calm["ran"] == 0 and not calm["left"]
    for kill in kills:
        assert kill["killed"], kill
        assert kill.get("outputs") == calm["outputs"], (kill, done.stderr)
        assert kill["product"] == calm["product"], kill
        # the earlier recipe's table and total are not asked for
        assert kill["hit"] >= kill["finished"] - 2, kill
        assert kill["ran"] == 14 - kill["hit"], kill
        assert (kill["again"], kill["kept"], kill["left"]) == (0, 14, []), kill
        assert not kill["damaged"] and not kill["orphans"] and not kill["strays"], kill


@pytest.mark.parametrize("kills", often([3, 5], 2))
def test_a_few_kills(tmp_path: Path, kills: int) -> None:
    campaign(20261121, kills, tmp_path)


BUILD = """
import pathlib, sys, psutil, toys
def opened(event):
    if type(event).__name__ == "Opened":
        print(*(child.pid for child in psutil.Process().children(recursive=True)), flush=True)
if __name__ == "__main__":
    tables = {"source": {"count": 400}, "reading": {"sleep": 0.5}}
    toys.run(pathlib.Path(sys.argv[1]), tables, scheduler="processes:2", on_event=opened)
"""


def test_workers_end_with_a_build_that_is_killed(tmp_path: Path) -> None:
    """They held some hundred megabytes each, and a lease of the cache, until the machine was restarted."""
    run = [sys.executable, "-c", BUILD, str(tmp_path / "cache")]
    with subprocess.Popen(run, env=toys.environment(), stdout=subprocess.PIPE, text=True) as build:
        assert build.stdout is not None
        workers = [int(word) for word in build.stdout.readline().split()]
        assert len(workers) >= 2 and all(map(_runs, workers))
        build.kill()
    for _ in range(200):
        if not any(map(_runs, workers)):
            return
        time.sleep(0.05)
    raise AssertionError(f"still there: {[w for w in workers if _runs(w)]}")


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_hundred_kills_and_more(tmp_path: Path, seed: int) -> None:
    campaign(seed, 50, tmp_path)
