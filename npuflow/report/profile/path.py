"""The critical path: the chain of commands that fixes a program's cycles, every
cycle once, with its cause."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from npuflow.hw.target import Target
from npuflow.program.order import Order
from npuflow.sim.clock import Timeline

Row = dict[str, Any]
PATH = ("array", "edge", "vector", "bandwidth", "sharing", "set-up", "banks", "synchronisation")


def critical_path(
    timeline: Timeline,
    order: Order,
    kinds: Sequence[str],
    blockers: Sequence[int],
    nodes: Sequence[int],
    target: Target,
) -> list[Row]:
    """From the end back: what ran last, what let it start, and so on to cycle 0; then in order of time."""
    previous = _previous(order)
    steps: list[Row] = []
    for first, last in reversed(order.segments):
        if first == last:
            continue
        i = max(range(first, last), key=lambda j: timeline.end[j])
        while i >= first:
            steps += [
                {"command": i, "node": int(nodes[i]), **part}
                for part in _parts(timeline, i, kinds[i], target)
            ]
            i = blockers[i] if blockers[i] >= 0 else previous[i]
    steps.reverse()
    return steps


def _previous(order: Order) -> list[int]:
    """Per command the one before it in its queue, or -1."""
    last: dict[int, int] = {}
    found = []
    for i, q in enumerate(order.queue):
        found.append(last.get(int(q), -1))
        last[int(q)] = i
    return found


def _parts(timeline: Timeline, i: int, kind: str, target: Target) -> Iterator[Row]:
    """A command's time by cause."""
    terms, banks = timeline.terms[i], float(timeline.banks[i])
    spent = float(timeline.end[i] - timeline.start[i])
    parts = {
        "set-up": float(terms.issue + terms.setup + terms.rows + terms.fill + terms.reload), "banks": banks,
        "array": terms.array, "edge": terms.edge, "vector": float(terms.vector),
    }
    rest = spent - sum(parts.values())
    if kind in ("LOAD", "STORE"):
        memory = target.memory
        width = memory.shared_bandwidth if timeline.shared[i] else memory.external_bandwidth
        alone = float(timeline.moved[i] + timeline.shared[i]) / min(width, memory.local_bandwidth)
        parts["bandwidth"], parts["sharing"] = alone, rest - alone
    else:
        parts["synchronisation"] = rest
    for cause in PATH:
        if abs(parts.get(cause, 0.0)) > 1e-6:
            yield {"cause": cause, "cycles": parts[cause]}
