"""Damage to any file of a cache is found, and nothing damaged is used."""

from __future__ import annotations

from pathlib import Path

import pytest
from corruption_campaign import KINDS, campaign


def test_damage_of_every_kind(tmp_path: Path) -> None:
    done = campaign(7, len(KINDS), tmp_path)
    assert min(done.values()) >= 1


@pytest.mark.slow
@pytest.mark.parametrize("seed", [11, 12])
def test_five_hundred_damages(tmp_path: Path, seed: int) -> None:
    done = campaign(seed, 255, tmp_path)
    print(f"seed {seed}: {done}")
    assert sum(done.values()) >= 255 and min(done.values()) >= 255 // len(KINDS)
