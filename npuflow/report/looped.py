"""Figures of a program by the nodes of its network: all steps of a loop are one node."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from npuflow.ir.graph import Graph
from npuflow.ir.loops import has_loops

SUMS = ("macs", "cycles", "bytes", "schedule", "bound", "energy_uj")
OF_MOST = ("limit", "stall")              # said of where most cycles go


def network_nodes(graph: Graph, made: Sequence[Mapping[str, Any]]) -> list[int | None] | None:
    """Of each node of a program, as its metadata has it, the place of the network's; None for one that the
    network has not. None where the program's nodes are the network's: no loop was written out in part."""
    if not has_loops(graph):
        return None
    maker = {o: i for i, node in enumerate(graph.nodes) for o in node.outputs if o}
    return [next((maker[v] for o in node["outputs"] for v in _names(o) if v in maker), None) for node in made]


def _names(name: str) -> Iterator[str]:
    """A value, and those whose names in a step it has: see `ir.unroll.step_name`. In a loop that stands in
    another one, a step's step has one."""
    while name:
        yield name
        name = name.rstrip("'").rpartition("@")[0]


def by_node(
    rows: Mapping[int, Mapping[str, Any]], places: Sequence[int | None] | None
) -> dict[int, dict[str, Any]]:
    """Rows of the program's nodes as those of the network's."""
    if places is None:
        return {i: dict(row) for i, row in rows.items()}
    together: dict[int, list[Mapping[str, Any]]] = {}
    for i, row in rows.items():
        if (place := places[i]) is not None:
            together.setdefault(place, []).append(row)
    return {place: _together(found) for place, found in together.items()}


def _together(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    most, found = max(rows, key=lambda row: row.get("cycles") or 0.0), dict[str, Any]()
    for key in dict.fromkeys(k for row in rows for k in row):
        known = [row[key] for row in rows if row.get(key) is not None]
        if key in SUMS:
            found[key] = sum(known) if known else None
        elif key in OF_MOST:
            found[key] = most.get(key)
    cycles = sum(row.get("cycles") or 0.0 for row in rows)
    if any("utilisation" in row for row in rows):
        used = sum((row.get("utilisation") or 0.0) * (row.get("cycles") or 0.0) for row in rows)
        found["utilisation"] = used / cycles if cycles else 0.0
    return found
