"""Tile sizes that the search tries."""

from __future__ import annotations

import pytest

from npuflow.ir.space import Axis
from npuflow.schedule import tuned
from npuflow.search.tilings import sizes_of


@pytest.mark.parametrize("size", [192, 768, 1000, 3072])
@pytest.mark.parametrize("unit", [8, 32, 64])
@pytest.mark.parametrize("most", [3, 4, 6, 10])
def test_sizes_fill_the_array(size: int, unit: int, most: int) -> None:
    """No size but the whole axis leaves much of its last unit idle, and small ones are tried, too."""
    found = sizes_of(Axis("n", size), (unit,), most)
    assert found[0] == size and found[-1] == 1 and list(found) == sorted(set(found), reverse=True)
    for one in found[1:]:
        assert one < unit or -(-one // unit) * unit <= tuned.EDGE_WASTE * one


def test_sizes_stay_on_the_axis_multiples() -> None:
    found = sizes_of(Axis("n", 96, multiple=12), (32,), 6)
    assert all(n % 12 == 0 for n in found) and found[0] == 96
