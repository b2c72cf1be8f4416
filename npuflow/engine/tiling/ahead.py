"""Constants ahead of their use: addresses in local memory that let each come in as early as its bytes are free.

Activations are placed first. Constants follow in the order of their use, each where the bytes have been free the longest:
over time they go round local memory as in a ring, but for what activations take.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from npuflow.engine.allocate import Layout, Life, aligned, peak
from npuflow.engine.arrange import Method, arrange


def go_round(
    lives: Sequence[Life], movable: Mapping[str, int], limit: int, align: int, method: Method = "greedy"
) -> tuple[list[Life], Layout] | None:
    """(lives, constants begun as early as they may; addresses), or None where constants find no room beside the rest."""
    fixed = [v for v in lives if v.name not in movable]
    addresses = dict(arrange(fixed, align, method).addresses) if fixed else {}
    count = len(lives)
    low, high, first, last = (np.zeros(count, np.int64) for _ in range(4))
    for i, v in enumerate(fixed):
        low[i], high[i], first[i], last[i] = addresses[v.name], addresses[v.name] + aligned(v.size, align), v.first, v.last
    found = {v.name: v for v in lives}
    order = sorted((v for v in lives if v.name in movable), key=lambda v: v.first)
    for n, life in enumerate(order, len(fixed)):
        size = aligned(life.size, align)
        starts = np.unique(np.concatenate([[0], high[:n]]))
        starts = starts[starts + size <= limit]
        meets = (low[:n] < starts[:, None] + size) & (starts[:, None] < high[:n])
        taken = (meets & (first[:n] <= life.last) & (last[:n] >= life.first)).any(axis=1)
        if taken.all():
            return None
        least = movable[life.name]
        since = np.where(meets & (last[:n] < life.first), last[:n] + 1, least).max(axis=1, initial=least)
        since[taken] = life.first + 1
        at = int(np.lexsort((starts, since))[0])
        addresses[life.name] = int(starts[at])
        low[n], high[n], first[n], last[n] = starts[at], starts[at] + size, since[at], life.last
        found[life.name] = replace(life, first=int(since[at]))
    early = [found[v.name] for v in lives]
    return early, Layout(addresses, int(high.max(initial=0)), peak(lives, align))
