"""The Caffe network in the making: values of blobs, names, and a layer's options."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from npuflow.frontends._nodes.build import NodeBuilder
from npuflow.frontends.caffe.faults import damaged
from npuflow.frontends.caffe.parse import CaffeLayer
from npuflow.ir.types import Array

Options = Mapping[str, list[Any]]


class CaffeOperatorError(Exception):
    """A layer that cannot be converted, with the reason."""


class CaffeWeightsError(Exception):
    """A layer, by its name, that the .caffemodel has too few blobs for."""


@dataclass
class Net:
    """The graph in the making: the value that each blob's name stands for now, and the layer that gives a
    blob last: it alone gets the blob's name."""

    graph: NodeBuilder
    values: dict[str, str]
    last: Mapping[str, int]
    origin: str = ""
    _names: list[str] = field(default_factory=list)

    def begin(self, layer: CaffeLayer, index: int) -> None:
        self.origin = layer.name
        self._names = [
            top
            if self.last[top] == index and top not in self.graph.values
            else self.graph.free(f"{top}:{layer.name}")
            for top in layer.tops
        ]

    def pass_on(self, bottom: str, top: str, index: int) -> None:
        """A layer that changes nothing."""
        self.values[top] = self.values[bottom]

    def shape(self, blob: str) -> tuple[int, ...]:
        return self.graph.type(self.values[blob]).shape

    def constant(self, array: Any, name: str = "constant") -> str:
        return self.graph.constant(self.graph.free(f"{self.origin}:{name}"), np.asarray(array))

    def ints(self, values: Sequence[int]) -> str:
        return self.constant(np.asarray(list(values), np.int64))

    def widened(self, blob: str, axis: int, rank: int) -> str:
        """A blob that lies along the axes from `axis` on, of a rank that spreads over a blob of `rank`."""
        shape = self.shape(blob)
        ones = (1,) * (rank - axis % rank - len(shape))
        return (
            self.inner("Reshape", self.values[blob], self.ints([*shape, *ones]))
            if ones
            else self.values[blob]
        )

    def inner(self, kind: str, *inputs: str, **attributes: Any) -> str:
        """An operator in front of the layer's last one."""
        name = self.graph.free(f"{self.origin}:{kind.lower()}")
        self.graph.call(kind, inputs, [name], self.origin, **attributes)
        return name

    def give(self, layer: CaffeLayer, kind: str, *inputs: str, **attributes: Any) -> None:
        """The layer's results."""
        self.graph.call(kind, inputs, self._names, self.origin, **attributes)
        self.values.update(zip(layer.tops, self._names, strict=True))


def one(options: Options, name: str, default: Any) -> Any:
    """The last value of an option."""
    return options[name][-1] if options.get(name) else default


def pair(options: Options, name: str, default: int, long: str = "") -> list[int]:
    """A number for height and width: `stride`, or `stride_h` and `stride_w`."""
    high, wide = f"{long or name}_h", f"{long or name}_w"
    if high in options or wide in options:
        return [int(one(options, high, default)), int(one(options, wide, default))]
    rows = [int(v) for v in options.get(name, [default])]
    return rows * 2 if len(rows) == 1 else rows[:2]


def needed(layer: CaffeLayer, count: int) -> tuple[Array, ...]:
    if len(layer.blobs) < count:
        raise CaffeWeightsError(layer.name)
    return layer.blobs


def along(net: Net, values: Array, axis: int, like: Sequence[int]) -> str:
    """Numbers of a layer that lie along the axes from `axis` on, as a constant that spreads over the shape
    `like`. How many axes that are is known by their count: files of before 2014 state four sizes, with ones
    in front or behind."""
    axis %= len(like)
    inner = next(
        (like[axis:end] for end in range(axis, len(like) + 1) if math.prod(like[axis:end]) == values.size),
        None,
    )
    if inner is None:
        inner = values.shape
        if len(inner) > len(like) - axis:
            raise damaged(f'layer "{net.origin}" has {values.size} numbers for an input of {list(like)}')
    return net.constant(values.reshape(*inner, *(1,) * (len(like) - axis - len(inner))))
