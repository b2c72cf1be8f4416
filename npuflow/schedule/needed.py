"""Which part of every layer somebody needs: a strided layer behind it may leave the last rows out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod

import numpy as np
import numpy.typing as npt

from npuflow.ir.graph import Graph
from npuflow.ir.moves import Move
from npuflow.ir.space import DimMap, IterationDomain, Operand

Indices = npt.NDArray[np.int64]
NeededPart = Mapping[str, Indices]  # per axis of a layer the indices that somebody needs
Reach = tuple[Indices, ...]  # of a value, per dimension


def needed_parts(
    graph: Graph, nodes: Sequence[int], moving: Mapping[int, tuple[Move, ...]],
    space: Callable[[int], IterationDomain],
) -> dict[int, NeededPart]:
    """Per node with an iteration space the part whose results are read: all of what the host, the caller or a
    data mover reads, what the windows of other layers touch. Of several readers the one with the most
    counts."""
    found: dict[int, NeededPart] = {}
    mine = set(nodes)
    wanted = {v: _all(graph, v) for v in graph.outputs if v}
    for number, node in enumerate(graph.nodes):
        if number not in mine:
            wanted.update({i: _all(graph, i) for i in node.inputs if i})
    wanted.update({v: _all(graph, v) for v in _moved(graph, nodes, moving)})
    for number in sorted(nodes, reverse=True):
        if number in moving:
            continue
        node, own = graph.nodes[number], space(number)
        found[number] = part = _part(own, [wanted.get(o) for o in node.outputs])
        for value, read in zip(node.inputs, own.inputs, strict=False):
            if value and read is not None and graph.values[value].const is None:
                reach = touched(read, part)
                known = wanted.get(value)
                if known is not None and node.op.inner:
                    reach = _joined(known, reach)
                if known is None or size(reach) > size(known):
                    wanted[value] = reach
    return found


def _joined(one: Reach, other: Reach) -> Reach:
    """What is in either of two parts, where they differ in one dimension; else the larger one."""
    apart = [d for d, (a, b) in enumerate(zip(one, other, strict=True)) if not np.array_equal(a, b)]
    if len(apart) > 1:
        return max(one, other, key=size)
    return tuple(np.union1d(a, b) for a, b in zip(one, other, strict=True))


def size(reach: Reach) -> int:
    return prod(len(indices) for indices in reach)


def touched(operand: Operand, part: NeededPart) -> Reach:
    """Indices of an operand that a part's windows reach."""
    return tuple(
        np.arange(extent) if m.axis is None else _reached(m, extent, part[m.axis])
        for m, extent in zip(operand.maps, operand.shape, strict=True)
    )


def _reached(m: DimMap, extent: int, indices: Indices) -> Indices:
    low = np.clip(indices * m.num // m.den + m.lo, 0, extent)
    high = np.clip(indices * m.num // m.den + m.hi + 1, low, extent)
    ends = np.zeros(extent + 1, np.int64)
    np.add.at(ends, low, 1)
    np.add.at(ends, high, -1)
    return np.flatnonzero(np.cumsum(ends)[:extent])


def _part(space: IterationDomain, wanted: Sequence[Reach | None]) -> NeededPart:
    """What of a layer makes these parts of its results."""
    live = [
        (operand, reach) for operand, reach in zip(space.outputs, wanted, strict=False) if reach is not None
    ]
    if not live:
        return {a.name: np.arange(0) for a in space.axes}
    part = {a.name: np.arange(a.size) for a in space.axes}
    if len(space.outputs) == 1:
        operand, reach = live[0]
        for m, indices in zip(operand.maps, reach, strict=True):
            if m.axis is not None and m == DimMap(m.axis):
                part[m.axis] = indices
    return part


def _all(graph: Graph, value: str) -> Reach:
    return tuple(np.arange(extent) for extent in graph.type(value).shape)


def _moved(graph: Graph, nodes: Sequence[int], moving: Mapping[int, tuple[Move, ...]]) -> list[str]:
    """Values of which data movers, all together, take every element; a part of one may be all that is
    needed."""
    taken: dict[str, set[tuple[tuple[int, ...], tuple[int, ...], int]]] = {}
    # of a tensor that a loop cuts into steps, the graph has some of the parts, and the loop reads all
    whole = [i for roll in graph.rolls for n in roll.movers for i in graph.nodes[n].inputs if i]
    for number in nodes:
        node = graph.nodes[number]
        if number in moving and not moving[number]:
            whole += [i for i in node.inputs if i]
        for move in moving.get(number, ()):
            if move.source is not None:
                key = move.dims, move.src_strides, move.src_offset
                taken.setdefault(node.inputs[move.source], set()).add(key)
    for value, moves in taken.items():
        total = sum(_elements(dims, strides) for dims, strides, _ in moves)
        if total >= graph.values[value].type.size:
            whole.append(value)
    return whole


def takes_all(moves: Sequence[Move], source: int, size: int) -> bool:
    """Whether one of a node's moves takes every element of an input; a node without moves renames it."""
    own = (m for m in moves if m.source == source)
    return not moves or any(_elements(m.dims, m.src_strides) == size for m in own)


def _elements(dims: Sequence[int], strides: Sequence[int]) -> int:
    """Different ones that a move reads."""
    return prod(n for n, s in zip(dims, strides, strict=True) if s)
