"""One number per source item."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

from npuflow.flow.stage import Item, Listing, log, stage
from npuflow.flow.refs import Files
from toybox.kinds import Number, Source


def listing(source: Source) -> Listing:
    if source.folder:
        return {path.stem: Item((path,)) for path in sorted(Path(source.folder).glob("*.txt"))}
    return {f"n{index}": Item((), index) for index in range(source.count)}


@stage(over="files", files=listing, batch=3)
def numbers(files: Files, source: Source) -> Iterator[tuple[str, Number]]:
    for name, item in files.items():
        if source.fail == name:
            raise ValueError(f"{name} is not a number")
        if source.sleep:
            time.sleep(source.sleep)
        log(f"read {name}")
        yield name, Number(int(item.files[0].read_text()) if item.files else int(item.detail))
