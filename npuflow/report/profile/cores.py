"""What several cores gain over one, what no program could gain, and where the rest goes."""

from __future__ import annotations

from typing import Any

from npuflow.report.profile.measure import Profile

# causes on the critical path that more cores do not shorten
LOST = ("synchronisation", "sharing", "bandwidth", "set-up")


def cores(found: Profile) -> dict[str, Any] | None:
    """None for one core. `speed_up`: over the least that one core needs for the network, so that the
    true one is no less; `most`: what all cores can gain by the same bounds, and `limit`: their number,
    the bus that they share, or a chain of layers."""
    number = found.program.target.compute.cores
    plan = found.program.meta.get("plan", {})
    if number == 1 or "bound_alone" not in plan or not found.cycles:
        return None
    compute, traffic, chain = (plan[f"bound_{name}"] for name in ("compute", "traffic", "chain"))
    alone, together = max(plan["bound_alone"], traffic, chain), max(compute, traffic, chain)
    path = found.totals()["path"]
    return {
        "cores": number,
        "busy": busy(found),
        "one_core": alone,
        "speed_up": alone / found.cycles,
        "most": alone / together if together else 1.0,
        "limit": _limit(compute, traffic, chain),
        "lost": {name: path[name] / found.cycles for name in LOST if path.get(name)},
    }


def _limit(compute: float, traffic: float, chain: float) -> str:
    if max(traffic, chain) <= compute:
        return "their number"
    return "external bandwidth" if traffic >= chain else "layers that depend on each other"


def busy(found: Profile) -> list[float]:
    """Per core the share of the program's time in which its array or its vector unit works."""
    spans: dict[int, list[tuple[float, float]]] = {
        core: [] for core in range(found.program.target.compute.cores)
    }
    for i, (core, _) in enumerate(found.order.sequence):
        if found.kinds[i] in ("TENSOR", "VECTOR"):
            spans[core].append((float(found.timeline.start[i]), float(found.timeline.end[i])))
    return [_covered(sorted(mine)) / found.cycles for mine in spans.values()]


def _covered(spans: list[tuple[float, float]]) -> float:
    """Length of a union of intervals in the order of their starts."""
    total, reached = 0.0, 0.0
    for start, end in spans:
        total += max(0.0, end - max(start, reached))
        reached = max(reached, end)
    return total


def text(found: Profile) -> str:
    """A line for people; empty for one core."""
    row = cores(found)
    if row is None:
        return ""
    lost = ", ".join(
        f"{name} {share:.1%}" for name, share in sorted(row["lost"].items(), key=lambda p: -p[1])
    )
    return (
        f"cores: {row['cores']}, array or vector unit busy {min(row['busy']):.0%} to {max(row['busy']):.0%} "
        "of the time; "
        f"at least {row['speed_up']:.2f} times as fast as any program on one of them "
        f"({row['one_core']:,.0f} cycles or more), "
        f"by the same measure at most {row['most']:.2f} "
        f"({row['limit']})" + (f"; on the critical path {lost}" if lost else "")
    )
