"""The input of a table function needs no codes where the function's own output code stands still."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import numpy as np

from npuflow.hw.numerics import quantize
from npuflow.ir.graph import Graph
from npuflow.ir.op import Node, Op
from npuflow.ir.types import QuantType

Range = tuple[float, float]
STEPS = 8192                              # where the range is probed


def trimmed(op: Op, span: Range, out: QuantType) -> Range:
    """The part of the range outside of which the output code is that of the nearer end.
    SiLU at 8 bits: about -5 and up.

    Codes are compared at half steps, so that what is cut off differs by less than a
    quarter step of the output.
    """
    x = np.linspace(span[0], span[1], STEPS + 1)
    with np.errstate(all="ignore"):
        y = np.asarray(op.f(x), np.float64)
    if op.clip is not None:
        y = np.clip(y, *op.clip)
    lo, hi = 2 * (out.lo - out.zero_point[0]), 2 * (out.hi - out.zero_point[0])
    codes = quantize(y, out.scale[0] / 2, 0, lo, hi)
    moves = np.flatnonzero(codes[1:] != codes[:-1])
    if not moves.size:
        return span
    return float(x[moves[0]]), float(x[moves[-1] + 1])


def narrower(
    graph: Graph,
    chosen: Sequence[Node],
    spans: Mapping[str, Range],
    types: Mapping[str, QuantType],
    alone: Collection[str],
) -> dict[str, Range]:
    """Smaller ranges for values that only table functions read. `alone`: values that
    share their scale with no other."""
    consumers, mine = graph.consumers(), {n.outputs for n in chosen}
    found: dict[str, Range] = {}
    for value_id in spans:
        readers = consumers.get(value_id, [])
        tables = [n for n in readers if n.op.unary and n.outputs in mine]
        if not readers or len(tables) < len(readers) or value_id not in alone or value_id in graph.outputs:
            continue
        parts = [trimmed(n.op, spans[value_id], types[n.outputs[0]]) for n in tables]
        found[value_id] = min(p[0] for p in parts), max(p[1] for p in parts)
    # A table whose output is itself narrowed gets finer output codes than were looked
    # at here: it keeps its range.
    return {v: r for v, r in found.items() if not any(n.outputs[0] in found for n in consumers[v])}
