"""A node and a network without some channels: constants, attributes and types cut to what is kept."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

import numpy as np
import numpy.typing as npt

from npuflow.ir.graph import Graph, constant, prune
from npuflow.ir.op import Bound, Node, Op
from npuflow.ir.types import Array, Value
from npuflow.ir.verify import verify

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Cut:
    """What is kept of a node. `consts`: by input, indices along dimensions; `outputs`: by value id, a
    dimension and the indices along it; `channels`: of its first result, of which a clip may have bounds."""

    consts: Mapping[int, Sequence[tuple[int, Ints]]]
    outputs: Mapping[str, tuple[int, Ints]]
    channels: Ints | None


def shrunk(op: Op, cut: Cut, shapes: Sequence[tuple[int, ...]]) -> Op:
    """The operator for the channels that are kept. `shapes`: of its results with all channels."""
    if op.clip is not None and cut.channels is not None:
        lo, hi = (_bound(one, cut.channels) for one in op.clip)
        op = op.with_(clip=(lo, hi))
    if "shape" in op.__dataclass_fields__ and cut.outputs:
        ((axis, kept),) = cut.outputs.values()
        op = op.with_(shape=(*shapes[0][:axis], len(kept), *shapes[0][axis + 1 :]))
    if op.column_groups() > 1 and cut.channels is not None:
        groups = shapes[0][1] // op.column_groups()
        op = op.with_(group=len(cut.channels) // groups)
    return op


def _bound(bound: Bound, kept: Ints) -> Bound:
    return tuple(bound[int(i)] for i in kept) if isinstance(bound, tuple) and len(bound) > 1 else bound


def without(
    graph: Graph, cuts: Callable[[Node], Cut], weights: Mapping[str, Mapping[int, Array]]
) -> Graph:
    """The network with what the cuts keep. `weights`: constants by a node's first output and the input, in
    place of the node's own, before the cut."""
    values, consts = dict(graph.values), dict(graph.consts)
    nodes: list[Node] = []
    for node in graph.nodes:
        cut, own = cuts(node), weights.get(node.outputs[0], {})
        inputs = list(node.inputs)
        for i, name in enumerate(node.inputs):
            array = own.get(i, graph.const(name))
            if array is None or not (i in own or cut.consts.get(i)):
                continue
            for axis, kept in cut.consts.get(i, ()):
                array = array.take(kept, axis)
            stored = graph.const(name)
            if stored is not None and stored.shape == array.shape and np.array_equal(stored, array):
                continue
            inputs[i] = _free(values, f"{name}:kept")
            values[inputs[i]], found = constant(inputs[i], array.astype(np.float32))
            consts.update(found)
        shapes = [graph.type(o).shape for o in node.outputs if o]
        op = shrunk(node.op, cut, shapes) if cut.outputs else node.op
        types = op.infer(*(values[v].type if v else None for v in inputs)) if not op.hosted else ()
        for name, made in zip((o for o in node.outputs if o), types, strict=False):
            values[name] = replace(values[name], type=made)
        nodes.append(replace(node, op=op, inputs=tuple(inputs)))
    done = graph.replaced(
        nodes=tuple(nodes), values=MappingProxyType(values), consts=MappingProxyType(consts)
    )
    return verify(prune(done), "removing channels")


def _free(values: Mapping[str, Value], name: str) -> str:
    while name in values:
        name += "_"
    return name


