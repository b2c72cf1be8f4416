"""Rings: which positions they hold in front of any run, and how they are written down."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from npuflow.base.errors import InternalError
from npuflow.ir.rings import Ring, told
from npuflow.ir.text import from_text, to_text
from npuflow.ir.verify import verify
from tests.checkpoints.running import FAMILIES, read

MOST = 200


def missing(rows: int, window: int, chunks: tuple[int, ...], seed: int) -> int:
    """How many positions queries do not find, of random runs that begin anywhere from the earliest on, also
    over tokens that the ring holds, and behind ones that were given up."""
    ring, rng, lost = Ring("position", rows, window, MOST), np.random.default_rng(seed), 0
    held, count, earliest = np.full(rows, -1), 0, 0
    for _ in range(60):
        if rng.random() < 0.3:                        # go back
            count = int(rng.integers(min(earliest, count), count + 1))
        chunk = int(rng.choice(chunks))
        begin = int(rng.integers(max(0, min(earliest, count), count - chunk + 1), count + 1))
        if begin + chunk > MOST or begin < earliest:
            continue
        for p in range(begin, begin + chunk):
            held[p % rows] = p
        for q in range(begin, begin + chunk):
            lost += sum(held[p % rows] != p for p in range(max(0, q - window + 1), q + 1))
        count = begin + chunk
        earliest = max(earliest, ring.earliest(count))
    return lost


@pytest.mark.parametrize(
    ("window", "chunks"), [(7, (1,)), (7, (1, 5)), (3, (8, 1)), (1, (4,)), (16, (1, 2, 16))]
)
def test_a_window_and_the_longest_chunk_less_one_are_rows(window: int, chunks: tuple[int, ...]) -> None:
    least = window + max(chunks) - 1
    for seed in range(20):
        for rows in (least, least + 1, least + 9):
            assert missing(rows, window, chunks, seed) == 0
    if max(chunks) > 1:
        assert sum(missing(least - 1, window, chunks, seed) for seed in range(20))


def test_the_earliest_begin_is_no_later_than_it_must_be() -> None:
    """One earlier, and the first query's oldest position is that of a row which was replaced."""
    for rows, window in ((16, 7), (16, 16), (9, 1)):
        ring = Ring("position", rows, window, MOST)
        assert ring.earliest(rows) == 0
        for count in range(rows + 1, rows + 40):
            held = {p % rows: p for p in range(count)}
            for begin, good in ((ring.earliest(count), True), (ring.earliest(count) - 1, False)):
                oldest = range(max(0, begin - window + 1), begin)
                if begin >= window:
                    assert all(held[p % rows] == p for p in oldest) is (good or window == 1)


def test_a_graph_s_text_has_its_rings() -> None:
    graph = read(FAMILIES / "mistral", context=48).graph
    assert "\nring position 16 7 48\n" in to_text(graph)
    again = from_text(to_text(graph), graph.consts)
    assert again == graph and again.rings == (Ring("position", 16, 7, 48),)
    assert tuple(Ring.of(one) for one in told(graph.rings)) == graph.rings
    for wrong in ({"rows": 6}, {"window": 0}, {"most": 16}):
        with pytest.raises(InternalError, match="the ring of"):
            verify(graph.replaced(rings=(replace(graph.rings[0], **wrong),)))
