"""Which loads several cores make together: the same bytes, in one order that agrees with each core's own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence

Meeting = list[tuple[int, int]]           # (core, index in its sequence) of one load


def meetings(sequences: Sequence[Sequence[Hashable]]) -> list[Meeting]:
    """Every load of every core once, alone or together with others, in an order that respects all sequences.

    A load is shared by all cores that still want it where each can come to it next; where their orders
    contradict each other, by those that can. No core then waits for one that waits for it.
    """
    at = [0] * len(sequences)
    left = [Counter(s) for s in sequences]
    found: list[Meeting] = []
    while open_ := [c for c, s in enumerate(sequences) if at[c] < len(s)]:
        heads: dict[Hashable, list[int]] = {}
        for core in open_:
            heads.setdefault(sequences[core][at[core]], []).append(core)
        agreed = [k for k, cores in heads.items() if sum(1 for n in left if n[k]) == len(cores)]
        key = agreed[0] if agreed else max(heads, key=lambda k: len(heads[k]))
        found.append([(core, at[core]) for core in heads[key]])
        for core in heads[key]:
            at[core] += 1
            left[core][key] -= 1
    return found
