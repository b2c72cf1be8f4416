"""The data of the roofline: layers by multiply-accumulates per cycle and byte, and the target's roofs."""

from __future__ import annotations

from typing import Any

from npuflow.report.profile.measure import Profile, Row


def data(found: Profile) -> dict[str, Any]:
    """What `figures.roofline` takes, as JSON."""
    target = found.program.target
    compute, memory = target.compute, target.memory
    roofs = [{"name": "array", "rate": compute.macs * compute.cores}]
    if compute.cores > 1:
        roofs.append({"name": "one core", "rate": compute.macs})
    roofs.append({"name": "depthwise", "rate": compute.depthwise_macs})
    slopes = [{"name": "external", "rate": memory.external_bandwidth}]
    if memory.shared_bytes:
        slopes.append({"name": "shared", "rate": memory.shared_bandwidth})
    title = f"{found.program.meta.get('name') or 'program'}: {found.cycles:,.0f} cycles"
    return {"title": title, "points": points(found), "roofs": roofs, "slopes": slopes}


def points(found: Profile) -> list[Row]:
    """Layers with multiply-accumulates: intensity, rate and cycles (of the critical path, at least of its
    busiest queue and of the bus, where the queues of several cores meet)."""
    rows, memory = [], found.program.target.memory
    for row in found.operators():
        bus = (row["load_bytes"] + row["store_bytes"]) / memory.external_bandwidth + row[
            "shared_bytes"
        ] / memory.shared_bandwidth
        cycles = max(row["path_cycles"], row["busiest"], bus)
        moved = row["load_bytes"] + row["store_bytes"] + row["shared_bytes"]
        if row["macs"] and cycles and moved:
            rows.append({"name": row["name"], "intensity": row["macs"] / moved, "rate": row["macs"] / cycles,
                         "cycles": cycles, "limit": row["limit"]})
    return rows
