"""`kill -9` before any change to the cache: the next build is right, reuses what was finished, and leaves nothing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent


def campaign(seed: int, count: int, tmp_path: Path) -> None:
    print(f"seed {seed}, {count} kills")
    env = {**os.environ, "PYTHONPATH": f"{HERE}{os.pathsep}{HERE.parents[1]}", "PYTHONWARNINGS": "ignore"}
    done = subprocess.run(
        [sys.executable, str(HERE / "kill_campaign.py"), str(seed), str(count), str(tmp_path)],
        env=env, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    first, *kills = map(json.loads, done.stdout.splitlines())
    calm: dict[str, Any] = first["calm"]
    assert len(kills) == count and len(first["kinds"]) >= 8
    assert calm["ran"] == 0 and not calm["left"]
    for kill in kills:
        assert kill["killed"], kill
        assert kill.get("outputs") == calm["outputs"], (kill, done.stderr)
        assert kill["product"] == calm["product"], kill
        assert kill["hit"] >= kill["finished"] - 2, kill  # the earlier recipe's table and total are not asked for
        assert kill["ran"] == 14 - kill["hit"], kill
        assert (kill["again"], kill["kept"], kill["left"]) == (0, 14, []), kill
        assert not kill["damaged"] and not kill["orphans"] and not kill["strays"], kill


def test_ten_kills(tmp_path: Path) -> None:
    campaign(20261121, 10, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_hundred_kills_and_more(tmp_path: Path, seed: int) -> None:
    campaign(seed, 50, tmp_path)
