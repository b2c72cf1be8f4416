"""Which commands the executor and exported C take as one kernel."""

from __future__ import annotations

import pytest

from npuflow.whole.fusion import by_channel, fused

CONV = ("CONV", {"x": 1, "w": 2, "acc": 9})
MATMUL = ("MATMUL", {"a": 1, "b": 2, "acc": 9})
ENDS = ("REQUANT", {"acc": 9, "y": 3})


@pytest.mark.parametrize(("command", "kind"), [(CONV, "convolution"), (MATMUL, "product")])
def test_sums_with_a_constant_and_their_codes_are_one(command: tuple[str, dict[str, int]], kind: str) -> None:
    assert fused([command, ENDS], {2}.__contains__) == kind
    assert fused([command, ENDS, CONV], {2}.__contains__) == kind


@pytest.mark.parametrize(
    "run",
    [
        [CONV],
        [CONV, CONV],
        [ENDS, CONV],
        [CONV, ("REQUANT", {"acc": 8, "y": 3})],
        [("CONV", {**CONV[1], "accumulate": 1}), ENDS],
        [("CONV", {**CONV[1], "w": 4}), ENDS],
        [("MATMUL", {**MATMUL[1], "b": 4}), ENDS],
    ],
)
def test_others_are_single(run: list[tuple[str, dict[str, int]]]) -> None:
    assert fused(run, {2}.__contains__) is None


def test_channels_each_by_itself() -> None:
    assert by_channel(8, 8, 8)
    assert not by_channel(8, 8, 16) and not by_channel(4, 8, 8)
