"""Which loads several cores make together: the same bytes, in one order that agrees with each core's own."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from npuflow.schedule import tuned

Meeting = list[tuple[int, int]]           # (core, index in its sequence) of one load


def meetings(sequences: Sequence[Sequence[Hashable]]) -> list[Meeting]:
    """Every load of every core once, alone or together with others, in an order that respects all sequences.

    A load is shared by all cores that want it soon where each can come to it next; where their orders
    contradict each other, by those that can. No core then waits for one that waits for it. A core that wants
    it much later loads it alone: rows at the border of two cores' parts are the first of one and the last of
    the other, which would wait for each other's whole work.
    """
    at = [0] * len(sequences)
    found: list[Meeting] = []
    while open_ := [c for c, s in enumerate(sequences) if at[c] < len(s)]:
        heads: dict[Hashable, list[int]] = {}
        for core in open_:
            heads.setdefault(sequences[core][at[core]], []).append(core)
        agreed = [
            key for key, cores in heads.items()
            if all(c in cores or key not in sequences[c][at[c] : at[c] + tuned.MEETING_AHEAD] for c in open_)
        ]
        if agreed:                        # the core that is least far: all go on at one pace
            key = min(agreed, key=lambda k: min(at[c] for c in heads[k]))
        else:
            key = max(heads, key=lambda k: len(heads[k]))
        found.append([(core, at[core]) for core in heads[key]])
        for core in heads[key]:
            at[core] += 1
    return found
