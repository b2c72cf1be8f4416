"""The source model's values as scale * x + shift of pixels x, followed through operators that move data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from npuflow.ir.graph import Graph
from npuflow.ir.op import Node
from npuflow.ir.types import Array

Reals = npt.NDArray[np.float64]


@dataclass(frozen=True)
class ChannelMap:
    """One scale and shift per channel."""

    scale: Reals
    shift: Reals


@dataclass(frozen=True)
class Map:
    """The source model's value is scale * x + shift of the graph's x; both broadcast over it."""

    scale: Reals
    shift: Reals
    zero: int

    @property
    def plain(self) -> bool:
        return bool(np.all(self.scale == 1.0) and not np.any(self.shift))

    @property
    def uniform(self) -> bool:
        return self.scale.size == 1 and self.shift.size == 1

    def with_rank(self, rank: int) -> Map:
        """A uniform map for values of another rank."""
        shape = (1,) * rank
        return Map(self.scale.reshape(shape), self.shift.reshape(shape), self.zero)

    def full(self, shape: Sequence[int]) -> tuple[Reals, Reals]:
        return np.broadcast_to(self.scale, shape), np.broadcast_to(self.shift, shape)

    def channels(self, shape: Sequence[int], axis: int) -> ChannelMap | None:
        """One scale and shift per index of an axis; None where they differ along another."""
        found = []
        for array in (self.scale, self.shift):
            if any(size != 1 for i, size in enumerate(array.shape) if i != axis):
                return None
            found.append(np.broadcast_to(array.reshape(-1), (shape[axis],)))
        return ChannelMap(*found)


def carried(graph: Graph, node: Node, maps: Mapping[str, Map]) -> dict[str, Map]:
    """Maps of the outputs of a node that only moves elements."""
    inputs = [i for i in node.inputs if i]
    if len(inputs) == 1 and maps[inputs[0]].uniform:
        return {o: maps[inputs[0]].with_rank(len(graph.type(o).shape)) for o in node.outputs if o}
    fulls = [maps[i].full(graph.type(i).shape) if i in maps else None for i in node.inputs]
    both = []
    for part in (0, 1):
        given = [
            f[part] if f is not None else graph.const(i) for f, i in zip(fulls, node.inputs, strict=True)
        ]
        both.append(node.op.reference(*given))
    zero = next(maps[i].zero for i in inputs if i in maps)
    return {o: Map(_shrunk(a), _shrunk(b), zero) for o, a, b in zip(node.outputs, *both, strict=True) if o}


def _shrunk(array: Array) -> Reals:
    """With size 1 along every axis on which nothing changes."""
    found = np.asarray(array, np.float64)
    for axis in range(found.ndim):
        first = np.take(found, [0], axis) if found.shape[axis] else found
        if np.array_equal(np.broadcast_to(first, found.shape), found):
            found = first
    return found
