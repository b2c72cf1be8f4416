"""Extrema of every channel of activations, where a recipe asks for them: the [channels] table."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
import numpy.typing as npt

from npuflow.base.tables import Config
from npuflow.ir.graph import Graph, constant
from npuflow.ir.op import OPS, Node
from npuflow.ir.types import Array, TensorType, Value
from npuflow.onnx.run import EXPORT_OPSET
from npuflow.place.names import answers
from npuflow.run.floats import FloatRun
from npuflow.statistics.observe import needed_values

Floats = npt.NDArray[np.float32]
# [2, channels] by value id: the lowest and the highest value of each
Extrema = Mapping[str, Floats]


@dataclass(frozen=True)
class ChannelsTable(Config, table="channels"):
    """Extrema of each channel of the activations, which suggestions look at; the
    table switches the step on."""

    tensors: tuple[str, ...] = ()
    """Names or patterns of the tensors; all that are calibrated if empty."""


def axis_of(kind: TensorType) -> int | None:
    """Where an activation has its channels: the second axis, the last one of
    sequences; None if it has none."""
    rank = len(kind.shape)
    axis = None if rank < 2 else 2 if rank == 3 else 1
    return (
        axis
        if axis is not None and kind.dtype == "float32" and kind.is_static and kind.shape[axis] > 1
        else None
    )


def watched(graph: Graph, on_npu: Callable[[int], bool], table: ChannelsTable) -> list[str]:
    """The values whose channels are looked at."""
    names = [n for n in needed_values(graph, on_npu) if axis_of(graph.type(n)) is not None]
    return [n for n in names if not table.tensors or answers(table.tensors, (n,), "")]


def extrema(graph: Graph, names: Sequence[str], feeds: Iterable[Mapping[str, Array]]) -> Iterator[Extrema]:
    """One pass of the float network per sample, which finds the extrema itself: no activation leaves it."""
    values, consts, nodes = dict(graph.values), dict(graph.consts), list(graph.nodes)
    outputs = []
    for name in names:
        kind = graph.type(name)
        axis = axis_of(kind)
        assert axis is not None
        rest = np.array([d for d in range(len(kind.shape)) if d != axis], np.int64)
        axes, stored = constant(f"{name}:rest", rest)
        values[axes.id] = axes
        consts.update(stored)
        for end, op_type in (("lowest", "ReduceMin"), ("highest", "ReduceMax")):
            made = Value(f"{name}:{end}", TensorType((kind.shape[axis],)))
            values[made.id] = made
            op = OPS["host"](
                op_type=op_type, version=EXPORT_OPSET, attributes=(("keepdims", 0),), types=(made.type,)
            )
            nodes.append(Node(op, (name, axes.id), (made.id,)))
            outputs.append(made.id)
    wider = Graph(
        graph.inputs, tuple(outputs), tuple(nodes), MappingProxyType(values), MappingProxyType(consts),
        fed=graph.fed,
    )
    network = FloatRun.of(wider, outputs)
    for feed in feeds:
        found = network.run(feed)
        yield {name: np.stack([found[f"{name}:lowest"], found[f"{name}:highest"]]) for name in names}


def merged(parts: Iterable[Extrema]) -> dict[str, Floats]:
    """Of all samples together, in any order."""
    total: dict[str, Floats] = {}
    for part in parts:
        for name, found in part.items():
            old = total.get(name, found)
            total[name] = np.stack([np.minimum(old[0], found[0]), np.maximum(old[1], found[1])])
    return total
