"""Recurrent layers by seeds: reference and simulator agree, a tenth of a thousand in the slow suite."""

from __future__ import annotations

import numpy as np
import pytest

from tests.rules.recurrent_campaign import BAR, COUNT, drawn, ratio
from tests.tiers import tiered

CHUNK = 50


def test_some_layers() -> None:
    """The ends are near the float ones at 16 bits, unless the sequence leaves the calibrated range."""
    ratios = [r for seed in range(2, 8) for one in [drawn(seed)] if one.bits == 16 for r in one.ratios]
    assert np.median(ratios) >= BAR


def test_states_that_stay_zero_are_exact() -> None:
    """What a Relu holds at 0 in floats and in integers has neither signal nor noise."""
    zeros = np.zeros((1, 1, 3), np.float32)
    assert ratio(zeros, zeros) == np.inf
    assert ratio(zeros + 1, zeros + 1.1) == pytest.approx(20.0)


@pytest.mark.parametrize("first", tiered(range(0, COUNT, CHUNK), 2))
def test_all_layers(first: int) -> None:
    ratios = [
        r
        for seed in range(first, first + CHUNK)
        for one in [drawn(seed)]
        if one.bits == 16
        for r in one.ratios
    ]
    assert np.median(ratios) >= BAR
