"""Steps that come in batches of 8."""

from __future__ import annotations

import time
from collections.abc import Iterator

from flowbench.kinds import Batched, Source, Work
from npuflow.flow.refs import Files
from npuflow.flow.stage import Item, Listing, stage


def listing(source: Source) -> Listing:
    return {f"item{index:06}": Item((), index) for index in range(source.count)}


@stage(over="files", files=listing, batch=8)
def batched(files: Files, work: Work) -> Iterator[tuple[str, Batched]]:
    for name, item in files.items():
        end = time.process_time() + work.seconds
        while time.process_time() < end:
            sum(range(1000))
        yield name, Batched(int(item.detail))
