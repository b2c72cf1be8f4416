"""Damage to any file of a cache is found, and nothing damaged is used."""

from __future__ import annotations

from pathlib import Path

import pytest
from corruption_campaign import KINDS, campaign

from tests.tiers import often


@pytest.mark.parametrize("rounds", often([1, 3], 2))
def test_damage_of_every_kind(tmp_path: Path, rounds: int) -> None:
    done = campaign(7, rounds * len(KINDS), tmp_path)
    assert min(done.values()) >= 1


@pytest.mark.slow
@pytest.mark.parametrize("seed", [11, 12])
def test_five_hundred_damages(tmp_path: Path, seed: int) -> None:
    done = campaign(seed, 255, tmp_path)
    print(f"seed {seed}: {done}")
    assert sum(done.values()) >= 255 and min(done.values()) >= 255 // len(KINDS)
