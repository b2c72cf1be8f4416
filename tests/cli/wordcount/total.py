"""How often each word occurs at all."""

from __future__ import annotations

from npuflow.flow.stage import Items, log, stage

from ._data import Count, Tally, Total


@stage
def total(tallies: Items[Tally], count: Count) -> Total:
    sums: dict[str, int] = {}
    for one in tallies.values():
        for word, number in one.counts.items():
            sums[word] = sums.get(word, 0) + number
    log(f"{len(sums)} different words")
    return Total({word: n for word, n in sums.items() if n >= count.least})
