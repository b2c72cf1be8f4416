"""Statistics of up to 64 neighbouring shards in one segment of the network: the second merge of the tree."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from npuflow.flow.stage import Groups, stage
from npuflow.stages.shards import Shard


@dataclass(frozen=True)
class Region(Shard):
    """The statistics of some thousand samples."""


@stage(over="shards", cpu="native", memory="1GB", batch=1)
def regions(shards: Groups[Shard]) -> Iterator[tuple[str, Region]]:
    """Add up shards, in sample order."""
    for group, members in shards.items():
        yield group, Region.total(members.values())
