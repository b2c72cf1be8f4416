"""The words of each text."""

from __future__ import annotations

from collections.abc import Iterator

from npuflow.flow.refs import Files, Item, Listing
from npuflow.flow.stage import log, stage

from ._data import Text, Texts


def listing(texts: Texts) -> Listing:
    pattern = texts.source.path
    return {path.name: Item((path,)) for path in sorted(pattern.parent.glob(pattern.name))}


@stage(over="files", files=listing, batch=4)
def words(files: Files) -> Iterator[tuple[str, Text]]:
    for name, item in files.items():
        text = item.files[0].read_text()
        log(f"{name}: {len(text)} characters")
        yield name, Text(tuple(text.split()))
