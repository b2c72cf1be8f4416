"""Random graphs, schemes and targets."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable

import pytest

from tests.networks.random_graphs import subject
from tests.sim.campaigns import bounded, campaign
from tests.tiers import often, tiered

SHARD = 500
# of the slow suite, which takes the first of them, and of the campaign
SEEDS = range(*(int(n) for n in os.environ.get("NPUFLOW_FUZZ", "1000:11000").split(":")))


def drawn(seeds: Iterable[int]) -> Counter[str]:
    return campaign(seeds, subject, 2, lambda s, graph: ())


@pytest.mark.parametrize("count", often([20, 60], 2))
def test_random_graphs_agree(count: int) -> None:
    bounded(drawn(range(count)), count)


def test_bytes_of_a_view_are_stored_by_one_core() -> None:
    """Graphs in which a reshape or a transposition moves nothing, and what it reads is wanted, too."""
    assert drawn([3054, 3117, 4871, 7382])["compared"] == 4


def test_a_tile_of_softmax_may_be_a_part_of_what_is_held() -> None:
    assert drawn([4144])["compared"] == 1


@pytest.mark.parametrize("first", tiered(SEEDS[::SHARD], 1))
def test_many_random_graphs_agree(first: int) -> None:
    """NPUFLOW_FUZZ=FIRST:END chooses other seeds, or a share of them for one of several processes."""
    seeds = range(first, min(first + SHARD, SEEDS.stop))
    found = drawn(seeds)
    print(
        f"{len(seeds)} graphs from seed {first}: "
        f"{', '.join(f'{n} {name}' for name, n in sorted(found.items()))}"
    )
    bounded(found, len(seeds))
    assert {f"level {n}" for n in (0, 3, 5)} <= {*found} and found["several cores"] > 0, found
