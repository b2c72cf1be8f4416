"""Additive masks in front of a Softmax: -10000 that only says "not this one" takes no part of the range.

After exp(x - max) everything some tens below the largest score is nothing. Where a Softmax reads
values in two bands far apart, the lower band is a mask: it is clipped to a little below the scores,
and so is the tensor that adds it, with all that it was moved from: these have one scale, and a sum rescales
both operands by one shift, which leaves scores few bits beside a mask of -1e9. Where a network keeps state
the mask hides what a cache does not hold yet: the band is so far below that exponentials there are 0,
whatever the scores are.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from npuflow.ir.graph import Graph
from npuflow.ir.op import Node
from npuflow.quantise.scales import activation_inputs
from npuflow.statistics.statistics import ObservedStatistics, StatisticsColumn
from npuflow.tune import tuned

Range = tuple[float, float]
NOTHING = 20.0                            # exp(-20) of the largest weight is below any code
ZERO = 24.0                               # the table of exponentials has 0 from there on
BEYOND = 1.25                             # scores may be so much lower than those that calibration saw


def masked(graph: Graph, statistics: ObservedStatistics) -> Mapping[str, Range]:
    """Bounds of tensors that hold masks: those that a Softmax reads, and the operand that brings the mask."""
    known, producer = set(statistics.names), graph.producer()
    found: dict[str, Range] = {}
    for node in graph.nodes:
        if node.op.algebra != "shares":
            continue
        path, adds = _back(graph, producer, node.inputs[0])
        bands = _bands(statistics[path[-1]]) if path[-1] in known else None
        if bands is None:
            continue
        low, high = bands
        below = min(low, BEYOND * low) - ZERO if graph.state else low - NOTHING
        for value_id in path:
            found[value_id] = (below, high)
        for _, operand in activation_inputs(graph, adds) if adds is not None else ():
            inner = _bands(statistics[operand]) if operand in known else None
            if inner is not None:
                far = (high - low) + NOTHING
                lowest = inner[0] - (4 * far if graph.state else far)
                for value_id in _back(graph, producer, operand)[0]:       # layers may share a mask
                    found[value_id] = (min(lowest, found.get(value_id, inner)[0]), inner[1])
    return found


def _back(graph: Graph, producer: Mapping[str, Node], value_id: str) -> tuple[list[str], Node | None]:
    """Values from a Softmax's input back to a sum, through operators that only move
    data; and the node that sums."""
    path = [value_id]
    while path[-1] in producer:
        node = producer[path[-1]]
        if node.op.sums:
            return path, node
        if not node.op.shares_scale or len(activation_inputs(graph, node)) != 1:
            break
        path.append(activation_inputs(graph, node)[0][1])
    return path, None


def _bands(tensor: StatisticsColumn) -> Range | None:
    """(lowest, highest) value of the upper band where values lie in two bands far apart; else None."""
    lower, upper, counts = tensor.cells()
    if len(counts) < 2:
        return None
    gaps = lower[1:] - upper[:-1]
    at = int(np.argmax(gaps))
    low, high = float(lower[at + 1]), float(upper[-1])
    wide = float(gaps[at])
    least = max(tuned.MASK_FAR * (high - low), tuned.MASK_LEAST)
    return (low, high) if upper[at] < 0 and wide >= least else None
