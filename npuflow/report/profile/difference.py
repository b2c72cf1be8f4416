"""Two programs beside each other: totals, terms, and every layer by its source name."""

from __future__ import annotations

from npuflow.report.profile.measure import Profile, Row

TOTALS = (
    "cycles",
    "milliseconds",
    "npu_cycles",
    "host_cycles",
    "bytes",
    "shared_bytes",
    "macs",
    "host_macs",
    "utilisation",
    "commands",
    "data_bytes",
    "const_bytes",
)


def totals(a: Profile, b: Profile) -> list[Row]:
    """Every total of both, and how the second differs."""
    first, second = a.totals(), b.totals()
    rows = [_row(name, first[name], second[name]) for name in TOTALS]
    if "energy_uj" in first and "energy_uj" in second:
        rows.append(_row("energy_uj", first["energy_uj"], second["energy_uj"]))
    for table in ("path", "terms"):
        for name in dict.fromkeys([*first[table], *second[table]]):
            what = f"{'critical path' if table == 'path' else 'busy'}: {name}"
            rows.append(_row(what, first[table].get(name, 0.0), second[table].get(name, 0.0)))
    return rows


def layers(a: Profile, b: Profile) -> list[Row]:
    """Cycles on the critical path and bytes of every source node, the largest change first; a
    group counts for its nodes."""
    first, second = _by_name(a), _by_name(b)
    rows = []
    for name in dict.fromkeys([*first, *second]):
        left, right = first.get(name), second.get(name)
        rows.append({
            "name": name, "cycles a": left and left[0], "cycles b": right and right[0],
            "change": (right or (0.0, 0.0))[0] - (left or (0.0, 0.0))[0],
            "bytes a": left and left[1], "bytes b": right and right[1],
        })
    return sorted(rows, key=lambda r: -abs(r["change"]))


def _by_name(found: Profile) -> dict[str, tuple[float, float]]:
    cycles: dict[str, float] = {}
    for step in found.path:
        name = found.name(step["node"])
        cycles[name] = cycles.get(name, 0.0) + step["cycles"]
    moved: dict[str, float] = {}
    for i, node in enumerate(found.nodes.tolist()):
        name = found.name(node)
        moved[name] = moved.get(name, 0.0) + float(found.timeline.moved[i])
    for row in found.host_rows:
        name = row["name"]
        cycles[name] = cycles.get(name, 0.0) + row["cycles"]
        moved[name] = moved.get(name, 0.0) + row["host_bytes"]
    return {name: (cycles.get(name, 0.0), amount) for name, amount in moved.items()}


def _row(name: str, a: float, b: float) -> Row:
    return {"what": name, "a": a, "b": b, "change": b - a, "ratio": b / a if a else None}
