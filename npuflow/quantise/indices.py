"""Which elements of a value are indices, and how many rows their tables have."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from npuflow.ir.graph import Graph
from npuflow.ir.op import Node
from npuflow.ir.queries import kind
from npuflow.ir.types import WholeNumbers

_Rows = npt.NDArray[np.int64]           # by element; _NONE: no index
_WHOLE = ("int8", "uint8", "int32", "int64")
_NONE = np.iinfo(np.int64).max


def checked_rows(graph: Graph, chosen: Sequence[Node]) -> dict[str, WholeNumbers]:
    """Values that are indices, or become some by moves alone; whole numbers by a Cast to floats, too. An
    element has the rows of the smallest table that it points into; one that no table reads may hold any
    number."""
    found: dict[str, _Rows] = {}
    for node in reversed(chosen):
        for value_id, kept in node.op.whole_numbers(graph.site(node)).items():
            if kept.checked:
                own = _of(found, graph, value_id)
                np.minimum(own, each_row(kept, own.size), out=own)
        if node.op.moves_data and node.op.shares_scale and any(o in found for o in node.outputs):
            _moved(found, graph, node)
        elif _of_whole(graph, node) and node.outputs[0] in found:
            own = _of(found, graph, node.inputs[0])
            np.minimum(own, found[node.outputs[0]], out=own)
    return {v: _as_numbers(rows) for v, rows in found.items() if (rows != _NONE).any()}


def _of_whole(graph: Graph, node: Node) -> bool:
    return kind(node) == "host:cast" and graph.type(node.inputs[0]).dtype in _WHOLE


def each_row(kept: WholeNumbers, size: int) -> _Rows:
    """Of every element, int64[size]: the rows of its table, or more than any has where it is no index."""
    rows = np.repeat(kept.parts[1::2], kept.parts[::2]) if kept.parts else np.full(size, kept.below)
    return np.where(rows == 0, _NONE, rows).astype(np.int64)


def _moved(found: dict[str, _Rows], graph: Graph, node: Node) -> None:
    """What the operands of a node hold for what its results are."""
    moves = node.op.moves(graph.site(node))
    if moves is None:
        return
    if not moves:                                        # the result is the operand's bytes
        for rows in (found[o] for o in node.outputs if o in found):
            own = _of(found, graph, node.inputs[0])
            np.minimum(own, rows, out=own)
    for move in moves:
        held = found.get(node.outputs[move.output])
        if held is not None and move.source is not None and node.inputs[move.source]:
            made = held[_places(move.dst_offset, move.dims, move.dst_strides)]
            read = _places(move.src_offset, move.dims, move.src_strides)
            np.minimum.at(_of(found, graph, node.inputs[move.source]), read, made)


def _places(offset: int, dims: Sequence[int], strides: Sequence[int]) -> _Rows:
    places = np.array(offset)
    for size, stride in zip(dims, strides, strict=True):
        places = np.add.outer(places, np.arange(size) * stride)
    return places.reshape(-1)


def _of(found: dict[str, _Rows], graph: Graph, value_id: str) -> _Rows:
    return found.setdefault(value_id, np.full(graph.type(value_id).size, _NONE))


def _as_numbers(rows: _Rows) -> WholeNumbers:
    begins = np.flatnonzero(np.diff(rows, prepend=-1))
    most, counts = rows[rows != _NONE].max(), np.diff(begins, append=len(rows))
    if len(begins) == 1:
        return WholeNumbers(int(most), True)
    own = np.where(rows[begins] == _NONE, 0, rows[begins])
    return WholeNumbers(int(most), True, tuple(int(n) for n in np.stack([counts, own], 1).reshape(-1)))
