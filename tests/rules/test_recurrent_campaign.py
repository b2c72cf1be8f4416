"""Recurrent layers by seeds: reference and simulator agree, all thousand with -m slow."""

from __future__ import annotations

import numpy as np
import pytest

from tests.rules.recurrent_campaign import BAR, COUNT, drawn

CHUNK = 50


def test_some_layers() -> None:
    """The ends are near the float ones at 16 bits, unless the sequence leaves the calibrated range."""
    ratios = [r for seed in range(2, 8) for one in [drawn(seed)] if one.bits == 16 for r in one.ratios]
    assert np.median(ratios) >= BAR


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, COUNT, CHUNK))
def test_all_layers(first: int) -> None:
    ratios = [
        r
        for seed in range(first, first + CHUNK)
        for one in [drawn(seed)]
        if one.bits == 16
        for r in one.ratios
    ]
    assert np.median(ratios) >= BAR
