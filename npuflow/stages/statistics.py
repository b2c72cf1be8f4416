"""Statistics of every needed tensor over all samples: the last merge of the tree, of all segments."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby

from npuflow.base.errors import DataError
from npuflow.engine.calibrate import statistics as merging
from npuflow.flow.refs import parts
from npuflow.flow.stage import Items, log, stage
from npuflow.stages.regions import Region
from npuflow.stages.shards import Shard


@dataclass(frozen=True)
class Statistics(Shard):
    """The statistics that thresholds are chosen from."""


@stage(cpu="native")
def statistics(regions: Items[Region]) -> Statistics:
    """Add up regions in sample order, and put the segments side by side."""
    whole = [Shard.total(regions[name] for name in names) for _, names in groupby(regions, lambda name: parts(name)[0])]
    if not whole or not whole[0].content.samples:
        broken = whole[0].broken if whole else ()
        raise DataError(
            "no sample could be read",
            because=": ".join(broken[0]) if broken else "there are no samples", code="NF-DATA-009",
        )
    for item, reason in whole[0].broken:
        log(f"left out {item}: {reason}")
    if whole[0].noise:
        log("RANDOM DATA: thresholds from it say nothing about the real inputs")
    return Statistics(merging.beside([one.content for one in whole]), whole[0].broken, whole[0].noise)
