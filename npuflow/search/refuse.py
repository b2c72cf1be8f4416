"""Why groups that the recipe pins cannot be: demand, bound, gap, and what does fit, each tried."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from npuflow.base.errors import FitError, TargetError
from npuflow.schedule.frame import Topology
from npuflow.schedule.groups import FusionGroup
from npuflow.search.score import Scored

LARGER = (1.125, 1.25, 1.5, 2, 3, 4, 6, 8, 16, 64)   # local memories tried, in times of what there is


@dataclass(frozen=True)
class PinnedGroups:
    """The groups that a recipe pins, and what the search for groups finds of a stretch of parts: whether they
    may join, the best way to run them, and that with other bytes of local memory."""

    topology: Topology
    local_bytes: int
    singles: Sequence[FusionGroup]
    pinned: Sequence[tuple[int, int]]
    joins: Callable[[int, int], bool]
    best: Callable[[int, int], Scored | None]
    within: Callable[[int, int, int], Scored | None]


def refusal(groups: PinnedGroups) -> TargetError:
    """The first pinned group that has no way to run."""
    for start, end in groups.pinned:
        if not groups.joins(start, end):
            return FitError(
                f"these layers cannot form one fusion group: {_names(groups, start, end)}",
                because="data-layout operators and layers with the host between them cannot be fused",
                hint="[tiling] groups without them", code="NF-TILING-012",
            )
        if groups.best(start, end) is None:
            return _too_large(groups, start, end)
    together = "the groups that [tiling] pins leave layers that do not fit local memory"
    return FitError(together, hint="shorter groups, or none", code="NF-FIT-006")


def _too_large(groups: PinnedGroups, start: int, end: int) -> TargetError:
    bound = groups.local_bytes
    demand = _demand(groups, start, end)
    fits = [(a, b) for a, b in _parts(start, end) if groups.best(a, b) is not None]
    options = [f"[tiling] groups = {_names(groups, a, b)} fits" for a, b in fits[:2]]
    options += [f"target.memory.local_bytes >= {demand} fits"] if demand else []
    inner = [
        (groups.topology.bytes(v), v)
        for g in groups.singles[start : end - 1]
        for v in groups.topology.needed(g.nodes)
    ]
    largest = ", ".join(f"{v}: {n} bytes" for n, v in sorted(inner, reverse=True)[:3])
    needs = (
        f"needs {demand} bytes of local memory, the target has {bound}: {demand - bound} too few"
        if demand
        else (
            f"does not fit {LARGER[-1]} times the {bound} bytes of local memory either: no split of its "
            "results works"
        )
    )
    return FitError(
        f"the group {_names(groups, start, end)} {needs}",
        because=f"tensors between its layers: {largest}; every number of stripes and every split over cores "
        "was tried",
        hint="; ".join(options) or "[tiling] groups without it",
        code="NF-FIT-007",
    )


def _demand(groups: PinnedGroups, start: int, end: int) -> int:
    """The least local memory tried in which the group runs; 0 if there is none."""
    for times in LARGER:
        tried = int(groups.local_bytes * times)
        if groups.within(tried, start, end) is not None:
            return tried
    return 0


def _parts(start: int, end: int) -> list[tuple[int, int]]:
    """Shorter stretches, the longest first."""
    return [(a, a + n) for n in range(end - start - 1, 1, -1) for a in range(start, end - n + 1)]


def _names(groups: PinnedGroups, start: int, end: int) -> str:
    nodes = groups.topology.graph.nodes
    names = [nodes[g.nodes[0]].name for g in groups.singles[start:end]]
    return "[" + ", ".join(f'"{n}"' for n in names) + "]"
