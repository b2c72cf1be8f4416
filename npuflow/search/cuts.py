"""Which parts run together: one dynamic programme over the cuts of their order into groups.

A cut has a state: what crosses it goes through external memory, or stays in the local memories of the
cores that make it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from math import inf

from npuflow.search.score import Scored

STATES = (False, True)                    # what crosses a cut stays in local memory


@dataclass(frozen=True)
class GroupCandidate:
    """A group, the values that it takes to be in local memory, and the cycles of its halo exchange."""

    scored: Scored
    local: frozenset[str] = frozenset()
    exchange: float = 0.0


Options = Iterable[tuple[bool, GroupCandidate]]     # groups with the state of the cut behind them
# (first part, state of the cut before it) -> groups from there on by their ends, shorter ones first
Proposals = Callable[[int, bool], Iterable[tuple[int, Options]]]


@dataclass(frozen=True)
class _Step:
    """The cheapest way up to a cut: by the group that begins at `start`, where the cut has a state."""

    score: float
    start: int = 0
    state: bool = False
    group: GroupCandidate | None = None


def cheapest(
    count: int, proposals: Proposals, total: Callable[[float, GroupCandidate], float], misses: float = inf
) -> list[GroupCandidate] | None:
    """The groups of all parts with the lowest total; None where they cannot be cut so. `total`: of what
    comes before a group, and the group; `misses`: lengths in a row that are no gain, after which no longer
    groups are asked for."""
    best = [[_Step(inf) for _ in STATES] for _ in range(count + 1)]
    best[0][False] = _Step(0.0)
    for start in range(count):
        for before in STATES:
            so_far, missed = best[start][before].score, 0
            if so_far == inf:
                continue
            for end, options in proposals(start, before):
                gain = False
                for after, group in options:
                    score = total(so_far, group)
                    if score < best[end][after].score:
                        best[end][after], gain = _Step(score, start, before, group), True
                missed = 0 if gain else missed + 1
                if missed > misses:
                    break
    chosen: list[GroupCandidate] = []
    at, state = count, False
    while at:
        step = best[at][state]
        if step.group is None:
            return None
        chosen.append(step.group)
        at, state = step.start, step.state
    return chosen[::-1]
