"""How often each word occurs in each text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from npuflow.flow.stage import Items, stage

from ._data import Count, Tally, Text


@stage(over="words", batch=4)
def tally(words: Items[Text], count: Count) -> Iterator[tuple[str, Tally]]:
    for name, text in words.items():
        found = [word.lower() if count.case == "fold" else word for word in text.words]
        yield name, Tally(dict(Counter(found)))
