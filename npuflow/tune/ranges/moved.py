"""Ranges of values that only move others, where calibration saw the network at another shape."""

from __future__ import annotations

from collections.abc import Mapping

from npuflow.ir.graph import Graph
from npuflow.quantise.scales import Range, passed_on


def with_moved(graph: Graph, ranges: Mapping[str, Range]) -> dict[str, Range]:
    """Ranges, with those of values that have none and that are moved from, or to, one that has. At one size a
    movement is a view of another value, or none, and at another one a node of its own."""
    found = dict(ranges)
    before = -1
    while before != len(found):
        before = len(found)
        for node in (*graph.nodes, *reversed(graph.nodes)):
            if not (node.op.moves_data and node.op.shares_scale):
                continue
            read, made = passed_on(graph, node), [o for o in node.outputs if o]
            held = [found[v] for v in read if v in found]
            if held and len(held) == len(read):
                span = min(low for low, _ in held), max(high for _, high in held)
                found.update({v: span for v in made if v not in found})
            elif len(read) == 1 and len(made) == 1 and made[0] in found:
                found[read[0]] = found[made[0]]
    return found
