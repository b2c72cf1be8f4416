"""Why groups that the recipe pins cannot be: demand, bound, gap, and what does fit, each tried."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

from npuflow.base.errors import FitError, TargetError
from npuflow.schedule.frame import Topology
from npuflow.schedule.groups import Group
from npuflow.schedule.machine import Machine
from npuflow.search.score import Scored

LARGER = (1.125, 1.25, 1.5, 2, 3, 4, 6, 8, 16, 64)   # local memories tried, in times of what there is


class Search(Protocol):
    """What a refusal asks of the search for groups."""

    topology: Topology
    machine: Machine
    singles: Sequence[Group]
    pinned: Sequence[tuple[int, int]]

    def joins(self, start: int, end: int) -> bool: ...

    def best(self, start: int, end: int) -> Scored | None: ...

    def with_machine(self, machine: Machine) -> Search: ...


def refusal(fuser: Search) -> TargetError:
    """The first pinned group that has no way to run."""
    for start, end in fuser.pinned:
        if not fuser.joins(start, end):
            return FitError(
                f"these layers cannot form one fusion group: {_names(fuser, start, end)}",
                because="data-layout operators and layers with the host between them cannot be fused",
                hint="[tiling] groups without them", code="NF-TILING-012",
            )
        if fuser.best(start, end) is None:
            return _too_large(fuser, start, end)
    together = "the groups that [tiling] pins leave layers that do not fit local memory"
    return FitError(together, hint="shorter groups, or none", code="NF-FIT-006")


def _too_large(fuser: Search, start: int, end: int) -> TargetError:
    bound = fuser.machine.memory.local_bytes
    demand = _demand(fuser, start, end)
    fits = [(a, b) for a, b in _parts(start, end) if fuser.best(a, b) is not None]
    options = [f"[tiling] groups = {_names(fuser, a, b)} fits" for a, b in fits[:2]]
    options += [f"target.memory.local_bytes >= {demand} fits"] if demand else []
    inner = [
        (fuser.topology.bytes(v), v)
        for g in fuser.singles[start : end - 1]
        for v in fuser.topology.needed(g.nodes)
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
        f"the group {_names(fuser, start, end)} {needs}",
        because=f"tensors between its layers: {largest}; every number of stripes and every split over cores "
        "was tried",
        hint="; ".join(options) or "[tiling] groups without it",
        code="NF-FIT-007",
    )


def _demand(fuser: Search, start: int, end: int) -> int:
    """The least local memory tried in which the group runs; 0 if there is none."""
    machine = fuser.machine
    for times in LARGER:
        memory = replace(machine.memory, local_bytes=int(machine.memory.local_bytes * times))
        found = fuser.with_machine(replace(machine, memory=memory)).best(start, end)
        if found is not None:
            return memory.local_bytes
    return 0


def _parts(start: int, end: int) -> list[tuple[int, int]]:
    """Shorter stretches, the longest first."""
    return [(a, a + n) for n in range(end - start - 1, 1, -1) for a in range(start, end - n + 1)]


def _names(fuser: Search, start: int, end: int) -> str:
    nodes = fuser.topology.graph.nodes
    names = [nodes[g.nodes[0]].name for g in fuser.singles[start:end]]
    return "[" + ", ".join(f'"{n}"' for n in names) + "]"
