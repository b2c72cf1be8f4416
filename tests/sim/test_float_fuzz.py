"""Random graphs in floats, blocks and integers mixed: the simulator makes the reference's every bit."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import pytest

from npuflow.quantise.config import BLOCKS
from tests.networks.random_floats import TYPES, reported, subject
from tests.sim.campaigns import bounded, campaign


def drawn(seeds: Iterable[int]) -> Counter[str]:
    return campaign(seeds, subject, 2, reported)


def test_a_few_random_graphs_in_floats_agree() -> None:
    bounded(drawn(range(24)), 24)


@pytest.mark.slow
def test_random_graphs_in_floats_agree() -> None:
    found = drawn(range(90))
    bounded(found, 90)
    assert all(found[f"mode {name}"] for name in TYPES), found
    assert all(any(found[f"{op} {name}"] for op in ("Conv", "Gemm", "MatMul")) for name in BLOCKS), found


@pytest.mark.slow
def test_many_random_graphs_in_floats_agree() -> None:
    bounded(drawn(range(90, 590)), 500)
