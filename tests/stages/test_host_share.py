"""Warnings of builds whose network the host computes for the most part."""

from __future__ import annotations

import pytest

from npuflow.place.place import NodePlacement, Placed
from npuflow.stages.placement import Placement

SMALL, LARGE = 4096, 131_072


@pytest.mark.parametrize(
    ("small", "large", "macs", "warned"),
    [
        ("", "", 1, ""),
        ("no form", "", 1, ""),
        ("", "no form", 1, "97 % of the multiply-accumulates run on the host"),
        ("", "no form", 0, ""),
        ("no form", "no form", 1, "all nodes run on the host"),
    ],
)
def test_a_build_warns_where_the_host_does_most(small: str, large: str, macs: int, warned: str) -> None:
    places = Placed("a", "matmul", small, SMALL * macs), Placed("b", "matmul", large, LARGE * macs)
    found = Placement(NodePlacement(places)).summary()
    assert found.get("warning", "").startswith(warned) and bool(warned) == ("warning" in found)
    if warned:
        assert "of matmul: no form" in found["warning"] and "npuflow inspect" in found["warning_hint"]
